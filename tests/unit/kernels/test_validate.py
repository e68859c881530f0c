"""`validate` and `index`: what they accept, and how they name the first bad record."""

from __future__ import annotations

import random
from array import array
from types import ModuleType

import pytest

from tests.unit.kernels.payloads import (
    INT64_MAX,
    INT64_MIN,
    Row,
    body,
    index,
    payload,
    random_rows,
    sized,
    validate,
    varint,
)


def record(*parts: bytes) -> bytes:
    joined = b"".join(parts)
    return varint(len(joined)) + joined


def test_sound_payloads_are_accepted_and_their_parts_found(kernel: ModuleType) -> None:
    chance = random.Random(1)
    checked = 0
    for _ in range(300):
        rows = random_rows(chance, chance.randrange(1, 12))
        data = payload(rows)
        highest = max(-1, *(row.timestamp_delta for row in rows))
        fault, count, max_timestamp, at = validate(kernel, data, len(rows))
        assert (fault, count, max_timestamp) == (0, len(rows), highest)
        if highest > -1:
            assert rows[at].timestamp_delta == highest
        answer, table, timestamps = index(kernel, data, len(rows), 7)
        assert answer == (0, len(rows))
        for number, row in enumerate(rows):
            _, start, key_at, key_length, value_at, value_length, headers_at = table[
                number * 7 : number * 7 + 7
            ]
            assert table[number * 7] == number
            assert timestamps[number] == 7 + row.timestamp_delta
            assert data[start:].startswith(record(body(row, number)))
            assert (None if key_length < 0 else data[key_at : key_at + key_length]) == row.key
            found = None if value_length < 0 else data[value_at : value_at + value_length]
            assert found == row.value
            assert data[headers_at:].startswith(varint(len(row.headers)))
            checked += 1
    assert checked > 1500


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", 1),
        (b"\x80", 1),
        (b"\x80\x80\x80\x80\x80\x01", 1),
        (varint(-1), 1),
        (varint(0), 1),
        (varint(3) + b"\0\0", 1),
        (record(b"\x01", varint(0), varint(0), b"\x01\x01\x00"), 2),
        (record(b"\0"), 3),
        (record(b"\0", b"\xff" * 9), 3),
        (record(b"\0", b"\xff" * 9 + b"\x02", b"\0\x01\x01\x00"), 3),
        (record(b"\0", b"\0"), 4),
        (record(b"\0\0", varint(-1), b"\x01\x01\x00"), 4),
        (record(b"\0\0\0"), 5),
        (record(b"\0\0\0", varint(-2), b"\x01\x00"), 5),
        (record(b"\0\0\0", varint(2), b"k"), 5),
        (record(b"\0\0\0", varint((1 << 31) - 1)), 5),
        (record(b"\0\0\0", b"\x01"), 6),
        (record(b"\0\0\0\x01", varint(-2), b"\x00"), 6),
        (record(b"\0\0\0\x01", varint(9), b"v", b"\x00"), 6),
        (record(b"\0\0\0\x01\x01"), 7),
        (record(b"\0\0\0\x01\x01", varint(-1)), 7),
        (record(b"\0\0\0\x01\x01", varint((1 << 31) - 1)), 7),
        (record(b"\0\0\0\x01\x01", varint(1), varint(-1), varint(-1)), 7),
        (record(b"\0\0\0\x01\x01", varint(1), sized(b"k"), varint(-2)), 7),
        (record(b"\0\0\0\x01\x01", varint(1), sized(b"k"), varint(1)), 7),
        (record(b"\0\0\0\x01\x01", varint(0), b"rest"), 7),
        (record(b"\0\0\0\x01\x01", varint(0)) + b"\0", 8),
    ],
)
def test_a_fault_is_named(kernel: ModuleType, data: bytes, fault: int) -> None:
    before = payload([Row(value=b"sound")])
    index_of_bad = 1 if fault == 8 else 0
    assert validate(kernel, data, 1)[:2] == (fault, index_of_bad)
    assert index(kernel, data, 1)[0] == (fault, index_of_bad)
    if fault not in (4, 8):
        assert validate(kernel, before + data, 2)[:2] == (fault, 1)
    assert fault in kernel.FAULT_MESSAGES


def test_too_many_records_claimed_is_a_fault_of_the_first_that_is_not_there(
    kernel: ModuleType,
) -> None:
    data = payload([Row(), Row()])
    assert validate(kernel, data, 3)[:2] == (1, 2)
    assert validate(kernel, data, (1 << 31) - 1)[:2] == (1, 2)
    assert validate(kernel, data, 1)[:2] == (8, 1)


def test_index_accepts_the_gaps_that_compaction_leaves_but_no_way_back(kernel: ModuleType) -> None:
    gaps = b"".join(record(body(Row(), delta)) for delta in (2, 3, 9))
    answer, table, _ = index(kernel, gaps, 3)
    assert answer == (0, 3)
    assert list(table[::7]) == [2, 3, 9]
    assert validate(kernel, gaps, 3)[:2] == (4, 0)
    back = b"".join(record(body(Row(), delta)) for delta in (2, 2))
    assert index(kernel, back, 2)[0] == (4, 1)


def test_keys_are_asked_for_only_where_required(kernel: ModuleType) -> None:
    data = payload([Row(key=b""), Row(key=b"k"), Row(key=None)])
    assert kernel.validate(data, 3, 0, INT64_MIN, INT64_MAX, False)[0] == 0
    assert kernel.validate(data, 3, 0, INT64_MIN, INT64_MAX, True)[:2] == (kernel.KEY_MISSING, 2)


def test_timestamps_outside_the_range_are_named_and_none_is_always_inside(
    kernel: ModuleType,
) -> None:
    data = payload([Row(0), Row(50), Row(-101), Row(-50)])
    assert kernel.validate(data, 4, 100, 50, 150, False)[:2] == (0, 4)
    assert kernel.validate(data, 4, 100, 50, 149, False)[:2] == (kernel.TIMESTAMP_RANGE, 1)
    assert kernel.validate(data, 4, 100, 51, 150, False)[:2] == (kernel.TIMESTAMP_RANGE, 3)
    assert kernel.validate(data, 4, 100, 50, 150, False)[2:] == (150, 1)


@pytest.mark.parametrize(
    ("base", "delta", "sound"),
    [
        (INT64_MAX, 0, True),
        (INT64_MAX, 1, False),
        (INT64_MIN, 0, True),
        (INT64_MIN, -1, False),
        (-1, INT64_MIN + 1, True),
        (-2, INT64_MIN + 1, False),
        (0, INT64_MIN, True),
        (0, INT64_MAX, True),
        (1, INT64_MAX, False),
        (INT64_MIN, INT64_MAX, True),
    ],
)
def test_timestamps_never_leave_64_bits(
    kernel: ModuleType, base: int, delta: int, sound: bool
) -> None:
    data = payload([Row(delta)])
    fault = kernel.validate(data, 1, base, INT64_MIN, INT64_MAX, False)[0]
    assert fault == (0 if sound else 3)
    answer, _, timestamps = index(kernel, data, 1, base)
    assert answer[0] == fault
    if sound:
        assert timestamps[0] == base + delta


def test_arrays_that_are_too_short_are_refused(kernel: ModuleType) -> None:
    data = payload([Row(), Row()])
    for rows, timestamps, count in ((13, 2, 2), (14, 1, 2), (14, 2, -1)):
        with pytest.raises(ValueError, match="too short"):
            kernel.index(data, count, 0, array("i", [0] * rows), array("q", [0] * timestamps))


def test_any_buffer_is_taken(kernel: ModuleType) -> None:
    data = payload([Row(value=b"v")])
    for buffer in (data, bytearray(data), memoryview(data), memoryview(b"x" + data)[1:]):
        assert validate(kernel, buffer, 1)[0] == 0
    with pytest.raises((TypeError, ValueError, BufferError)):
        validate(kernel, "text", 1)  # type: ignore[arg-type]
