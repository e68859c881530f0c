"""Consuming by assignment, without groups, and looking offsets up."""

from __future__ import annotations

import time

from tests.compat.cases.registry import OFFSET_OUT_OF_RANGE, Trial, case, refused
from tests.compat.wire import CODEC_NAMES, GZIP, NONE, Record

SECTION = "Consume"
BASE_MS = int(time.time() * 1000) - 3_600_000
STEP_MS = 1000


def _seeded(trial: Trial, batches: int = 3, size: int = 10, codec: int = NONE) -> str:
    """A topic with `batches` batches; record n has the value n and is n seconds after BASE_MS."""
    topic = trial.topic()
    for first in range(0, batches * size, size):
        numbers = range(first, first + size)
        records = [Record(b"%d" % n, timestamp_ms=BASE_MS + n * STEP_MS) for n in numbers]
        assert trial.wire.produce(topic, records, codec=codec) == first
    return topic


def _numbers(records: list[Record]) -> list[int]:
    for record in records:
        assert record.value == b"%d" % record.offset
        assert record.timestamp_ms == BASE_MS + record.offset * STEP_MS
    return [record.offset for record in records]


@case(SECTION, "from the start")
def consume_start(trial: Trial) -> None:
    topic = _seeded(trial)
    with trial.driver.consumer(topic, {"at": "earliest"}) as consumer:
        assert _numbers(consumer.read(30)) == list(range(30))


@case(SECTION, "from the end: only what comes later")
def consume_end(trial: Trial) -> None:
    topic = _seeded(trial)
    with trial.driver.consumer(topic, {"at": "latest"}) as consumer:
        trial.wire.produce(topic, [Record(b"30", timestamp_ms=BASE_MS + 30 * STEP_MS)])
        assert _numbers(consumer.read(1)) == [30]
        trial.wire.produce(topic, [Record(b"31", timestamp_ms=BASE_MS + 31 * STEP_MS)])
        assert _numbers(consumer.read(1)) == [31]


@case(SECTION, "from an offset")
def consume_offset(trial: Trial) -> None:
    topic = _seeded(trial)
    with trial.driver.consumer(topic, {"at": "offset", "offset": 20}) as consumer:
        assert _numbers(consumer.read(10)) == list(range(20, 30))


@case(SECTION, "from an offset inside a compressed batch")
def consume_inside_batch(trial: Trial) -> None:
    topic = _seeded(trial, codec=GZIP)
    with trial.driver.consumer(topic, {"at": "offset", "offset": 15}) as consumer:
        assert _numbers(consumer.read(15)) == list(range(15, 30))


@case(SECTION, "from a time, exact inside a compressed batch")
def consume_time(trial: Trial) -> None:
    topic = _seeded(trial, codec=GZIP)
    start = {"at": "timestamp", "timestamp_ms": BASE_MS + 17 * STEP_MS - 1}
    with trial.driver.consumer(topic, start) as consumer:
        assert _numbers(consumer.read(13)) == list(range(17, 30))


@case(SECTION, "rewind: read, seek back, read again")
def consume_rewind(trial: Trial) -> None:
    topic = _seeded(trial)
    with trial.driver.consumer(topic, {"at": "earliest"}) as consumer:
        assert _numbers(consumer.read(30)) == list(range(30))
        consumer.seek(0, 3)
        assert _numbers(consumer.read(27)) == list(range(3, 30))
        consumer.seek(0, 0)
        assert _numbers(consumer.read(5)) == list(range(5))


@case(SECTION, "several partitions at once, each in order")
def consume_all_partitions(trial: Trial) -> None:
    topic = trial.topic(partitions=3)
    for partition in range(3):
        records = [Record(b"%d-%d" % (partition, number)) for number in range(20)]
        trial.wire.produce(topic, records, partition=partition)
    with trial.driver.consumer(topic, {"at": "earliest"}, partitions=range(3)) as consumer:
        read = consumer.read(60)
    for partition in range(3):
        values = [record.value for record in read if record.partition == partition]
        assert values == [b"%d-%d" % (partition, number) for number in range(20)]


@case(SECTION, "with `isolation.level=read_committed`")
def consume_read_committed(trial: Trial) -> None:
    topic = _seeded(trial)
    start = {"at": "earliest"}
    with trial.driver.consumer(topic, start, isolation="read_committed") as consumer:
        assert _numbers(consumer.read(30)) == list(range(30))


@case(SECTION, "from an empty partition: nothing, and no error")
def consume_nothing(trial: Trial) -> None:
    topic = trial.topic()
    with trial.driver.consumer(topic, {"at": "earliest"}) as consumer:
        assert consumer.read(1, timeout_ms=700) == []
        trial.wire.produce(topic, [Record(b"0", timestamp_ms=BASE_MS)])
        assert _numbers(consumer.read(1)) == [0]


@case(SECTION, "from an offset that was deleted: goes on where the log starts")
def consume_after_trim(trial: Trial) -> None:
    topic = _seeded(trial)
    trial.wire.delete_records(topic, 0, 12)
    start = {"at": "offset", "offset": 5}
    with trial.driver.consumer(topic, start, reset="earliest") as consumer:
        assert _numbers(consumer.read(18)) == list(range(12, 30))


@case(SECTION, "from an offset beyond the end, without a reset rule: refused")
def consume_out_of_range(trial: Trial) -> None:
    topic = _seeded(trial)
    with (
        refused(OFFSET_OUT_OF_RANGE),
        trial.driver.consumer(topic, {"at": "offset", "offset": 1000}) as consumer,
    ):
        consumer.read(1)


@case(SECTION, "batches of mixed codecs in one partition")
def consume_other_codecs(trial: Trial) -> None:
    topic = trial.topic()
    values = []
    for codec in CODEC_NAMES:
        if trial.can(f"produce_{codec}"):
            value = codec.encode() * 100
            values.append(value)
            trial.driver.deliver(topic, [Record(value, partition=0)], codec=codec)
    with trial.driver.consumer(topic, {"at": "earliest"}) as consumer:
        assert [record.value for record in consumer.read(len(values))] == values


@case(SECTION, "batches that the broker compressed itself, in every codec")
def consume_recompressed(trial: Trial) -> None:
    value = b"a value to be compressed by the broker " * 5000
    for codec in CODEC_NAMES[1:]:
        topic = trial.topic(configs={"compression.type": codec})
        for _ in range(2):
            trial.wire.produce(topic, [Record(value), Record(b"small")])
        assert {batch.codec for batch in trial.wire.fetch_batches(topic)} == {codec}
        with trial.driver.consumer(topic, {"at": "earliest"}) as consumer:
            read = consumer.read(4)
        assert [record.value for record in read] == [value, b"small"] * 2


@case(SECTION, "records larger than the consumer's `max.partition.fetch.bytes`")
def consume_small_fetches(trial: Trial) -> None:
    topic = trial.topic()
    values = [b"%d" % number * 30_000 for number in range(5)]
    for value in values:
        trial.wire.produce(topic, [Record(value)])
    with trial.driver.consumer(topic, {"at": "earliest"}, fetch_bytes=1000) as consumer:
        assert [record.value for record in consumer.read(5)] == values


@case(SECTION, "look up the first and the next offset")
def offset_earliest_latest(trial: Trial) -> None:
    topic = _seeded(trial)
    assert trial.driver.list_offset(topic, 0, "earliest") == 0
    assert trial.driver.list_offset(topic, 0, "latest") == 30


@case(SECTION, "look up an offset by time, exact inside a compressed batch")
def offset_by_time(trial: Trial) -> None:
    topic = _seeded(trial, codec=GZIP)
    assert trial.driver.list_offset(topic, 0, BASE_MS + 14 * STEP_MS) == 14
    assert trial.driver.list_offset(topic, 0, BASE_MS + 14 * STEP_MS + 1) == 15
    assert trial.driver.list_offset(topic, 0, BASE_MS - 1) == 0


@case(SECTION, "look up a time after the last record: none")
def offset_after_last_time(trial: Trial) -> None:
    topic = _seeded(trial)
    assert trial.driver.list_offset(topic, 0, BASE_MS + 30 * STEP_MS) == -1


@case(SECTION, "look up the record with the highest timestamp")
def offset_of_max_timestamp(trial: Trial) -> None:
    topic = trial.topic()
    order = [3, 9, 1, 4]
    records = [Record(b"value", timestamp_ms=BASE_MS + n * STEP_MS) for n in order]
    trial.wire.produce(topic, records)
    assert trial.driver.list_offset(topic, 0, "max_timestamp") == 1
