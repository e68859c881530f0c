"""Our files under Kafka's own programs: DumpLogSegments, StorageTool, and a whole broker.

They judge what `storage.Log` and a broker of ours wrote; the other way round is
`test_kafka_files`.
"""

import re
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.peers.kafka import ApacheKafka, run_tool
from bench.peers.tidelog import TidelogBroker
from tests.e2e.kafka_files import (
    FIRST_TIMESTAMP,
    create_topic,
    dump,
    log_context,
    segment_files,
    topic_id,
)
from tests.unit.storage.helpers import close
from tidelog import model
from tidelog.config import TopicConfig
from tidelog.host.clock import SystemClock
from tidelog.model import Codec
from tidelog.protocol.batches import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    Record,
    encode_batch,
    encode_control_batch,
)
from tidelog.storage.admission import admit
from tidelog.storage.log import Log
from tidelog.storage.log_context import LogContext, NewLog
from tidelog.storage.losses import Expectation
from tidelog.storage.recovery import Opening
from tidelog.storage.verification import COORDINATOR

pytestmark = pytest.mark.java


@pytest.fixture
def context() -> LogContext:
    return log_context()


class Writer:
    """Appends to one of our logs as a leader does, and remembers what was appended."""

    def __init__(self, directory: Path, context: LogContext, topic_id: UUID | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        config = TopicConfig(segment_bytes=16_384, index_interval_bytes=1_024)
        partition = model.TopicPartition(directory.name.rpartition("-")[0], 0)
        new, expected = NewLog(topic_id or uuid4(), config), Expectation(str(directory))
        self.log = Log.open(Opening(partition, new, context, expected, clean=False))
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
        admitted = admit(memoryview(batch), TopicConfig(), SystemClock().wall_ms())
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
        admitted = admit(memoryview(marker), TopicConfig(), now_ms, from_client=False)
        self.log.append(admitted, epoch, now_ms, COORDINATOR)

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


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_dump_log_segments_reads_every_record_of_ours(
    tmp_path: Path, context: LogContext, codec: Codec
) -> None:
    directory = tmp_path / "ours-0"
    writer = Writer(directory, context)
    for _ in range(60):
        writer.append(codec, 20)
    close(writer.log)
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
    close(write_everything(directory, context).log)
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
    close(writer.log)

    snapshot = dump(files=segment_files(directory, "snapshot")[-1:])
    aborted = dump(files=segment_files(directory, "txnindex"))

    assert "producerId: 4000 producerEpoch: 0 coordinatorEpoch: -1" in snapshot
    assert "lastSequence: 79" in snapshot
    assert "producerId: 4001 producerEpoch: 0 coordinatorEpoch: 0" in snapshot
    first = writer.records[-4].offset
    assert re.search(rf"producerId: 4001 firstOffset: {first} lastOffset: {first + 3}", aborted)


def test_what_a_whole_broker_of_ours_wrote_stands_under_kafkas_tools(tmp_path: Path) -> None:
    """Every codec through the broker's front door, then a clean stop."""
    with TidelogBroker(tmp_path, {"auto.create.topics.enable": "true"}) as broker:
        for codec in Codec:
            settings = {"compression.type": codec.name.lower(), "enable.idempotence": True}
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
            for number in range(100):
                producer.produce("orders", b"x" * number)
            assert producer.flush(30) == 0
            producer.close()
    directory = broker.log_dir / "orders-0"
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"process.roles=broker\nnode.id=0\nlog.dirs={broker.log_dir}\n"
        "controller.quorum.voters=1@127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n"
    )

    shown = dump("--deep-iteration", files=segment_files(directory, "log"))
    producers = dump(files=segment_files(directory, "snapshot")[-1:])
    storage = run_tool("kafka.tools.StorageTool", "info", "-c", str(properties))

    codecs = re.findall(r"compresscodec: (\w+) crc: \d+ isvalid: true", shown)
    assert set(codecs) == {codec.name.lower() for codec in Codec}
    offsets = re.findall(r"^\| offset: (\d+) ", shown, re.MULTILINE)
    assert offsets == [str(number) for number in range(100 * len(Codec))]
    assert len(re.findall(r"producerId: \d+ producerEpoch: 0 ", producers)) == len(Codec)
    assert storage.returncode == 0, storage.stdout + storage.stderr
    assert "Found metadata: {cluster.id=" in storage.stdout


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
        close(writer.log)
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


def committed_only(records: list[Record]) -> list[Record]:
    """Without the aborted transaction, which `write_everything` puts before its last record."""
    return records[:-4] + records[-1:]


def problems(kafka: ApacheKafka, partition: str) -> list[str]:
    """Lines of Kafka's log that speak of the partition's files as damaged."""
    words = re.compile(r"corrupt|WARN|ERROR", re.IGNORECASE)
    lines = kafka.output.read_text().splitlines()
    return [line for line in lines if partition in line and words.search(line)]


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
