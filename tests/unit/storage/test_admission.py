"""Admission: each rule of Kafka's broker, its error code, and what it changes in a batch."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.unit.kernels.forms import FORMS
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, InvalidRecordsError, KafkaError
from tidelog.model import Codec, TimestampType
from tidelog.protocol import batches, compression, streams
from tidelog.protocol.batches import Record, check_crc, decode_records, encode_batch, read_header
from tidelog.storage import admission
from tidelog.storage.admission import (
    INT64_MAX,
    LOOP_INFLATED_BYTES,
    Admitted,
    admit,
    config_on_loop,
    takes_a_codec,
)

NOW = 1_700_000_000_000
RULES = TopicConfig()
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
CODECS = list(Codec)


@pytest.fixture(params=FORMS, autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "kernel", FORMS[request.param])
    monkeypatch.setattr(admission, "kernel", FORMS[request.param])


def some_records(count: int = 5) -> list[Record]:
    return [Record(number, NOW + number, b"key%d" % number, b"value") for number in range(count)]


def refused(batch: bytes | bytearray, rules: TopicConfig = RULES, **options: bool) -> KafkaError:
    before = bytes(batch)
    with pytest.raises(KafkaError) as caught:
        admit(memoryview(batch), rules, NOW, **options)
    assert bytes(batch) == before, "a refused batch is left as it was"
    return caught.value


def patched(kind: str, position: int, value: int) -> bytearray:
    batch = encode_batch(some_records())
    struct.pack_into(kind, batch, position, value)
    batches.seal(batch, 0, read_header(batch))
    return batch


def check_sound(admitted: Admitted, records: list[Record]) -> None:
    assert admitted.header == read_header(admitted.buffer)
    assert check_crc(admitted.buffer, 0, len(admitted.buffer))
    assert decode_records(admitted.buffer) == records


@pytest.mark.parametrize("codec", CODECS)
def test_a_sound_batch_is_admitted_as_it_is(codec: Codec) -> None:
    records = some_records()
    batch = encode_batch(records, codec=codec, producer_id=1, producer_epoch=0, base_sequence=0)
    before = bytes(batch)
    admitted = admit(memoryview(batch), RULES, NOW)
    check_sound(admitted, records)
    assert bytes(batch) == before
    admitted.buffer[0] = 1
    assert batch[0] == 1, "the bytes are shared, not copied"


def test_bytes_that_may_not_be_written_are_copied() -> None:
    batch = bytes(encode_batch(some_records()))
    admitted = admit(memoryview(batch), RULES, NOW)
    assert not admitted.buffer.readonly
    check_sound(admitted, some_records())


def test_exactly_one_batch_is_asked_for() -> None:
    batch = encode_batch(some_records())
    for bad in (b"", batch[:60], batch[:61], batch[:-1], batch + batch, batch + b"\0"):
        assert refused(bytearray(bad)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_a_nonsensical_length_is_corrupt(length: int) -> None:
    batch = encode_batch(some_records())
    struct.pack_into(">i", batch, 8, length)
    assert refused(batch).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (-1, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_older_formats_are_invalid_and_unknown_ones_corrupt(magic: int, code: ErrorCode) -> None:
    batch = encode_batch(some_records())
    struct.pack_into(">b", batch, 16, magic)
    assert refused(batch).code is code


def test_a_base_offset_is_the_brokers_to_give() -> None:
    assert refused(encode_batch(some_records(), base_offset=1)).code is ErrorCode.INVALID_RECORD


def test_a_batch_above_the_maximum_is_too_large_and_one_at_it_is_not() -> None:
    batch = encode_batch(some_records())
    admit(memoryview(batch), replace(RULES, max_message_bytes=len(batch)), NOW)
    error = refused(batch, replace(RULES, max_message_bytes=len(batch) - 1))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_any_flipped_bit_behind_the_checksum_is_corrupt(codec: Codec) -> None:
    batch = encode_batch(some_records(2), codec=codec)
    for position in range(61, len(batch)):
        changed = bytearray(batch)
        changed[position] ^= 1 << random.Random(position).randrange(8)
        assert refused(changed).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(("kind", "position", "value"), [
    (">i", 57, 0), (">i", 57, -1), (">i", 57, 4), (">i", 57, 6), (">i", 57, 2**31 - 1),
    (">i", 23, 3), (">i", 23, 5), (">i", 23, -1), (">i", 23, 2**31 - 1),
])  # fmt: skip
def test_counts_and_offsets_that_disagree_are_invalid(kind: str, position: int, value: int) -> None:
    assert refused(patched(kind, position, value)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("attributes", [0x20, 0x30, 0x40])
def test_clients_may_not_write_control_batches_or_delete_horizons(attributes: int) -> None:
    assert refused(patched(">h", 21, attributes)).code is ErrorCode.INVALID_RECORD


def test_coordinators_may_write_control_batches() -> None:
    marker = batches.encode_control_batch(
        batches.CONTROL_COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
    )
    assert refused(marker).code is ErrorCode.INVALID_RECORD
    rules = replace(RULES, target_codec=Codec.ZSTD)
    admitted = admit(memoryview(marker), rules, NOW, from_client=False)
    assert admitted.header.is_control
    assert admitted.header.codec is Codec.NONE


@pytest.mark.parametrize(
    ("producer_id", "producer_epoch", "base_sequence", "transactional"),
    [(1, 0, -1, False), (1, -1, 0, False), (0, 0, -5, True), (-1, -1, -1, True)],
)
def test_a_producer_comes_with_epoch_and_sequence(
    producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool
) -> None:
    batch = encode_batch(
        some_records(),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )
    assert refused(batch).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_not_supported(codec: int) -> None:
    assert refused(patched(">h", 21, codec)).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_zstd_is_refused_where_the_request_is_too_old_for_it() -> None:
    batch = encode_batch(some_records(), codec=Codec.ZSTD)
    admit(memoryview(batch), RULES, NOW)
    assert refused(batch, allow_zstd=False).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_log_append_time_is_not_the_producers_to_claim() -> None:
    batch = encode_batch(some_records(), timestamp_type=TimestampType.LOG_APPEND_TIME)
    for timestamp_type in TimestampType:
        error = refused(batch, replace(RULES, message_timestamp_type=timestamp_type))
        assert error.code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", CODECS)
def test_keyless_records_of_a_compacted_topic_are_named(codec: Codec) -> None:
    records = some_records(7)
    records[2].key = records[5].key = None
    batch = encode_batch(records, codec=codec)
    check_sound(admit(memoryview(batch), RULES, NOW), records)
    error = refused(batch, replace(RULES, cleanup_compact=True))
    assert error.code is ErrorCode.INVALID_RECORD
    assert isinstance(error, InvalidRecordsError)
    assert [each.batch_index for each in error.records] == [2, 5]


@pytest.mark.parametrize("codec", CODECS)
def test_timestamps_out_of_range_are_named(codec: Codec) -> None:
    records = some_records(6)
    records[1].timestamp = NOW + 3_600_001
    records[3].timestamp = NOW - 10_001
    records[4].timestamp = -1
    batch = encode_batch(records, codec=codec)
    error = refused(batch)
    assert isinstance(error, InvalidRecordsError)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in error.records] == [1]
    error = refused(batch, replace(RULES, message_timestamp_before_max_ms=10_000))
    assert isinstance(error, InvalidRecordsError)
    assert [each.batch_index for each in error.records] == [1, 3]
    wide = replace(
        RULES, message_timestamp_before_max_ms=10_001, message_timestamp_after_max_ms=3_600_001
    )
    check_sound(admit(memoryview(batch), wide, NOW), records)
    append_time = replace(RULES, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    admit(memoryview(batch), append_time, NOW)


def test_a_bad_timestamp_outweighs_a_missing_key() -> None:
    records = some_records(3)
    records[0].key = None
    records[2].timestamp = INT64_MAX
    error = refused(encode_batch(records), replace(RULES, cleanup_compact=True))
    assert isinstance(error, InvalidRecordsError)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in error.records] == [0, 2]


def test_a_thousand_bad_records_are_named_at_most() -> None:
    batch = encode_batch([Record(timestamp=NOW) for _ in range(3_000)])
    error = refused(batch, replace(RULES, cleanup_compact=True))
    assert isinstance(error, InvalidRecordsError)
    assert len(error.records) == admission.RECORD_ERRORS_MAX
    assert len(error.message) < 500


def broken(codec: Codec, change: Callable[[bytearray], None]) -> bytearray:
    """A batch with a right checksum around records that were changed."""
    records = some_records()
    payload = batches.encode_records(records, range(len(records)), NOW)
    change(payload)
    header = read_header(encode_batch(records, codec=codec))
    return batches.build_batch(header, payload)


def swap_offsets(payload: bytearray) -> None:
    payload[3], payload[payload[0] // 2 + 4] = 2, 0


def cut(payload: bytearray) -> None:
    del payload[-1:]


def lengthen(payload: bytearray) -> None:
    payload.append(0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("change", "index"), [(swap_offsets, 0), (cut, 4), (lengthen, 5)])
def test_records_that_cannot_be_read_are_invalid(
    codec: Codec, change: Callable[[bytearray], None], index: int
) -> None:
    error = refused(broken(codec, change), replace(RULES, full_validation=True))
    assert isinstance(error, InvalidRecordsError)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in error.records] == [index]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_compressed_records_are_looked_into_only_where_the_topic_asks(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = broken(codec, cut)
    inflated: list[Codec] = []
    original = compression.decompress

    def spy(used: Codec, data: batches.Buffer, max_bytes: int) -> bytes:
        inflated.append(used)
        return original(used, data, max_bytes)

    monkeypatch.setattr(compression, "decompress", spy)
    admit(memoryview(batch), RULES, NOW)
    admit(memoryview(batch), replace(RULES, target_codec=codec), NOW)
    assert inflated == []
    for rules in (
        replace(RULES, full_validation=True),
        replace(RULES, cleanup_compact=True),
        replace(RULES, target_codec=Codec.NONE),
        replace(RULES, message_timestamp_before_max_ms=1_000),
        replace(RULES, message_timestamp_after_max_ms=-1),
    ):
        refused(batch, rules)
    assert inflated == [codec] * 5


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_stream_that_does_not_inflate_is_invalid_and_a_bomb_too_large(codec: Codec) -> None:
    batch = encode_batch(some_records(), codec=codec)
    batch[-12:] = b"\xff" * 12
    batches.seal(batch, 0, read_header(batch))
    rules = replace(RULES, full_validation=True, max_decompressed_bytes=100_000)
    assert refused(batch, rules).code is ErrorCode.INVALID_RECORD
    bomb = encode_batch([Record(timestamp=NOW, value=bytes(200_000))], codec=codec)
    assert refused(bomb, rules).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_is_stored_in_the_codec_of_the_topic(codec: Codec, target: Codec) -> None:
    records = some_records(50)
    batch = encode_batch(records, codec=codec, producer_id=7, producer_epoch=2, base_sequence=11)
    admitted = admit(memoryview(batch), replace(RULES, target_codec=target), NOW)
    check_sound(admitted, records)
    header = admitted.header
    assert header.codec is target
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 11)


def test_a_batch_that_grows_beyond_the_maximum_is_too_large() -> None:
    batch = encode_batch([Record(timestamp=NOW, value=bytes(10_000))], codec=Codec.GZIP)
    rules = replace(RULES, target_codec=Codec.NONE, max_message_bytes=10_000)
    assert refused(batch, rules).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("target", [None, Codec.LZ4])
@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_changes_the_header_and_no_record(
    codec: Codec, target: Codec | None
) -> None:
    batch = encode_batch(some_records(), codec=codec)
    rules = replace(
        RULES, message_timestamp_type=TimestampType.LOG_APPEND_TIME, target_codec=target
    )
    admitted = admit(memoryview(batch), rules, NOW + 99)
    check_sound(admitted, [replace(record, timestamp=NOW + 99) for record in some_records()])
    assert admitted.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert admitted.header.first_timestamp == NOW


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrong_max_timestamp_is_put_right_where_records_are_walked(codec: Codec) -> None:
    records = some_records()
    batch = encode_batch(records, codec=codec)
    header = read_header(batch)
    header.max_timestamp = NOW - 5
    batches.seal(batch, 0, header)
    admitted = admit(memoryview(batch), replace(RULES, full_validation=True), NOW)
    check_sound(admitted, records)
    assert admitted.header.max_timestamp == NOW + 4


def test_batches_without_timestamps_are_admitted() -> None:
    records = [Record(0, -1, b"k", b"v"), Record(1, -1, b"k", b"v")]
    admitted = admit(memoryview(encode_batch(records)), RULES, NOW)
    check_sound(admitted, records)
    assert admitted.header.max_timestamp == -1


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("ahead_ms", [0, 10**9])
def test_a_batch_that_runs_a_codec_is_foreseen(
    codec: Codec, ahead_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose timestamp lies ahead was inflated on the loop: only its size was looked at."""
    used: list[str] = []
    for name in ("compress", "decompress"):
        original = getattr(compression, name)

        def spy(*arguments: object, name: str = name, original: object = original) -> bytes:
            used.append(name)
            return original(*arguments)  # type: ignore[operator, no-any-return]

        monkeypatch.setattr(compression, name, spy)
    records = [Record(timestamp=NOW + ahead_ms, key=b"k", value=b"v")]
    batch = bytes(encode_batch(records, codec=codec))
    packed, ahead = codec is not Codec.NONE, codec is not Codec.NONE and ahead_ms > 0
    for expected, rules in (
        (ahead, RULES),
        (packed, replace(RULES, full_validation=True)),
        (packed, replace(RULES, cleanup_compact=True)),
        (ahead, replace(RULES, target_codec=codec)),
        (True, replace(RULES, target_codec=Codec((codec + 1) % 5))),
        (packed, replace(RULES, message_timestamp_before_max_ms=1_000)),
        (False, replace(RULES, message_timestamp_type=TimestampType.LOG_APPEND_TIME)),
    ):
        used.clear()
        with suppress(KafkaError):
            admit(memoryview(batch), rules, NOW)
        assert takes_a_codec(batch, rules, NOW) is expected, rules
        # Uncompressed records out of time are refused before they are compressed.
        assert bool(used) is expected or not packed, rules
    assert not takes_a_codec(batch[:60], RULES, NOW)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_inflates_to_more_than_the_loop_has_time_for_is_too_large_on_it(codec: Codec) -> None:
    rules = replace(RULES, full_validation=True)
    fits = encode_batch([Record(timestamp=NOW, value=bytes(16_000))], codec=codec)
    admit(memoryview(fits), config_on_loop(rules), NOW)
    more = encode_batch([Record(timestamp=NOW, value=bytes(LOOP_INFLATED_BYTES))], codec=codec)
    admit(memoryview(more), rules, NOW)
    assert refused(more, config_on_loop(rules)).code is ErrorCode.MESSAGE_TOO_LARGE
    many = encode_batch([Record(timestamp=NOW)] * 5_000, codec=codec)
    admit(memoryview(many), rules, NOW)
    assert refused(many, config_on_loop(rules)).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("full", [False, True])
def test_more_records_than_the_bytes_can_hold_are_invalid(codec: Codec, full: bool) -> None:
    """A header that claimed 2^31 - 1 records moved the end of the log by as many."""
    batch = encode_batch(some_records(), codec=codec)
    ratio, stored_bytes = streams.RATIO_MAX[codec], len(batch) - batches.HEADER_BYTES
    rules = replace(RULES, full_validation=full, max_decompressed_bytes=1 << 40)
    for count in (2**31 - 1, stored_bytes * ratio // 7 + 1):
        header = read_header(batch)
        header.record_count, header.last_offset_delta = count, count - 1
        batches.seal(batch, 0, header)
        error = refused(batch, rules)
        assert error.code is ErrorCode.INVALID_RECORD
        assert "more than" in error.message


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("full", [False, True])
def test_garbage_and_streams_that_are_cut_off_are_invalid(codec: Codec, full: bool) -> None:
    """Garbage was stored by default, and stopped every consumer at its offset."""
    rules = replace(RULES, full_validation=full)
    chance = random.Random(codec)
    good = encode_batch(some_records(400), codec=codec)
    stream = good[batches.HEADER_BYTES :]
    other = compression.compress(Codec((codec % 4) + 1), b"x" * 5_000)
    cut = [] if codec is Codec.GZIP else [stream[:-1], stream[: len(stream) // 2]]
    for garbage in (b"\xff" * 500, chance.randbytes(500), b"", bytes(other), stream[:3], *cut):
        header = replace(read_header(good), batch_length=49 + len(garbage))
        batch = bytearray(good[: batches.HEADER_BYTES]) + garbage
        batches.seal(batch, 0, header)
        assert refused(batch, rules).code is ErrorCode.INVALID_RECORD, garbage[:20]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_more_records_than_may_be_inflated_are_too_large(codec: Codec) -> None:
    batch = encode_batch([Record(timestamp=NOW)] * 2_000, codec=codec)
    assert admit(memoryview(batch), replace(RULES, max_decompressed_bytes=14_000), NOW)
    error = refused(batch, replace(RULES, max_decompressed_bytes=13_999))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE


def test_mutated_batches_with_a_right_checksum_are_judged_and_never_crash() -> None:
    chance = random.Random(5)
    rules = [
        replace(RULES, full_validation=True, max_decompressed_bytes=50_000),
        replace(
            RULES, cleanup_compact=True, target_codec=Codec.SNAPPY, max_decompressed_bytes=50_000
        ),
        replace(
            RULES,
            message_timestamp_type=TimestampType.LOG_APPEND_TIME,
            message_timestamp_before_max_ms=5,
        ),
    ]
    admitted = rejected = 0
    for case in range(4_000):
        batch = encode_batch(some_records(4), codec=CODECS[case % 5])
        for _ in range(chance.randrange(1, 3)):
            batch[chance.randrange(21, len(batch))] = chance.randrange(256)
        struct.pack_into(">I", batch, 17, batches.compute_crc(batch, 0, len(batch)))
        try:
            found = admit(memoryview(batch), rules[case % 3], NOW)
            assert check_crc(found.buffer, 0, len(found.buffer))
            admitted += 1
        except KafkaError:
            rejected += 1
    assert admitted + rejected == 4_000
    assert admitted > 100
    assert rejected > 1_000
