"""Producing: codecs, acknowledgements, idempotence, and what a record may hold.

What was stored is looked at with a fetch of our own, not through the client.
"""

from __future__ import annotations

import time

from tests.compat.cases.registry import (
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    UNKNOWN_TOPIC_OR_PARTITION,
    Trial,
    case,
    check_refused,
)
from tests.compat.wire import Record
from tests.waiting import eventually

SECTION = "Produce"
FROM_START = {"at": "earliest"}


def _content(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.headers


def _check_stored(trial: Trial, topic: str, records: list[Record]) -> None:
    """The partition holds these records, and the client reads them as they were sent."""
    stored = trial.wire.fetch_records(topic)
    assert [_content(record) for record in stored] == [_content(record) for record in records]
    if trial.consumes:
        with trial.driver.consumer(topic, FROM_START) as consumer:
            read = consumer.read(len(records))
        assert [_content(record) for record in read] == [_content(record) for record in records]


def _check_codec(trial: Trial, codec: str) -> None:
    topic = trial.topic()
    values = [b"record %d " % number * 20 for number in range(60)]
    records = [Record(value, key=b"key", partition=0) for value in values]
    deliveries = trial.driver.deliver(topic, records, codec=codec)
    assert [delivery.offset for delivery in deliveries] == list(range(60))
    batches = trial.wire.fetch_batches(topic)
    assert {batch.codec for batch in batches} == {codec}
    assert sum(batch.record_count for batch in batches) == 60
    if trial.consumes:
        with trial.driver.consumer(topic, FROM_START) as consumer:
            assert [record.value for record in consumer.read(60)] == values


@case(SECTION, "uncompressed, and stored so")
def produce_none(trial: Trial) -> None:
    _check_codec(trial, "none")


@case(SECTION, "gzip, and stored so")
def produce_gzip(trial: Trial) -> None:
    _check_codec(trial, "gzip")


@case(SECTION, "snappy, and stored so")
def produce_snappy(trial: Trial) -> None:
    _check_codec(trial, "snappy")


@case(SECTION, "lz4, and stored so")
def produce_lz4(trial: Trial) -> None:
    _check_codec(trial, "lz4")


@case(SECTION, "zstd, and stored so")
def produce_zstd(trial: Trial) -> None:
    _check_codec(trial, "zstd")


@case(SECTION, "uncompressed to a topic with `compression.type=gzip`: stored as gzip")
def produce_topic_codec(trial: Trial) -> None:
    topic = trial.topic(configs={"compression.type": "gzip"})
    records = [Record(b"value" * 50, key=b"key", partition=0) for _ in range(20)]
    trial.driver.deliver(topic, records)
    assert {batch.codec for batch in trial.wire.fetch_batches(topic)} == {"gzip"}
    _check_stored(trial, topic, records)


def _check_acks(trial: Trial, acks: int) -> None:
    topic = trial.topic()
    records = [Record(b"value %d" % number, partition=0) for number in range(10)]
    deliveries = trial.driver.deliver(topic, records, acks=acks)
    if acks != 0:
        assert [delivery.offset for delivery in deliveries] == list(range(10))
    eventually(lambda: len(trial.wire.fetch_records(topic)) == 10)
    _check_stored(trial, topic, records)


@case(SECTION, "acks=0")
def produce_acks_0(trial: Trial) -> None:
    _check_acks(trial, 0)


@case(SECTION, "acks=1")
def produce_acks_1(trial: Trial) -> None:
    _check_acks(trial, 1)


@case(SECTION, "acks=all")
def produce_acks_all(trial: Trial) -> None:
    _check_acks(trial, -1)


@case(SECTION, "idempotent: producer ids and sequences are stored")
def produce_idempotent(trial: Trial) -> None:
    topic = trial.topic()
    producer_ids = []
    for first in (0, 20):
        records = [Record(b"value", partition=0) for _ in range(20)]
        deliveries = trial.driver.deliver(topic, records, idempotent=True)
        assert [delivery.offset for delivery in deliveries] == list(range(first, first + 20))
        sequence = 0
        for batch in trial.wire.fetch_batches(topic, offset=first):
            assert batch.producer_id >= 0
            assert batch.producer_epoch >= 0
            assert batch.base_sequence == sequence
            sequence += batch.record_count
        producer_ids.append(batch.producer_id)
    # kcat starts a process for each run of records, but never may two share an id.
    assert producer_ids[0] != producer_ids[1]


@case(SECTION, "keys: the same key goes to the same partition")
def produce_keys(trial: Trial) -> None:
    topic = trial.topic(partitions=4)
    keys = [b"key-%d" % number for number in range(12)]
    records = [Record(b"value", key=key) for key in keys * 2]
    deliveries = trial.driver.deliver(topic, records)
    partitions = [delivery.partition for delivery in deliveries]
    assert partitions[:12] == partitions[12:]
    assert len(set(partitions)) > 1
    stored = {
        (partition, record.key)
        for partition in range(4)
        for record in trial.wire.fetch_records(topic, partition)
    }
    assert stored == set(zip(partitions[:12], keys, strict=True))


@case(SECTION, "headers, in order, one of them empty")
def produce_headers(trial: Trial) -> None:
    topic = trial.topic()
    headers: list[tuple[str, bytes | None]] = [
        ("trace", b"4bf92f35"),
        ("größe", "ünïcödé".encode()),
        ("empty", b""),
    ]
    records = [
        Record(b"one", key=b"k", headers=headers, partition=0),
        Record(b"two", key=b"k", headers=headers[:1], partition=0),
        Record(b"three", key=b"k", partition=0),
    ]
    trial.driver.deliver(topic, records)
    _check_stored(trial, topic, records)


@case(SECTION, "null and empty keys and values, each kept as what it is")
def produce_null_and_empty(trial: Trial) -> None:
    topic = trial.topic()
    records = [
        Record(b"value", key=None, partition=0),
        Record(b"value", key=b"", partition=0),
        Record(b"", key=b"key", partition=0),
        Record(None, key=b"key", partition=0),
        Record(b"", key=b"", partition=0),
    ]
    trial.driver.deliver(topic, records)
    _check_stored(trial, topic, records)


@case(SECTION, "key and value both null")
def produce_null_key_and_value(trial: Trial) -> None:
    topic = trial.topic()
    records = [Record(None, partition=0), Record(b"", partition=0)]
    trial.driver.deliver(topic, records)
    _check_stored(trial, topic, records)


@case(SECTION, "bytes that are not text")
def produce_binary(trial: Trial) -> None:
    topic = trial.topic()
    # Not the two bytes that kcat is told to split its input at.
    every_byte = bytes(byte for byte in range(1, 256) if byte not in (0x1E, 0x1F))
    records = [Record(every_byte, key=every_byte[::-1], partition=0)]
    trial.driver.deliver(topic, records)
    _check_stored(trial, topic, records)


@case(SECTION, "timestamps that the producer sets")
def produce_timestamps(trial: Trial) -> None:
    topic = trial.topic()
    now_ms = int(time.time() * 1000)
    timestamps = [now_ms - 5000, now_ms - 9000, now_ms - 1]
    records = [Record(b"value", partition=0, timestamp_ms=timestamp) for timestamp in timestamps]
    trial.driver.deliver(topic, records)
    stored = trial.wire.fetch_records(topic)
    assert [record.timestamp_ms for record in stored] == timestamps
    if trial.consumes:
        with trial.driver.consumer(topic, FROM_START) as consumer:
            assert [record.timestamp_ms for record in consumer.read(3)] == timestamps


def _check_log_append_time(trial: Trial, codec: str) -> None:
    topic = trial.topic(configs={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    record = Record(b"value" * 50, partition=0, timestamp_ms=before_ms - 60_000)
    trial.driver.deliver(topic, [record], codec=codec)
    (batch,) = trial.wire.fetch_batches(topic)
    assert batch.log_append_time
    assert batch.codec == codec
    assert before_ms <= batch.max_timestamp_ms <= int(time.time() * 1000)
    if trial.consumes:
        with trial.driver.consumer(topic, FROM_START) as consumer:
            (record,) = consumer.read(1)
        assert record.timestamp_ms == batch.max_timestamp_ms


@case(SECTION, "`message.timestamp.type=LogAppendTime`: the broker's time is stored")
def produce_log_append_time(trial: Trial) -> None:
    _check_log_append_time(trial, "none")


@case(SECTION, "the same with a compressed batch")
def produce_log_append_time_gzip(trial: Trial) -> None:
    _check_log_append_time(trial, "gzip")


def _check_many(trial: Trial, idempotent: bool) -> None:
    topic = trial.topic()
    values = [b"%06d" % number * 100 for number in range(3000)]
    records = [Record(value, key=b"k", partition=0) for value in values]
    deliveries = trial.driver.deliver(topic, records, idempotent=idempotent)
    assert [delivery.offset for delivery in deliveries] == list(range(3000))
    batches = trial.wire.fetch_batches(topic)
    assert sum(batch.record_count for batch in batches) == 3000
    assert len(batches) > 1
    if idempotent:
        sequences = [batch.base_sequence for batch in batches]
        assert sequences == [batch.base_offset for batch in batches]
    if trial.consumes:
        with trial.driver.consumer(topic, FROM_START) as consumer:
            assert [record.value for record in consumer.read(3000)] == values


@case(SECTION, "3,000 records in many batches keep their order")
def produce_many(trial: Trial) -> None:
    _check_many(trial, idempotent=False)


@case(SECTION, "3,000 records in many batches, idempotent: order and sequences agree")
def produce_many_idempotent(trial: Trial) -> None:
    _check_many(trial, idempotent=True)


@case(SECTION, "one record of 900 kB")
def produce_large(trial: Trial) -> None:
    topic = trial.topic()
    records = [Record(b"x" * 900_000, key=b"k", partition=0)]
    trial.driver.deliver(topic, records)
    _check_stored(trial, topic, records)


@case(SECTION, "to an unknown topic: refused")
def produce_unknown_topic(trial: Trial) -> None:
    topic = trial.unused_name()
    (delivery,) = trial.driver.produce(topic, [Record(b"value", partition=0)])
    check_refused(delivery.error, UNKNOWN_TOPIC_OR_PARTITION, {"unknown_topic", "timeout"})
    assert trial.wire.leaders(topic) == {}


@case(SECTION, "to a partition that is not there: refused")
def produce_bad_partition(trial: Trial) -> None:
    topic = trial.topic()
    (delivery,) = trial.driver.produce(topic, [Record(b"value", partition=7)])
    check_refused(delivery.error, UNKNOWN_TOPIC_OR_PARTITION, {"unknown_partition", "timeout"})


@case(SECTION, "a record above `max.message.bytes`: refused, smaller ones accepted")
def produce_too_large(trial: Trial) -> None:
    topic = trial.topic(configs={"max.message.bytes": "20000"})
    (delivery,) = trial.driver.produce(topic, [Record(b"x" * 40_000, partition=0)])
    check_refused(delivery.error, MESSAGE_TOO_LARGE)
    assert trial.wire.fetch_batches(topic) == []
    (delivery,) = trial.driver.deliver(topic, [Record(b"x" * 10_000, partition=0)])
    assert delivery.offset == 0


@case(SECTION, "without a key to a compacted topic: refused")
def produce_key_missing(trial: Trial) -> None:
    topic = trial.topic(configs={"cleanup.policy": "compact"})
    (delivery,) = trial.driver.produce(topic, [Record(b"value", partition=0)])
    # aiokafka has no name for this code.
    check_refused(delivery.error, INVALID_RECORD, {"unnamed"})
    assert trial.wire.fetch_batches(topic) == []
    (delivery,) = trial.driver.deliver(topic, [Record(b"value", key=b"key", partition=0)])
    assert delivery.offset == 0


@case(SECTION, "one record of a batch without a key to a compacted topic: all refused")
def produce_key_missing_in_batch(trial: Trial) -> None:
    topic = trial.topic(configs={"cleanup.policy": "compact"})
    keys = (b"key", None, b"key")
    records = [Record(b"value", key=key, partition=0) for key in keys]
    deliveries = trial.driver.produce(topic, records)
    # Java names the bad record by the broker's code and the others by an error of its own.
    check_refused(deliveries[1].error, INVALID_RECORD, {"unnamed"})
    for delivery in deliveries:
        check_refused(delivery.error, INVALID_RECORD, {"unnamed", "client"})
    assert trial.wire.fetch_batches(topic) == []


@case(SECTION, "a timestamp beyond `message.timestamp.after.max.ms`: refused")
def produce_bad_timestamp(trial: Trial) -> None:
    topic = trial.topic(configs={"message.timestamp.after.max.ms": "60000"})
    in_an_hour_ms = int(time.time() * 1000) + 3_600_000
    late = Record(b"value", partition=0, timestamp_ms=in_an_hour_ms)
    (delivery,) = trial.driver.produce(topic, [late])
    check_refused(delivery.error, INVALID_TIMESTAMP)
    assert trial.wire.fetch_batches(topic) == []
