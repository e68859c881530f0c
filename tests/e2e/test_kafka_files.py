"""Kafka's files under our log: one topic per codec and one with transactions, written by Kafka.

The other way round, our files under Kafka's programs, is `test_kafka_tools`.
"""

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer

from bench.peers.kafka import ApacheKafka, run_tool
from tests.e2e.kafka_files import (
    DUMP,
    FIRST_TIMESTAMP,
    complaints,
    create_topic,
    log_context,
    segment_files,
    topic_id,
)
from tests.unit.storage.helpers import close, offset_for_timestamp
from tidelog import model
from tidelog.config import TopicConfig
from tidelog.model import Codec
from tidelog.protocol.batches import Record, decode_records, iterate_batches
from tidelog.storage.log import Log
from tidelog.storage.log_context import LogContext, NewLog
from tidelog.storage.losses import Expectation
from tidelog.storage.recovery import Opening

pytestmark = pytest.mark.java

SEGMENT_BYTES = 1_048_576  # the least that Kafka 4 accepts
KAFKA_RECORDS = 3_000


@pytest.fixture
def context() -> LogContext:
    return log_context()


@pytest.fixture(scope="module")
def kafka_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory that an Apache Kafka broker wrote and closed: a topic per codec, compressed
    by the broker itself, and one with transactions."""
    kafka = ApacheKafka(tmp_path_factory.mktemp("fixture") / "kafka")
    with kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 50})
        for codec in Codec:
            name = codec.name.lower()
            compression = "uncompressed" if codec is Codec.NONE else name
            settings = {"compression.type": compression, "segment.bytes": str(SEGMENT_BYTES)}
            create_topic(kafka, name, settings)
            for number in range(KAFKA_RECORDS):
                producer.produce(name, **kafka_record(number), partition=0)
                producer.poll(0)
        assert producer.flush(60) == 0
        producer.close()
        create_topic(kafka, "transactions", {})
        for commit in (True, False):
            transaction(kafka, commit)
    return kafka.log_dir


def kafka_record(number: int) -> dict[str, Any]:
    """Values that no codec makes much smaller, so that there is more than one segment."""
    return {
        "key": f"key-{number}".encode() if number % 3 else None,
        "value": Random(number).randbytes(500) if number % 7 else None,
        "headers": [("colour", b"blue"), ("empty", None)] if number % 5 == 0 else [],
        "timestamp": FIRST_TIMESTAMP + number,
    }


def transaction(kafka: ApacheKafka, commit: bool) -> None:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"writer-{commit}"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(3):
        producer.produce("transactions", f"{commit}-{number}".encode(), partition=0)
    if commit:
        producer.commit_transaction(30)
    else:
        assert producer.flush(30) == 0
        producer.abort_transaction(30)
    producer.close()


def open_copy(kafka_made: Path, topic: str, to: Path, context: LogContext, *, clean: bool) -> Log:
    directory = to / f"{topic}-0"
    shutil.copytree(kafka_made / f"{topic}-0", directory)
    partition, settings = model.TopicPartition(topic, 0), TopicConfig(segment_bytes=SEGMENT_BYTES)
    new, expected = NewLog(topic_id(directory), settings), Expectation(str(directory))
    return Log.open(Opening(partition, new, context, expected, clean))


def read_all(log: Log) -> list[Record]:
    slices = log.read(log.log_start_offset, 1 << 30, log.end_position)
    data = slices.read_all()
    slices.release()
    return [
        record for position, _ in iterate_batches(data) for record in decode_records(data, position)
    ]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "recovered"])
@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_our_log_reads_every_record_of_kafkas(
    kafka_made: Path, tmp_path: Path, context: LogContext, codec: Codec, clean: bool
) -> None:
    source = kafka_made / f"{codec.name.lower()}-0"
    before = {file.name: file.read_bytes() for file in source.glob("*.log")}
    assert len(before) > 1, "the log must have rolled for this to say much"

    log = open_copy(kafka_made, codec.name.lower(), tmp_path, context, clean=clean)
    records = read_all(log)
    found = offset_for_timestamp(log, FIRST_TIMESTAMP + 1_234)
    close(log)

    assert [record.offset for record in records] == list(range(KAFKA_RECORDS))
    for number, record in enumerate(records):
        expected = kafka_record(number)
        assert (record.key, record.value) == (expected["key"], expected["value"])
        assert (record.headers, record.timestamp) == (expected["headers"], expected["timestamp"])
    assert found is not None and found[:2] == (1_234, FIRST_TIMESTAMP + 1_234)
    after = {file.name: file.read_bytes() for file in (tmp_path / source.name).glob("*.log")}
    assert after == before, "opening must not change a byte of sound segments"


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_kafka_stored_the_codec_of_the_topic(
    kafka_made: Path, tmp_path: Path, context: LogContext, codec: Codec
) -> None:
    """Keeps the fixture honest: each codec is really there to be read."""
    log = open_copy(kafka_made, codec.name.lower(), tmp_path, context, clean=True)
    slices = log.read(0, 1 << 30, log.end_position)
    codecs = {header.codec for _, header in iterate_batches(slices.read_all())}
    slices.release()
    close(log)
    assert codecs == {codec}


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "recovered"])
def test_our_log_knows_the_transactions_of_kafkas(
    kafka_made: Path, tmp_path: Path, context: LogContext, clean: bool
) -> None:
    log = open_copy(kafka_made, "transactions", tmp_path, context, clean=clean)
    values = [record.value for record in read_all(log) if record.value and b"-" in record.value]
    aborted = log.segments.aborted_transactions(0, log.log_end_offset)
    log.producers.high_watermark_moved(log.log_end_offset)
    unstable = log.first_unstable_offset
    close(log)

    assert values == [
        f"{commit}-{number}".encode() for commit in (True, False) for number in range(3)
    ]
    assert [first for _, first in aborted] == [4]
    assert unstable is None


def test_dump_log_segments_finds_a_gap_before_later_segments_of_kafkas_own(
    kafka_made: Path,
) -> None:
    """The one complaint that `complaints` leaves out is no fault of ours."""
    later = segment_files(kafka_made / "none-0", "log")[-1]
    done = run_tool(DUMP, "--deep-iteration", "--files", str(later))
    assert "Non-consecutive offsets" in done.stderr
    assert complaints(done.stderr) == ""
