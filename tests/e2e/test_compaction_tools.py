"""What our cleaner leaves, under Apache Kafka's own programs: DumpLogSegments and a broker."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from bench.peers.kafka import ApacheKafka, run_tool
from tests.e2e.kafka_files import (
    DUMP,
    FIRST_TIMESTAMP,
    create_topic,
    log_context,
    segment_files,
    topic_id,
)
from tests.unit.storage.helpers import close
from tidelog import model
from tidelog.config import TopicConfig
from tidelog.model import Codec
from tidelog.protocol.batches import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    BatchHeader,
    Record,
    decode_records,
    encode_batch,
    encode_control_batch,
)
from tidelog.storage.admission import admit
from tidelog.storage.compaction import Clean
from tidelog.storage.dirt import measure
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.storage.losses import Expectation
from tidelog.storage.recovery import Opening
from tidelog.storage.verification import COORDINATOR

pytestmark = pytest.mark.java

CONFIG = TopicConfig(
    segment_bytes=16_384, index_interval_bytes=128, cleanup_compact=True, cleanup_delete=False
)


def cleaned_log(directory: Path, identity: UUID | None = None) -> tuple[Log, list[BatchHeader]]:
    """Every codec, tombstones, transactions and a producer that lives, cleaned twice."""
    directory.mkdir(parents=True, exist_ok=True)
    partition = model.TopicPartition(directory.name.rpartition("-")[0], 0)
    new, expected = NewLog(identity or uuid4(), replace(CONFIG)), Expectation(str(directory))
    log = Log.open(Opening(partition, new, log_context(), expected, clean=False))
    for number in range(400):
        append(log, number, list(Codec)[number % 5])
        if number % 40 == 39:
            in_transaction(log, number)
        if number in (200, 399):
            clean(log)
    append(log, 400, Codec.NONE)
    headers = [header for segment in log.segments for _, header in segment.batches_from(0)]
    return log, headers


def append(log: Log, number: int, codec: Codec) -> None:
    records = [
        Record(
            0,
            FIRST_TIMESTAMP + number,
            b"key-%d" % ((number * 7 + each) % 50),
            None if (number + each) % 11 == 0 else b"value-%d" % number,
            [("colour", b"blue")] if each else [],
        )
        for each in range(3)
    ]
    batch = encode_batch(
        records, codec=codec, producer_id=4_000, producer_epoch=0, base_sequence=3 * number
    )
    admitted = admit(memoryview(batch), TopicConfig(), FIRST_TIMESTAMP)
    log.append(admitted, number // 150, FIRST_TIMESTAMP)


def in_transaction(log: Log, number: int) -> None:
    end = CONTROL_ABORT if number % 80 == 79 else CONTROL_COMMIT
    records = [Record(0, FIRST_TIMESTAMP, b"transaction-%d" % end, b"%d" % number)]
    batch = encode_batch(
        records, producer_id=4_001, producer_epoch=0, base_sequence=number // 40, transactional=True
    )
    log.append(
        admit(memoryview(batch), TopicConfig(), FIRST_TIMESTAMP), number // 150, FIRST_TIMESTAMP
    )
    marker = encode_control_batch(
        end, producer_id=4_001, producer_epoch=0, coordinator_epoch=0, timestamp=FIRST_TIMESTAMP
    )
    admitted = admit(memoryview(marker), TopicConfig(), FIRST_TIMESTAMP, from_client=False)
    log.append(admitted, number // 150, FIRST_TIMESTAMP, COORDINATOR)


def clean(log: Log) -> None:
    log.roll_if_due(FIRST_TIMESTAMP * 2)
    plan = log.flush_plan()
    plan.run()
    log.flushed(plan)
    work = Clean(log, measure(log, log.log_end_offset, 0), 1 << 20, threading.Event())
    work.read_keys()
    for group in work.groups():
        work.swap(group, work.rewrite(group))
    work.finish()
    work.release()


def data_records(log: Log) -> list[Record]:
    return [
        record
        for segment in log.segments
        for position, header in segment.batches_from(0)
        if not header.is_control
        for record in decode_records(segment.read_batch(position, header))
    ]


def test_dump_log_segments_reads_what_the_cleaner_left(tmp_path: Path) -> None:
    directory = tmp_path / "ours-0"
    log, headers = cleaned_log(directory)
    records = data_records(log)
    close(log)
    files = ",".join(str(file) for file in segment_files(directory, "log"))

    done = run_tool(DUMP, "--deep-iteration", "--print-data-log", "--files", files)

    assert done.returncode == 0, done.stdout + done.stderr
    # It remarks on every gap, as it does on those of Kafka's own cleaner.
    gap = r"Non-consecutive offsets in \S+\n(  -?\d+ is followed by \d+\n)+"
    assert re.sub(gap, "", done.stderr) == ""
    shown = re.findall(
        r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* isvalid: true$",
        done.stdout, re.MULTILINE,
    )  # fmt: skip
    assert shown == [
        (str(each.base_offset), str(each.last_offset), str(each.record_count)) for each in headers
    ]
    assert "isvalid: false" not in done.stdout
    assert [each for each in headers if not each.record_count], "an empty batch was to be tried"
    horizons = re.findall(r"deleteHorizonMs: OptionalLong\[(\d+)\]", done.stdout)
    assert horizons == [str(each.first_timestamp) for each in headers if each.has_delete_horizon]
    assert len(horizons) > 2
    found = re.findall(r"^\| offset: (\d+) CreateTime: (\d+) .* key: (key\S+)", done.stdout, re.M)
    assert found == [
        (str(each.offset), str(each.timestamp), (each.key or b"").decode())
        for each in records
        if (each.key or b"").startswith(b"key")
    ]


def test_dump_log_segments_finds_the_indexes_of_cleaned_segments_sound(tmp_path: Path) -> None:
    directory = tmp_path / "ours-0"
    log, _ = cleaned_log(directory)
    close(log)
    indexes = segment_files(directory, "index") + segment_files(directory, "timeindex")
    files = ",".join(map(str, indexes))

    checked = run_tool(DUMP, "--index-sanity-check", "--files", files)
    verified = run_tool(DUMP, "--verify-index-only", "--files", files)

    passed = checked.stdout.count("passed sanity check")
    assert passed + checked.stdout.count("is empty") == len(indexes)
    assert passed > len(indexes) // 2
    for complaint in ("Found", "Mismatch", "non-monotonic", "out of order", "corrupt"):
        assert complaint not in verified.stdout + verified.stderr


@pytest.mark.long
def test_apache_kafka_serves_what_our_cleaner_left(tmp_path: Path) -> None:
    """After a clean stop, and through its own recovery."""
    kafka = ApacheKafka(tmp_path / "kafka")
    with kafka:
        create_topic(kafka, "cleaned", {"cleanup.policy": "compact"})
    directory = kafka.log_dir / "cleaned-0"
    identity = topic_id(directory)
    for file in directory.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    log, _ = cleaned_log(directory, identity)
    aborted = [first for _, first in log.segments.aborted_transactions(0, log.log_end_offset)]
    expected = [
        (each.offset, each.key, each.value, each.timestamp)
        for each in data_records(log)
        if each.offset not in aborted
    ]
    close(log)
    with kafka:
        assert consume(kafka) == expected
    (kafka.log_dir / ".kafka_cleanshutdown").unlink()
    with kafka:
        assert consume(kafka) == expected


def consume(kafka: ApacheKafka) -> list[tuple[int, bytes, bytes | None, int]]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition("cleaned", 0, OFFSET_BEGINNING)])
    found = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append((message.offset(), message.key(), message.value(), message.timestamp()[1]))
    finally:
        consumer.close()
