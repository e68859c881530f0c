"""`measure`, the gather functions and `encode`: records to Arrow columns and back."""

from __future__ import annotations

import random
from array import array
from types import ModuleType

import pytest

from tests.unit.kernels.columns import Batch, Columns, int32, int64
from tests.unit.kernels.payloads import INT64_MAX, INT64_MIN, Row, index, payload, random_rows


def text_keys(rows: list[Row]) -> list[Row]:
    for row in rows:
        row.headers = [(key.hex().encode(), value) for key, value in row.headers]
    return rows


def batch_of(rows: list[Row], base_offset: int = 0, base_timestamp: int = 0) -> Batch:
    return Batch(payload(rows), len(rows), base_offset, base_timestamp)


def test_batches_become_one_arrow_table(kernel: ModuleType) -> None:
    chance = random.Random(2)
    for _ in range(40):
        batches, expected = [], []
        for number in range(chance.randrange(1, 5)):
            rows = text_keys(random_rows(chance, chance.randrange(1, 40)))
            batches.append(batch_of(rows, 1000 * number, 5_000))
            expected += [
                {
                    "key": row.key,
                    "value": row.value,
                    "offset": 1000 * number + delta,
                    "timestamp": 5_000 + row.timestamp_delta,
                    "headers": [
                        {"key": key.decode(), "value": value} for key, value in row.headers
                    ],
                }
                for delta, row in enumerate(rows)
            ]
        columns = Columns(kernel, batches)
        table = columns.table()
        assert table.to_pylist() == expected
        assert columns.nulls[:2] == [table["key"].null_count, table["value"].null_count]


def test_columns_encode_to_the_payload_they_came_from(kernel: ModuleType) -> None:
    chance = random.Random(3)
    for _ in range(60):
        rows = random_rows(chance, chance.randrange(1, 40))
        batch = batch_of(rows, 0, 77)
        columns = Columns(kernel, [batch])
        output = bytearray(len(batch.payload))
        headers = columns.headers if any(row.headers for row in rows) else None
        arguments = (columns.timestamp, 77, columns.key, columns.value, headers)
        size, highest = kernel.encode(output, *arguments, 0, len(rows))
        assert output[:size] == batch.payload
        assert highest == 77 + max(row.timestamp_delta for row in rows)
        with pytest.raises(ValueError, match="output is too short"):
            kernel.encode(memoryview(output)[:-1], *arguments, 0, len(rows))


def test_a_part_of_the_columns_encodes_as_a_batch_of_its_own(kernel: ModuleType) -> None:
    rows = random_rows(random.Random(4), 50)
    columns = Columns(kernel, [batch_of(rows)])
    output = bytearray(100_000)
    size, _ = kernel.encode(
        output, columns.timestamp, 0, columns.key, columns.value, columns.headers, 13, 9
    )
    assert output[:size] == payload(rows[13:22])


def test_the_overhead_bound_is_enough_for_the_largest_numbers(kernel: ModuleType) -> None:
    empty = (int32(2), b"", None)
    headers = (array("i", [0, 1]), (int32(2), b"", None), (int32(2), b"", b"\0"))
    output = bytearray(kernel.RECORD_OVERHEAD_MAX + kernel.HEADER_OVERHEAD_MAX)
    size, _ = kernel.encode(output, array("q", [INT64_MIN]), 0, empty, empty, headers, 0, 1)
    assert index(kernel, bytes(output[:size]), 1)[0] == (0, 1)
    assert size <= len(output)


@pytest.mark.parametrize(
    ("timestamp", "base", "sound"),
    [
        (INT64_MAX, 0, True),
        (INT64_MAX, -1, False),
        (INT64_MIN, 0, True),
        (INT64_MIN, 1, False),
        (INT64_MIN, INT64_MIN, True),
        (0, INT64_MIN, False),
        (-1, INT64_MIN, True),
    ],
)
def test_timestamp_deltas_never_leave_64_bits(
    kernel: ModuleType, timestamp: int, base: int, sound: bool
) -> None:
    empty = (int32(2), b"", None)
    arguments = (bytearray(50), array("q", [timestamp]), base, empty, empty, None, 0, 1)
    if sound:
        size, _ = kernel.encode(*arguments)
        assert index(kernel, bytes(arguments[0][:size]), 1, base)[2][0] == timestamp
    else:
        with pytest.raises(ValueError, match="too far"):
            kernel.encode(*arguments)


def test_encode_refuses_columns_that_do_not_hold_what_they_claim(kernel: ModuleType) -> None:
    good = (array("i", [0, 1, 2]), b"ab", None)
    stamps = int64(2)
    headers = (array("i", [0, 1, 1]), (array("i", [0, 1]), b"k", None), (int32(2), b"", None))
    bad_columns = [
        (array("i", [0, 1]), b"ab", None),
        (array("i", [0, 1, 3]), b"ab", None),
        (array("i", [0, 2, 1]), b"ab", None),
        (array("i", [-1, 1, 2]), b"ab", None),
        (array("i", [0, 1, 2]), b"ab", b""),
    ]
    cases = [(stamps, bad, good, None, 0, 2) for bad in bad_columns]
    cases += [(stamps, good, bad, None, 0, 2) for bad in bad_columns]
    cases += [(stamps, good, good, None, *span) for span in ((0, 3), (-1, 2), (2, 1), (0, -1))]
    cases += [(stamps, good, good, None, 1 << 62, 1 << 62), (int64(1), good, good, None, 0, 2)]
    cases += [
        (stamps, good, good, (array("i", offsets), *headers[1:]), 0, 2)
        for offsets in ([0, 1], [0, 2, 2], [1, 0, 0], [-1, 0, 0], [1 << 30, (1 << 31) - 1, 0])
    ]
    cases += [
        (stamps, good, good, (headers[0], (array("i", [0, 1]), b"k", b"\0"), headers[2]), 0, 2),
        (stamps, good, good, (headers[0], headers[1], (array("i", [0, 9]), b"", None)), 0, 2),
    ]
    for columns, key, value, given_headers, start, count in cases:
        with pytest.raises(ValueError):
            kernel.encode(bytearray(200), columns, 0, key, value, given_headers, start, count)
    kernel.encode(bytearray(200), stamps, 0, good, good, headers, 0, 2)


def test_gathering_refuses_buffers_that_are_too_short(kernel: ModuleType) -> None:
    rows = [Row(key=b"key", value=b"value", headers=[(b"h", b"x")]), Row(value=b"v")]
    data = payload(rows)
    _, table, _ = index(kernel, data, 2)

    def gather(**changed: object) -> None:
        given: dict[str, object] = {
            "payload": data, "rows": table, "count": 2, "field": kernel.VALUE_POSITION,
            "start": 0, "offsets": int32(3), "data": bytearray(6), "validity": bytearray(1),
        } | changed  # fmt: skip
        kernel.gather_bytes(*given.values())

    gather()
    begun = array("i", [1, 0, 0])
    for changed in (
        {"rows": table[:13]}, {"count": -1}, {"count": 3}, {"field": 3}, {"start": -1},
        {"start": 1}, {"start": 1 << 62}, {"offsets": int32(2)}, {"data": bytearray(5)},
        {"validity": bytearray(0)}, {"offsets": begun}, {"payload": data[:12]},
    ):  # fmt: skip
        with pytest.raises(ValueError):
            gather(**changed)
    with pytest.raises(ValueError):
        kernel.gather_offsets(table, 2, 0, 0, int64(1))
    with pytest.raises(ValueError):
        kernel.gather_offsets(table, 2, INT64_MAX, 0, int64(2))


def test_gathering_headers_refuses_buffers_that_are_too_short(kernel: ModuleType) -> None:
    data = payload([Row(headers=[(b"key", b"value"), (b"k", None)])])
    _, table, _ = index(kernel, data, 1)
    assert kernel.measure(data, table, 1) == (0, 0, 2, 4, 5)

    def sound() -> list[object]:
        return [
            data, table, 1, 0, int32(2),
            int32(3), bytearray(4), int32(3), bytearray(5), bytearray(1),
        ]  # fmt: skip

    given = sound()
    assert kernel.gather_headers(*given) == 1
    assert list(given[4]) == [0, 2]  # type: ignore[call-overload]
    for position, bad in (
        (0, data[:8]), (1, table[:6]), (2, 2), (3, 1), (3, -1), (4, int32(1)), (5, int32(2)),
        (6, bytearray(3)), (7, int32(2)), (8, bytearray(4)), (9, bytearray(0)),
        (4, array("i", [9, 0])), (4, array("i", [-1, 0])), (5, array("i", [5, 0, 0])),
        (1, array("i", [0, 0, 0, 0, 0, 0, -1])),
    ):  # fmt: skip
        given = sound()
        given[position] = bad
        with pytest.raises(ValueError):
            kernel.gather_headers(*given)
