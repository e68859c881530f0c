"""What a topic holds, read by a client that shares nothing with the writer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

READ_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Read:
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def read_topic(bootstrap_servers: str, topic: str) -> list[Read]:
    """Every record of a topic, partition by partition, up to the ends of this moment."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reading",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=READ_SECONDS_MAX).topics[topic].partitions
        places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
        ends = [
            consumer.get_watermark_offsets(place, timeout=READ_SECONDS_MAX)[1] for place in places
        ]
        consumer.assign(places)
        messages: list[object] = []
        while len(messages) < sum(ends):
            more = consumer.consume(min(10_000, sum(ends) - len(messages)), READ_SECONDS_MAX)
            assert more, f"{len(messages)} of {sum(ends)} records were read"
            messages += more
    finally:
        consumer.close()
    return sorted((_read(message) for message in messages), key=lambda record: record.partition)


def read_committed(bootstrap_servers: str, topic: str) -> list[bytes | None]:
    """The values that a reader of committed records finds before it has to wait."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reading",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=READ_SECONDS_MAX).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
        values: list[bytes | None] = []
        waiting = set(partitions)
        while waiting:
            found = consumer.consume(10_000, 1.0)
            for message in found:
                error = message.error()
                if error is None:
                    values.append(message.value())
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    waiting.discard(message.partition())
    finally:
        consumer.close()
    return values


def _read(message: object) -> Read:
    assert message.error() is None, message.error()  # type: ignore[attr-defined]
    return Read(
        message.partition(),  # type: ignore[attr-defined]
        message.key(),  # type: ignore[attr-defined]
        message.value(),  # type: ignore[attr-defined]
        tuple(message.headers() or ()),  # type: ignore[attr-defined]
        message.timestamp()[1],  # type: ignore[attr-defined]
    )


def duplicates(values: list[bytes | None], expected: set[bytes]) -> int:
    """How many records are there more than once; every expected value must be there."""
    counts = Counter(values)
    assert set(counts) == expected, f"{len(expected - set(counts))} values are lost"
    return len(values) - len(counts)
