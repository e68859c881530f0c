"""Record batches: header, checksum, records both ways, control batches, and bad bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.unit.kernels.forms import FORMS
from tidelog.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.model import Codec, TimestampType
from tidelog.protocol import batches
from tidelog.protocol.batches import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    HEADER_BYTES,
    BatchHeader,
    Record,
    build_batch,
    check_crc,
    control_coordinator_epoch,
    control_record_type,
    decode_records,
    encode_batch,
    encode_control_batch,
    encode_records,
    iterate_batches,
    read_header,
    seal,
    stamp,
)


@pytest.fixture(params=FORMS, autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setattr(batches, "kernel", FORMS[request.param])
    yield FORMS[request.param]


def some_records(count: int, headers: bool = True) -> list[Record]:
    chance = random.Random(count)

    def some_bytes() -> bytes | None:
        return chance.choice((None, b"", chance.randbytes(3), chance.randbytes(200)))

    return [
        Record(
            offset=number,
            timestamp=1_700_000_000_000 + chance.randrange(-5, 500),
            key=some_bytes(),
            value=some_bytes(),
            headers=[("häder", some_bytes()) for _ in range(chance.randrange(3) * headers)],
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("headers", [True, False])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 300])
def test_records_come_back_from_a_batch(codec: Codec, headers: bool, count: int) -> None:
    records = some_records(count, headers)
    batch = encode_batch(records, codec=codec)
    assert decode_records(batch) == records
    assert check_crc(batch, 0, len(batch))
    header = read_header(batch)
    assert header.codec is codec
    assert header.size_bytes == len(batch)
    assert header.max_timestamp == max(record.timestamp for record in records)


def test_every_field_of_the_header_comes_back() -> None:
    batch = encode_batch(
        some_records(3),
        base_offset=1 << 40,
        leader_epoch=7,
        producer_id=(1 << 62) + 1,
        producer_epoch=9,
        base_sequence=(1 << 31) - 2,
        transactional=True,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    header = read_header(batch)
    assert (header.base_offset, header.last_offset) == (1 << 40, (1 << 40) + 2)
    assert (header.leader_epoch, header.magic) == (7, 2)
    assert (header.producer_id, header.producer_epoch) == ((1 << 62) + 1, 9)
    assert (header.base_sequence, header.last_sequence) == ((1 << 31) - 2, 0)
    assert header.record_count == 3
    assert header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in decode_records(batch)} == {header.max_timestamp}
    assert [record.offset - (1 << 40) for record in decode_records(batch)] == [0, 1, 2]


def test_without_a_producer_there_is_no_sequence() -> None:
    assert read_header(encode_batch([Record()])).last_sequence == -1


def test_an_empty_batch_is_not_encoded() -> None:
    with pytest.raises(ValueError):
        encode_batch([])


def test_stamping_leaves_the_checksum_right() -> None:
    batch = encode_batch(some_records(2))
    stamp(memoryview(batch), 0, 123, 45)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (123, 45)
    assert check_crc(batch, 0, len(batch))


def test_any_changed_byte_behind_the_checksum_is_found() -> None:
    batch = encode_batch([Record(timestamp=5, value=b"value")])
    for position in range(17, len(batch)):
        changed = bytearray(batch)
        changed[position] ^= 1
        assert not check_crc(changed, 0, len(changed))


def test_sealing_writes_header_and_checksum() -> None:
    batch = encode_batch([Record(timestamp=5, value=b"value")])
    header = read_header(batch)
    header.max_timestamp = 99
    seal(batch, 0, header)
    assert check_crc(batch, 0, len(batch))
    assert read_header(batch) == header


def test_batches_are_walked_up_to_a_partial_one() -> None:
    first, second = encode_batch(some_records(2)), encode_batch(some_records(3))
    joined = bytes(first + second)
    expected = [(0, read_header(first)), (len(first), read_header(second))]
    assert list(iterate_batches(joined)) == expected
    for end in range(len(joined)):
        found = list(iterate_batches(memoryview(joined)[:end]))
        assert found == (expected[:1] if end >= len(first) else [])


@pytest.mark.parametrize("length", [-1, 0, 48, -(1 << 31)])
def test_a_nonsensical_length_is_a_protocol_error(length: int) -> None:
    batch = encode_batch([Record()])
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(ProtocolError):
        read_header(batch)
    with pytest.raises(ProtocolError):
        list(iterate_batches(batch))


def test_a_cut_header_or_batch_is_a_protocol_error() -> None:
    batch = encode_batch([Record(value=b"v")])
    for end in range(len(batch)):
        with pytest.raises(ProtocolError):
            decode_records(batch[:end])
    with pytest.raises(ProtocolError):
        read_header(batch, 10)


def test_other_magic_unknown_codecs_and_absurd_counts_are_protocol_errors() -> None:
    for position, kind, value in (
        (16, ">b", 1),
        (21, ">h", 5),
        (57, ">i", -1),
        (57, ">i", 2**31 - 1),
    ):
        batch = encode_batch([Record(value=b"v")])
        struct.pack_into(kind, batch, position, value)
        with pytest.raises(ProtocolError):
            decode_records(batch)


def test_a_header_key_that_is_not_text_is_replaced_as_java_does() -> None:
    batch = encode_batch([Record(headers=[("key", b"value")])])
    at = batch.index(b"key")
    batch[at : at + 3] = b"\xff\xfek"
    assert decode_records(batch)[0].headers == [("\ufffd\ufffdk", b"value")]


def test_inflating_is_bounded() -> None:
    batch = encode_batch([Record(value=bytes(100_000))], codec=Codec.ZSTD)
    assert len(decode_records(batch, max_bytes=101_000)) == 1
    with pytest.raises(KafkaError) as caught:
        decode_records(batch, max_bytes=100_000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", list(Codec))
def test_mutated_batches_give_records_or_an_expected_error(codec: Codec) -> None:
    chance = random.Random(codec)
    batch = encode_batch(some_records(6), codec=codec)
    decoded = refused = 0
    for _ in range(1_500):
        mutated = bytearray(batch)
        for _ in range(chance.randrange(1, 4)):
            mutated[chance.randrange(16, len(mutated))] = chance.randrange(256)
        try:
            decode_records(mutated, max_bytes=100_000)
            decoded += 1
        except (ProtocolError, KafkaError):
            refused += 1
    assert decoded + refused == 1_500
    assert decoded > 10
    assert refused > 50


def test_a_batch_thinned_by_compaction_keeps_its_offsets() -> None:
    records = [Record(offset=offset, timestamp=50 + offset, value=b"v") for offset in (12, 15, 19)]
    header = BatchHeader(
        base_offset=10,
        last_offset_delta=10,
        first_timestamp=1_000,
        max_timestamp=69,
        record_count=3,
        attributes=batches.ATTRIBUTES_DELETE_HORIZON | Codec.LZ4,
    )
    batch = build_batch(header, encode_records(records, [2, 5, 9], header.first_timestamp))
    assert decode_records(batch) == records
    assert read_header(batch).has_delete_horizon
    assert read_header(batch).last_offset == 20


@pytest.mark.parametrize("control_type", [CONTROL_ABORT, CONTROL_COMMIT])
def test_a_transaction_marker_comes_back(control_type: int) -> None:
    batch = encode_control_batch(
        control_type,
        producer_id=5,
        producer_epoch=2,
        coordinator_epoch=77,
        timestamp=1_000,
        leader_epoch=3,
    )
    header = read_header(batch)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, -1)
    (record,) = decode_records(batch)
    assert control_record_type(record) == control_type
    assert control_coordinator_epoch(record) == 77


@pytest.mark.parametrize("damaged", [None, b"", b"\0\0\0"])
def test_a_marker_without_type_or_epoch_is_a_protocol_error(damaged: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        control_record_type(Record(key=damaged))
    with pytest.raises(ProtocolError):
        control_coordinator_epoch(Record(value=damaged))


def test_the_header_is_61_bytes() -> None:
    assert len(build_batch(BatchHeader(), b"")) == HEADER_BYTES
