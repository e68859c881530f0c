"""`murmur2`, `choose_partitions`, `group_rows` and `fill`: rows dealt to partitions and packed."""

from __future__ import annotations

import random
from array import array
from types import ModuleType

import pytest

from tests.unit.kernels.columns import Batch, Columns, int32, int64
from tests.unit.kernels.forms import FORMS
from tests.unit.kernels.payloads import payload, random_rows

# The vectors of Kafka's own UtilsTest, as signed 32-bit integers.
JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("data", "expected"), JAVA_VECTORS.items())
def test_murmur2_gives_the_values_of_java(kernel: ModuleType, data: bytes, expected: int) -> None:
    assert kernel.murmur2(data) == expected & 0xFFFFFFFF


def test_murmur2_takes_bytes_above_127_and_every_tail_length(kernel: ModuleType) -> None:
    values = {kernel.murmur2(bytes([255] * length)) for length in range(9)}
    assert len(values) == 9
    assert all(0 <= value < 1 << 32 for value in values)


def test_every_form_hashes_alike() -> None:
    chance = random.Random(11)
    for _ in range(300):
        data = chance.randbytes(chance.randrange(70))
        assert len({kernel.murmur2(data) for kernel in FORMS.values()}) == 1


def column(values: list[bytes | None]) -> tuple[array[int], bytes, bytes]:
    ends, bits = [0], bytearray((len(values) + 7) // 8)
    for number, value in enumerate(values):
        ends.append(ends[-1] + len(value or b""))
        bits[number >> 3] |= (value is not None) << (number & 7)
    return array("i", ends), b"".join(value or b"" for value in values), bytes(bits)


def test_a_given_partition_wins_over_the_key_and_the_key_over_chance(kernel: ModuleType) -> None:
    keys = [b"a", b"b", None, None, b""]
    given = (array("i", [3, 99, 2, -7, 99]), b"\x05")
    output = int32(5)
    assert kernel.choose_partitions(column(keys), given, 5, 7, output) == -1
    hashed = [(kernel.murmur2(key) & 0x7FFFFFFF) % 7 for key in (b"b", b"")]
    assert list(output) == [3, hashed[0], 2, -1, hashed[1]]
    assert kernel.choose_partitions(None, None, 5, 7, output) == -1
    assert list(output) == [-1] * 5
    assert kernel.choose_partitions(column(keys), None, 5, 7, output) == -1
    assert output[0] == (kernel.murmur2(b"a") & 0x7FFFFFFF) % 7


@pytest.mark.parametrize("number", [-1, 7, 1 << 30])
def test_the_first_partition_that_does_not_exist_is_told(kernel: ModuleType, number: int) -> None:
    given = (array("i", [0, 6, number, number]), None)
    assert kernel.choose_partitions(None, given, 4, 7, int32(4)) == 2


def test_rows_are_grouped_in_their_order(kernel: ModuleType) -> None:
    chance = random.Random(12)
    for _ in range(40):
        partition_count, count = chance.randrange(1, 9), chance.randrange(60)
        partitions = array("i", [chance.randrange(-1, partition_count) for _ in range(count)])
        ends, rows = int32(partition_count + 2), int32(count)
        kernel.group_rows(partitions, count, partition_count, ends, rows)
        assert list(rows[: ends[0]]) == [at for at in range(count) if partitions[at] < 0]
        for number in range(partition_count):
            expected = [at for at in range(count) if partitions[at] == number]
            assert list(rows[ends[number] : ends[number + 1]]) == expected


def test_a_payload_is_filled_piece_by_piece_from_chosen_rows(kernel: ModuleType) -> None:
    chance = random.Random(13)
    for _ in range(40):
        rows = random_rows(chance, 30)
        columns = Columns(kernel, [Batch(payload(rows), 30, 0, 0)])
        chosen = array("i", chance.sample(range(30), 20))
        expected = payload([rows[at] for at in chosen])
        output = bytearray(len(expected))
        given = (columns.key, columns.value, columns.headers)
        taken, position, highest = 0, 0, -(1 << 63)
        while taken < 20:
            count = chance.randrange(1, 21 - taken)
            more, position, top = kernel.fill(
                output, position, taken, columns.timestamp, 0, given, chosen, taken, count
            )
            assert more == count
            taken, highest = taken + more, max(highest, top)
        assert output == expected
        assert position == len(expected)
        assert highest == max(rows[at].timestamp_delta for at in chosen)


def test_filling_stops_before_the_row_that_does_not_fit(kernel: ModuleType) -> None:
    rows = random_rows(random.Random(14), 30)
    columns = Columns(kernel, [Batch(payload(rows), 30, 0, 0)])
    given = (columns.key, columns.value, columns.headers)
    for count in range(30):
        whole = payload(rows[:count])
        output = bytearray(len(payload(rows[: count + 1])) - 1)
        filled = kernel.fill(output, 0, 0, columns.timestamp, 0, given, None, 0, 30)
        assert filled[:2] == (count, len(whole))
        assert output[: len(whole)] == whole


def test_dealing_refuses_arrays_that_do_not_hold_what_they_claim(kernel: ModuleType) -> None:
    good = column([b"a", b"b"])
    short = (array("i", [0, 1]), b"ab", None)
    outside = (array("i", [0, 1, 9]), b"ab", None)
    for key, given, count, partitions, output in (
        (short, None, 2, 3, int32(2)),
        (outside, None, 2, 3, int32(2)),
        ((good[0], good[1], b""), None, 2, 3, int32(2)),
        (good, None, 2, 3, int32(1)),
        (good, None, 2, 0, int32(2)),
        (good, None, -1, 3, int32(2)),
        (good, (int32(1), None), 2, 3, int32(2)),
        (good, (int32(2), b""), 2, 3, int32(2)),
    ):
        with pytest.raises(ValueError):
            kernel.choose_partitions(key, given, count, partitions, output)
    for partitions, count, partition_count, ends, rows in (
        (int32(2), 3, 1, int32(3), int32(3)),
        (int32(2), 2, 1, int32(2), int32(2)),
        (int32(2), 2, 1, int32(3), int32(1)),
        (int32(2), -1, 1, int32(3), int32(2)),
        (array("i", [0, 1]), 2, 1, int32(3), int32(2)),
        (array("i", [0, -2]), 2, 1, int32(3), int32(2)),
    ):
        with pytest.raises(ValueError):
            kernel.group_rows(partitions, count, partition_count, ends, rows)


def test_filling_refuses_rows_and_positions_outside_its_arrays(kernel: ModuleType) -> None:
    good = (column([b"a", b"b"]), column([b"a", b"b"]), None)
    for position, first, rows, start, count in (
        (0, 0, array("i", [0, 2]), 0, 2),
        (0, 0, array("i", [-1]), 0, 1),
        (0, 0, array("i", [0]), 0, 2),
        (0, 0, array("i", [0]), 1, 1),
        (-1, 0, None, 0, 2),
        (101, 0, None, 0, 2),
        (0, -1, None, 0, 2),
        (0, (1 << 31) - 1, None, 0, 2),
        (0, 0, None, 0, 3),
        (0, 0, None, 1 << 62, 1),
    ):
        with pytest.raises(ValueError):
            kernel.fill(bytearray(100), position, first, int64(2), 0, good, rows, start, count)
