"""Chunks of batches, sound and damaged: every form of the kernel against a walker of a few lines.

The chunk given to a kernel ends where a page that may not be read begins, so that a read beyond its
end ends the process instead of passing unnoticed.
"""

from __future__ import annotations

import random
import struct
from array import array
from collections import Counter
from dataclasses import dataclass, replace
from types import ModuleType

import pytest
from crc32c import crc32c as reference_crc32c

from tests.unit.kernels.forms import BATCH_WALK_FORMS
from tests.unit.kernels.guarded import Guarded
from tidelog._kernels import batch_rows, batch_walk
from tidelog.protocol import batches
from tidelog.protocol.batches import BatchHeader

CASES = 8_000
INT64_MAX = (1 << 63) - 1
INT32_MAX = (1 << 31) - 1
EXTREMES = {
    0: [struct.pack(">q", value) for value in (-1, 0, INT32_MAX, INT64_MAX, INT64_MAX - 3)],
    8: [struct.pack(">i", value) for value in (-1, -13, 0, 48, 49, INT32_MAX, -(1 << 31), 400)],
    12: [struct.pack(">i", value) for value in (-1, 0, 3, 9, INT32_MAX, -(1 << 31))],
    16: [b"\0", b"\1", b"\xff"],
    17: [bytes(4)],
    23: [struct.pack(">i", value) for value in (-1, INT32_MAX, -(1 << 31), 5)],
}  # fmt: skip


@dataclass
class Bounds:
    """What a walk is given besides the bytes; the bytes are a file's from `chunk_start` on."""

    chunk_start: int = 0
    position: int = 0
    end: int = 0
    first_offset: int = 0
    offset_max: int = INT64_MAX
    leader_epoch: int = -1
    leader_epoch_max: int = INT32_MAX
    verify: bool = True
    capacity: int = 300


Walked = tuple[tuple[int, int, int, int, int, int], list[tuple[int, ...]]]


def reference(data: bytes, bounds: Bounds) -> Walked:
    """The walk, as one would write it without a thought for speed or for the size of integers."""
    position, expected, epoch = bounds.position, bounds.first_offset, bounds.leader_epoch
    rows: list[tuple[int, ...]] = []

    def answer(stop: int, needed: int = 0) -> Walked:
        return (stop, len(rows), position, expected, epoch, needed), rows

    while position != bounds.end:
        if position + 61 > bounds.end:
            return answer(batch_walk.PAST_END)
        if len(rows) == bounds.capacity:
            return answer(batch_walk.FULL)
        rest = data[position - bounds.chunk_start :]
        if len(rest) < 61:
            return answer(batch_walk.MORE, 61)
        fields = struct.unpack(">qiibIhiqqqhii", rest[:61])
        base, length, leader_epoch, magic, crc, _, last_delta = fields[:7]
        fault = (
            (magic != 2 and batch_walk.MAGIC)
            or (length < 49 and batch_walk.LENGTH)
            or (position + length + 12 > bounds.end and batch_walk.PAST_END)
            or (base < expected and batch_walk.OFFSET)
            or (last_delta < 0 and batch_walk.LAST_DELTA)
            or (base + last_delta > min(bounds.offset_max, INT64_MAX - 1) and batch_walk.OFFSET_MAX)
            or (bounds.verify and leader_epoch < epoch and batch_walk.EPOCH)
            or (bounds.verify and leader_epoch > bounds.leader_epoch_max and batch_walk.EPOCH_MAX)
        )
        if fault:
            return answer(fault)
        if bounds.verify:
            if len(rest) < length + 12:
                return answer(batch_walk.MORE, length + 12)
            if reference_crc32c(rest[21 : length + 12]) != crc:
                return answer(batch_walk.CHECKSUM)
        rows.append((*fields, position))
        position += length + 12
        expected = base + last_delta + 1
        epoch = leader_epoch
    return answer(batch_walk.END)


def walked(kernel: ModuleType, data: bytes | memoryview, bounds: Bounds) -> Walked:
    rows = array("q", [-7] * (batch_rows.ROW_FIELDS * bounds.capacity))
    checksum = reference_crc32c if bounds.verify else None
    answer = kernel.walk(
        data, bounds.chunk_start, bounds.position, bounds.end, bounds.first_offset,
        bounds.offset_max, bounds.leader_epoch, bounds.leader_epoch_max, checksum, rows,
    )  # fmt: skip
    width = batch_rows.ROW_FIELDS
    return answer, [tuple(rows[row * width : (row + 1) * width]) for row in range(answer[1])]


def random_batch(chance: random.Random, header: BatchHeader) -> bytes:
    """A batch with the given header and some bytes for records, its checksum right."""
    size = 61 + chance.choice((0, 1, 7, 8, 40, 139, 387, 388, chance.randrange(900)))
    buffer = bytearray(chance.randbytes(size))
    header.batch_length = size - 12
    batches.seal(buffer, 0, header)
    return bytes(buffer)


def random_chunk(chance: random.Random, count: int) -> tuple[bytes, list[int]]:
    """Sound batches that follow each other, and where each begins."""
    data, starts, offset, epoch = b"", [], chance.choice((0, 5, 1 << 40)), chance.randrange(3)
    for _ in range(count):
        offset += chance.choice((0, 0, 0, 1, 50))
        epoch += chance.choice((0, 0, 0, 1))
        delta = chance.choice((0, 0, 1, 9))
        header = BatchHeader(
            offset, leader_epoch=epoch, last_offset_delta=delta, record_count=delta + 1,
            attributes=chance.choice((0, 0x10, 0x20)), producer_id=chance.randrange(-1, 3),
            first_timestamp=1, max_timestamp=chance.randrange(-1, 1 << 41),
        )  # fmt: skip
        starts.append(len(data))
        data += random_batch(chance, header)
        offset += delta + 1
    return data, starts


def damage(chance: random.Random, data: bytes, starts: list[int]) -> bytes:
    damaged = bytearray(data)
    match chance.randrange(5):
        case 0:
            del damaged[chance.randrange(len(damaged) + 1) :]
        case 1:
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        case 2 | 3:
            field = chance.choice(list(EXTREMES))
            at = chance.choice(starts) + field
            value = chance.choice(EXTREMES[field])
            damaged[at : at + len(value)] = value
        case _:
            at = chance.randrange(len(damaged))
            damaged[at:] = chance.randbytes(len(damaged) - at)
    return bytes(damaged)


def random_bounds(chance: random.Random, data: bytes, whole: int) -> Bounds:
    start = chance.choice((0, 0, 1 << 20, INT64_MAX - (1 << 33)))
    return Bounds(
        chunk_start=start,
        position=start,
        end=start + chance.choice((len(data), len(data), whole, len(data) + 5000, 1 << 32)),
        first_offset=chance.choice((0, 0, 6)),
        offset_max=chance.choice((INT64_MAX, INT64_MAX - 1, 1 << 41, 300)),
        leader_epoch=chance.choice((-1, 0, 1)),
        leader_epoch_max=chance.choice((INT32_MAX, INT32_MAX, 3)),
        verify=chance.random() < 0.7,
        capacity=chance.choice((0, 1, 3, 300, 300, 300)),
    )


def test_every_form_walks_as_the_reference_does_through_sound_and_damaged_chunks(
    guarded: Guarded,
) -> None:
    chance = random.Random(41)
    stops: Counter[int] = Counter()
    for case in range(CASES):
        data, starts = random_chunk(chance, chance.randrange(1, 7))
        whole = len(data)
        if chance.random() < 0.8:
            data = damage(chance, data, starts)
        bounds = random_bounds(chance, data, whole)
        wanted = reference(data, bounds)
        view = guarded.put(data)
        for name, kernel in BATCH_WALK_FORMS.items():
            assert walked(kernel, view, bounds) == wanted, (name, case, data.hex(), bounds)
        stops[wanted[0][0]] += 1
    assert stops.total() == CASES
    assert sorted(stops) == list(range(12)), "each way to stop is met"
    assert min(stops.values()) > 20


def test_any_bytes_are_walked_without_a_read_outside_them(guarded: Guarded) -> None:
    chance = random.Random(43)
    for case in range(3_000):
        data = bytearray(chance.randbytes(chance.randrange(300)))
        if len(data) > 61:
            data[16] = 2
            data[8:12] = chance.choice(EXTREMES[8])
        bounds = Bounds(end=chance.choice((len(data), INT64_MAX)), verify=chance.random() < 0.5)
        wanted = reference(bytes(data), bounds)
        view = guarded.put(bytes(data))
        for name, kernel in BATCH_WALK_FORMS.items():
            assert walked(kernel, view, bounds) == wanted, (name, case, data.hex(), bounds)


@pytest.mark.parametrize("form", BATCH_WALK_FORMS)
def test_a_walk_goes_on_where_its_rows_or_its_chunk_had_ended(form: str) -> None:
    kernel = BATCH_WALK_FORMS[form]
    data, _ = random_chunk(random.Random(3), 40)
    at_once = walked(kernel, data, Bounds(end=len(data)))
    assert at_once[0][:3] == (batch_walk.END, 40, len(data))
    for chunk_bytes in (61, 200, 1000):
        found, length, bounds = [], chunk_bytes, Bounds(end=len(data), capacity=3)
        chunk = data[:length]
        while True:
            (stop, _, position, offset, epoch, needed), rows = walked(kernel, chunk, bounds)
            found += rows
            bounds = replace(bounds, position=position, first_offset=offset, leader_epoch=epoch)
            if stop == batch_walk.END:
                break
            if stop == batch_walk.MORE:
                assert needed > bounds.chunk_start + len(chunk) - position
                chunk = data[position : position + max(needed, chunk_bytes)]
                bounds.chunk_start = position
            else:
                assert stop == batch_walk.FULL
        assert found == at_once[1]


@pytest.mark.parametrize("form", BATCH_WALK_FORMS)
def test_what_a_follower_fetched_is_checked_with_one_call(form: str) -> None:
    kernel = BATCH_WALK_FORMS[form]
    headers = [BatchHeader(10 + row, leader_epoch=4 + row // 2) for row in range(4)]
    data = b"".join(random_batch(random.Random(row), each) for row, each in enumerate(headers))
    fetched = Bounds(end=len(data), first_offset=10, leader_epoch=4, leader_epoch_max=5)
    assert walked(kernel, data, fetched)[0] == (batch_walk.END, 4, len(data), 14, 5, 0)
    for stop, count, changed in (
        (batch_walk.OFFSET, 0, {"first_offset": 11}),
        (batch_walk.EPOCH, 0, {"leader_epoch": 5}),
        (batch_walk.EPOCH_MAX, 2, {"leader_epoch_max": 4}),
        (batch_walk.PAST_END, 3, {"end": len(data) - 1}),
    ):
        assert walked(kernel, data, replace(fetched, **changed))[0][:2] == (stop, count)


@pytest.mark.parametrize("form", BATCH_WALK_FORMS)
def test_the_tables_give_the_checksum_that_the_library_gives(form: str) -> None:
    chance = random.Random(5)
    for length in (*range(70), 447, 448, 1000):
        data = chance.randbytes(length)
        assert BATCH_WALK_FORMS[form].crc32c(data) == reference_crc32c(data)


@pytest.mark.parametrize("form", BATCH_WALK_FORMS)
def test_arrays_that_are_too_short_are_refused(form: str) -> None:
    kernel = BATCH_WALK_FORMS[form]
    rows, ints, longs = (array(kind, [0] * batch_rows.ROW_FIELDS) for kind in "qiq")
    none, notes = array("i"), array("q", [0] * batch_walk.NOTES)
    for count, given, entries in (
        (-1, notes, (ints, ints, longs, ints)),
        (2, notes, (ints, ints, longs, ints)),
        (1, array("q"), (ints, ints, longs, ints)),
        (1, notes, (none, ints, longs, ints)),
        (1, notes, (ints, none, longs, ints)),
        (1, notes, (ints, ints, array("q"), ints)),
        (1, notes, (ints, ints, longs, none)),
    ):
        with pytest.raises(ValueError, match="too few"):
            kernel.due_entries(rows, count, 0, 0, given, *entries)
    for count, slots, marks in ((-1, 1, 1), (2, 1, 2), (1, 1, 0), (1, 0, 1), (1, 3, 1)):
        with pytest.raises(ValueError, match=r"too few|power of two"):
            kernel.keep_for_replay(rows, count, array("q", [0] * 2 * slots), bytearray(marks))
    with pytest.raises(ValueError, match="before its chunk"):
        walked(kernel, b"", Bounds(chunk_start=5))
