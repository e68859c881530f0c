"""Topics filled with every kind of record, for what reads them."""

from __future__ import annotations

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as AdminTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BASE_TIMESTAMP_MS = 1_700_000_000_000


def create(servers: str, topic: str, partitions: int, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    made = AdminTopic(topic, num_partitions=partitions, config=settings)
    admin.create_topics([made])[topic].result(30)


def fill_with_everything(servers: str, topic: str, partitions: int = 2) -> int:
    """Every codec, nulls, empty values, headers, timestamps out of order: how many records."""
    count = 0
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 50}
        )
        for index in range(40):
            headers = [("trace", b"%d" % index), ("none", None)] if index % 3 == 0 else None
            producer.produce(
                topic,
                value=None if index % 7 == 0 else f"{codec}-{index}".encode() * (index % 5),
                key=None if index % 4 == 0 else b"key-%d" % index,
                partition=index % partitions,
                timestamp=BASE_TIMESTAMP_MS + (index * 37) % 100,
                headers=headers,
            )
            count += 1
        assert producer.flush(30) == 0
    return count


def produce_values(servers: str, topic: str, values: range, partitions: int = 1) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for value in values:
        producer.produce(topic, b"%d" % value, partition=value % partitions)
    assert producer.flush(30) == 0
