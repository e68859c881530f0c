"""Our files under Kafka's own tools, and Kafka's files under our log: the on-disk format is one.

Kafka's programs judge what `storage.Log` writes (DumpLogSegments, the checks of the log loader, a
whole broker that serves our segments), and `storage.Log` reads what an Apache Kafka broker wrote.
"""

import re
import shutil
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peers.kafka import ApacheKafka, run_tool
from tidelog import model
from tidelog.host.clock import SystemClock
from tidelog.host.disk import SystemDisk
from tidelog.host.random import SystemRandom
from tidelog.model import Codec
from tidelog.protocol.batches import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    Record,
    decode_records,
    encode_batch,
    encode_control_batch,
    iterate_batches,
)
from tidelog.storage.admission import AdmissionRules, admit
from tidelog.storage.file_cache import FileCache
from tidelog.storage.log import Log, LogConfig, LogContext

pytestmark = pytest.mark.java

FIRST_TIMESTAMP = 1_700_000_000_000
DUMP = "org.apache.kafka.tools.DumpLogSegments"


@pytest.fixture
def context() -> Iterator[LogContext]:
    disk = SystemDisk()
    files = FileCache(disk, 100)
    yield LogContext(
        disk=disk,
        clock=SystemClock(),
        files=files,
        random=SystemRandom(),
        run_later=lambda _seconds, function: function(),
        on_offline=lambda path, error: pytest.fail(f"{path}: {error}"),
    )


class Writer:
    """Appends to one of our logs as a leader does, and remembers what was appended."""

    def __init__(self, directory: Path, context: LogContext, topic_id: UUID | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        config = LogConfig(segment_bytes=16_384, index_interval_bytes=1_024)
        partition = model.TopicPartition(directory.name.rpartition("-")[0], 0)
        self.log = Log.open(
            str(directory), partition, topic_id or uuid4(), config, context, clean=False
        )
        self.records: list[Record] = []

    def append(
        self,
        codec: Codec,
        count: int,
        *,
        epoch: int = 0,
        producer: tuple[int, int] | None = None,
        transactional: bool = False,
    ) -> None:
        """A batch of `count` records; `producer` is (producer id, first sequence)."""
        first = self.log.log_end_offset
        records = [self._record(first + number) for number in range(count)]
        producer_id, sequence = producer or (-1, -1)
        batch = encode_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        admitted = admit(memoryview(batch), AdmissionRules(), SystemClock().wall_ms())
        result = self.log.append(admitted, epoch, SystemClock().wall_ms())
        assert result.base_offset == first
        self.records += records

    def end_transaction(self, control_type: int, producer_id: int, *, epoch: int = 0) -> None:
        marker = encode_control_batch(
            control_type,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=FIRST_TIMESTAMP + self.log.log_end_offset,
        )
        now_ms = SystemClock().wall_ms()
        admitted = admit(memoryview(marker), AdmissionRules(), now_ms, from_client=False)
        self.log.append(admitted, epoch, now_ms, from_client=False)

    @staticmethod
    def _record(offset: int) -> Record:
        key = f"key-{offset}".encode() if offset % 3 else None
        value = f"value-{offset}-".encode() + b"x" * (offset % 200) if offset % 7 else None
        headers = [("colour", b"blue"), ("empty", None)] if offset % 5 == 0 else []
        return Record(offset, FIRST_TIMESTAMP + offset, key, value, headers)


def write_everything(directory: Path, context: LogContext, topic_id: UUID | None = None) -> Writer:
    """A log with all that a partition can hold: every codec, several segments and leader epochs,
    an idempotent producer, a committed and an aborted transaction."""
    writer = Writer(directory, context, topic_id)
    for number in range(40):
        for codec in Codec:
            writer.append(codec, 5, epoch=number // 20)
        writer.append(Codec.NONE, 2, epoch=number // 20, producer=(4_000, number * 2))
    writer.append(Codec.ZSTD, 3, epoch=1, producer=(4_001, 0), transactional=True)
    writer.end_transaction(CONTROL_COMMIT, 4_001, epoch=1)
    writer.append(Codec.LZ4, 3, epoch=1, producer=(4_001, 3), transactional=True)
    writer.end_transaction(CONTROL_ABORT, 4_001, epoch=1)
    writer.append(Codec.GZIP, 1, epoch=1)
    return writer


def dump(*arguments: str, files: list[Path]) -> str:
    """What DumpLogSegments prints of the files, once it has complained about nothing."""
    done = run_tool(DUMP, *arguments, "--files", ",".join(str(file) for file in files))
    assert done.returncode == 0, done.stdout + done.stderr
    assert complaints(done.stderr) == ""
    return done.stdout


def complaints(stderr: str) -> str:
    """Kafka 4.3 finds a gap before every segment that does not begin at 0, its own ones too (see
    the test of that); what else it says is left."""
    ours = r"Non-consecutive offsets in \S*/(0*(\d+)).log\n  -1 is followed by \2\n"
    return re.sub(ours, "", stderr)


def segment_files(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.glob(f"*.{suffix}"))


# ---- Kafka reads ours -----------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_dump_log_segments_reads_every_record_of_ours(
    tmp_path: Path, context: LogContext, codec: Codec
) -> None:
    directory = tmp_path / "ours-0"
    writer = Writer(directory, context)
    for _ in range(60):
        writer.append(codec, 20)
    writer.log.close()
    logs = segment_files(directory, "log")
    assert len(logs) > 1, "the log must have rolled for this to say much"

    shown = dump("--deep-iteration", "--print-data-log", files=logs)

    batches = re.findall(r"^baseOffset: .*$", shown, re.MULTILINE)
    assert len(batches) == 60
    assert all(f"compresscodec: {codec.name.lower()}" in line for line in batches)
    assert all("isvalid: true" in line for line in batches)
    records = re.findall(r"^\| offset: (\d+) CreateTime: (\d+) .*$", shown, re.MULTILINE)
    assert records == [(str(each.offset), str(each.timestamp)) for each in writer.records]
    for record in writer.records:
        key = "" if record.key is None else f" key: {record.key.decode()}"
        payload = "" if record.value is None else f" payload: {record.value.decode()}"
        headers = "colour,empty" if record.headers else ""
        pattern = rf"offset: {record.offset} .* headerKeys: \[{headers}\]{key}{payload}$"
        assert re.search(pattern, shown, re.MULTILINE), pattern


def test_dump_log_segments_finds_our_indexes_sound(tmp_path: Path, context: LogContext) -> None:
    directory = tmp_path / "ours-0"
    write_everything(directory, context).log.close()
    indexes = segment_files(directory, "index") + segment_files(directory, "timeindex")
    assert len(indexes) > 4

    checked = dump("--index-sanity-check", files=indexes)
    verified = dump("--verify-index-only", files=indexes)
    printed = dump(files=segment_files(directory, "index"))

    assert checked.count("passed sanity check") == len(indexes)
    for complaint in ("Found", "Mismatch", "non-monotonic", "out of order", "corrupt"):
        assert complaint not in verified, verified
    assert len(re.findall(r"^offset: \d+ position: \d+$", printed, re.MULTILINE)) > 4


def test_dump_log_segments_reads_our_producer_snapshots_and_aborted_transactions(
    tmp_path: Path, context: LogContext
) -> None:
    directory = tmp_path / "ours-0"
    writer = write_everything(directory, context)
    writer.log.close()

    snapshot = dump(files=segment_files(directory, "snapshot")[-1:])
    aborted = dump(files=segment_files(directory, "txnindex"))

    assert "producerId: 4000 producerEpoch: 0 coordinatorEpoch: -1" in snapshot
    assert "lastSequence: 79" in snapshot
    assert "producerId: 4001 producerEpoch: 0 coordinatorEpoch: 0" in snapshot
    first = writer.records[-4].offset
    assert re.search(rf"producerId: 4001 firstOffset: {first} lastOffset: {first + 3}", aborted)


def test_a_data_directory_of_ours_is_served_by_apache_kafka(
    tmp_path: Path, context: LogContext
) -> None:
    """Kafka's log loader takes our files as they are after a clean stop, and through its recovery
    after a crash; then it hands out every record and goes on where we stopped."""
    kafka = ApacheKafka(tmp_path / "kafka")
    with kafka:
        for topic in ("clean", "crashed"):
            create_topic(kafka, topic, {})
    topic_ids = {name: topic_id(kafka.log_dir / f"{name}-0") for name in ("clean", "crashed")}
    expected, ends = {}, {}
    for name in ("clean", "crashed"):
        directory = kafka.log_dir / f"{name}-0"
        remove_segments(directory)
        writer = write_everything(directory, context, topic_ids[name])
        writer.log.close()
        expected[name], ends[name] = writer.records, writer.log.log_end_offset

    with kafka:
        assert_records(consume_all(kafka, "clean"), committed_only(expected["clean"]))
    assert problems(kafka, "clean-0") == []

    (kafka.log_dir / ".kafka_cleanshutdown").unlink()
    with kafka:
        assert_records(consume_all(kafka, "crashed"), committed_only(expected["crashed"]))
        for name in ("clean", "crashed"):
            assert produce_one(kafka, name) == ends[name]
    assert problems(kafka, "crashed-0") == []


def remove_segments(directory: Path) -> None:
    for file in directory.iterdir():
        if file.name != "partition.metadata":
            file.unlink()


def topic_id(directory: Path) -> UUID:
    match = re.search(r"topic_id: (\S+)", (directory / "partition.metadata").read_text())
    assert match is not None
    return UUID(bytes=urlsafe_b64decode(match[1] + "=="))


def committed_only(records: list[Record]) -> list[Record]:
    """Without the aborted transaction, which `write_everything` puts before its last record."""
    return records[:-4] + records[-1:]


def problems(kafka: ApacheKafka, partition: str) -> list[str]:
    """Lines of Kafka's log that speak of the partition's files as damaged."""
    words = re.compile(r"corrupt|WARN|ERROR", re.IGNORECASE)
    lines = kafka.output.read_text().splitlines()
    return [line for line in lines if partition in line and words.search(line)]


def create_topic(kafka: ApacheKafka, name: str, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)


def produce_one(kafka: ApacheKafka, topic: str) -> int:
    offsets: list[int | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, b"one more", on_delivery=delivered)
    assert producer.flush(30) == 0
    producer.close()
    assert offsets[0] is not None
    return offsets[0]


def consume_all(kafka: ApacheKafka, topic: str) -> list[Message]:
    """Every committed record of the topic's only partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages: list[Message] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, f"nothing for 30 s after {len(messages)} records"
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                return messages
            else:
                raise AssertionError(error)
    finally:
        consumer.close()


def assert_records(messages: list[Message], expected: list[Record]) -> None:
    assert [message.offset() for message in messages] == [record.offset for record in expected]
    for message, record in zip(messages, expected, strict=True):
        assert message.key() == record.key
        assert message.value() == record.value
        assert message.timestamp()[1] == record.timestamp
        assert (message.headers() or []) == record.headers


# ---- we read Kafka's ------------------------------------------------------------------------

SEGMENT_BYTES = 1_048_576  # the least that Kafka 4 accepts


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


KAFKA_RECORDS = 3_000


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
    partition, settings = model.TopicPartition(topic, 0), LogConfig(segment_bytes=SEGMENT_BYTES)
    return Log.open(str(directory), partition, topic_id(directory), settings, context, clean=clean)


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
    found = log.offset_for_timestamp(FIRST_TIMESTAMP + 1_234)
    log.close()

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
    log.close()
    assert codecs == {codec}


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "recovered"])
def test_our_log_knows_the_transactions_of_kafkas(
    kafka_made: Path, tmp_path: Path, context: LogContext, clean: bool
) -> None:
    log = open_copy(kafka_made, "transactions", tmp_path, context, clean=clean)
    values = [record.value for record in read_all(log) if record.value and b"-" in record.value]
    aborted = log.aborted_transactions(0, log.log_end_offset)
    log.high_watermark_moved(log.log_end_offset)
    unstable = log.first_unstable_offset
    log.close()

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
