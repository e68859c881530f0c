"""Batches between us and other clients: Java's bytes, aiokafka, kafka-python and librdkafka."""

from __future__ import annotations

import base64
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import aiokafka.record.default_records as aio_records
import confluent_kafka
import pytest

from tidelog.model import Codec
from tidelog.protocol import framing
from tidelog.protocol.apis import api
from tidelog.protocol.batches import (
    CONTROL_COMMIT,
    Record,
    check_crc,
    control_coordinator_epoch,
    control_record_type,
    decode_records,
    encode_batch,
    encode_control_batch,
    read_header,
)
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Of its own import of its own resources.
    import kafka.record.default_records as python_records

# Written by MemoryRecordsBuilder of kafka-clients 4.3.0 from the three records below, and by
# MemoryRecords.withEndTransactionMarker.
JAVA = {
    "gzip": (
        "AAAAAAAAAAAAAAB0/////wLg5N6VAAEAAAACAAABi8/laAAAAAGLz+Vp9AAAAAAAABJnAAMAAAARAAAAAx+LCAAA"
        "AAAAAP8zYGBgYMtOreQqS8wpTWVhymCq4MgrzclhfMHC8IKdifEGS9koIBow8DAwsjAwMgAAa2YczFYBAAA="
    ),
    "snappy": (
        "AAAAAAAAAAAAAACF/////wIztIalAAIAAAACAAABi8/laAAAAAGLz+Vp9AAAAAAAABJnAAMAAAARAAAAA4JTTkFQ"
        "UFkAAAAAAQAAAAEAAABA1gKQMAAAAAZrZXkKdmFsdWUEAmgCeAhudWxsAegEAOgHAgHYBHZ2dv4CAP4CAP4CAP4C"
        "AKICABwADAABBAABAA=="
    ),
    "lz4": (
        "AAAAAAAAAAAAAABy/////wLj+40DAAMAAAACAAABi8/laAAAAAGLz+Vp9AAAAAAAABJnAAMAAAARAAAAAwQiTRhg"
        "QIIyAAAA/xQwAAAABmtleQp2YWx1ZQQCaAJ4CG51bGwB6AQA6AcCAdgEdgEA/xmAAAwAAQQAAQAAAAAA"
    ),
    "zstd": (
        "AAAAAAAAAAAAAABw/////wKy/ewCAAQAAAACAAABi8/laAAAAAGLz+Vp9AAAAAAAABJnAAMAAAARAAAAAyi1L/0A"
        "WJwBALQCMAAAAAZrZXkKdmFsdWUEAmgCeAhudWxsAegEAOgHAgHYBHYADAABBAABAAEAQ1HBEwEAAA=="
    ),
    "commit": (
        "AAAAAAAAACoAAABCAAAABQKo2ocxADAAAAAAAAABi8/laAAAAAGLz+VoAAAAAAAAABJnAAP/////AAAAASAAAAAI"
        "AAAAAQwAAAAAAAkA"
    ),
}

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value", [("h", b"x"), ("null", None)]),
    Record(1, 1_700_000_000_500, None, b"v" * 300),
    Record(2, 1_699_999_999_999, b"", None),
]
CODECS = list(Codec)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_java_wrote_is_read(codec: Codec) -> None:
    batch = base64.b64decode(JAVA[codec.name.lower()])
    header = read_header(batch)
    assert check_crc(batch, 0, len(batch))
    assert header.codec is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 3, 17)
    assert header.max_timestamp == 1_700_000_000_500
    assert decode_records(batch) == RECORDS


def test_the_marker_that_java_wrote_is_the_one_that_we_write() -> None:
    java = base64.b64decode(JAVA["commit"])
    ours = encode_control_batch(
        CONTROL_COMMIT,
        producer_id=4711,
        producer_epoch=3,
        coordinator_epoch=9,
        timestamp=1_700_000_000_000,
        leader_epoch=5,
    )
    assert java[8:] == ours[8:]
    (marker,) = decode_records(java)
    assert control_record_type(marker) == CONTROL_COMMIT
    assert control_coordinator_epoch(marker) == 9
    assert marker.offset == 42


def library_records(library: Any, batch: bytes) -> list[Record]:
    reader = library.DefaultRecordBatch(bytearray(batch))
    assert reader.validate_crc()
    return [
        Record(each.offset, each.timestamp, each.key, each.value, list(each.headers))
        for each in reader
    ]


def library_batch(library: Any, codec: Codec) -> bytes:
    builder = library.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=8,
        producer_epoch=1,
        base_sequence=2,
        batch_size=100_000,
    )
    for record in RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value, record.headers)
    return bytes(builder.build())


# kafka-python has the other codecs only beside libraries that we do not use.
LIBRARIES = [(aio_records, codec) for codec in CODECS] + [
    (python_records, codec) for codec in (Codec.NONE, Codec.GZIP)
]


@pytest.mark.parametrize(("library", "codec"), LIBRARIES)
def test_python_clients_read_what_we_write(library: Any, codec: Codec) -> None:
    assert library_records(library, encode_batch(RECORDS, codec=codec)) == RECORDS


@pytest.mark.parametrize(("library", "codec"), LIBRARIES)
def test_we_read_what_python_clients_write(library: Any, codec: Codec) -> None:
    batch = library_batch(library, codec)
    assert check_crc(batch, 0, len(batch))
    assert decode_records(batch) == RECORDS
    assert read_header(batch).base_sequence == 2


# The cluster that librdkafka mocks for its own tests; it lives as long as its standard input.
MOCK_CLUSTER = """
import sys
import confluent_kafka
producer = confluent_kafka.Producer({"test.mock.num.brokers": 1})
(broker,) = producer.list_topics(timeout=20).brokers.values()
print(broker.host, broker.port, flush=True)
sys.stdin.read()
"""


@dataclass
class MockCluster:
    """Where librdkafka's own broker listens."""

    host: str
    port: int

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    def call(self, name: str, version: int, request: object) -> Any:
        parts = framing.encode_request(api(name), version, 1, "test", request)
        with socket.create_connection((self.host, self.port), timeout=20) as connection:
            connection.sendall(b"".join(parts))
            with connection.makefile("rb") as stream:
                size = int.from_bytes(stream.read(4), "big")
                return framing.decode_response(api(name), version, stream.read(size))[1]


@pytest.fixture(scope="module")
def librdkafka() -> Iterator[MockCluster]:
    with subprocess.Popen(
        [sys.executable, "-c", MOCK_CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        host, port = process.stdout.readline().split()
        yield MockCluster(host, int(port))
        process.stdin.close()
        process.wait(20)


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_librdkafka_writes(librdkafka: MockCluster, codec: Codec) -> None:
    topic = f"written-by-librdkafka-{codec.name}"
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": librdkafka.bootstrap_servers,
            "compression.codec": codec.name.lower(),
            "linger.ms": 200,
        }
    )
    sent = [
        Record(number, 1_700_000_000_000 + number, b"key", b"value" * 50, [("h", b"x")])
        for number in range(20)
    ]
    for record in sent:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            timestamp=record.timestamp,
            headers=record.headers,
            partition=0,
        )
    assert producer.flush(20) == 0
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )
    answer = librdkafka.call("Fetch", 11, request)
    stored = answer.responses[0].partitions[0].records
    header = read_header(stored)
    assert check_crc(stored, 0, header.size_bytes)
    assert header.codec is codec
    assert decode_records(stored) == sent[: header.record_count]


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_we_write(librdkafka: MockCluster, codec: Codec) -> None:
    topic = f"written-by-us-{codec.name}"
    librdkafka.call("Metadata", 4, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    records = [Record(value=b"value %d " % number * 400) for number in range(200)]
    data = PartitionProduceData(index=0, records=encode_batch(records, codec=codec))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = librdkafka.call("Produce", 7, request)
    assert answer.responses[0].partition_responses[0].error_code == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": librdkafka.bootstrap_servers, "group.id": "g"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    while len(values) < len(records):
        messages = consumer.consume(len(records), timeout=20)
        assert messages, "nothing came within 20 seconds"
        assert all(message.error() is None for message in messages)
        values += [message.value() for message in messages]
    consumer.close()
    assert values == [record.value for record in records]
