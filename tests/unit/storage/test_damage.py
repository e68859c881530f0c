"""Damage in a segment: whatever bit flips, nothing of it is served, and all the rest is."""

from __future__ import annotations

import random

import pytest

from tests.unit.storage.helpers import DIRECTORY, World, batch
from tidelog.errors import StorageError
from tidelog.protocol.batches import iterate_batches
from tidelog.storage.damage import Checked, Damage, DamagedBatchError, check, mark
from tidelog.storage.log import Log
from tidelog.storage.segment import Segment

PATH = f"{DIRECTORY}/{0:020d}.log"
BATCHES = 8


def filled(here: World) -> Log:
    log = here.open()
    for number in range(BATCHES):
        log.append(batch(2, fill=number), 0, here.clock.wall_ms())
    return log


def whole(segment: Segment) -> Checked:
    return check(segment, Checked(0, segment.base_offset), segment.size_bytes, 1 << 30)


def served(log: Log, offset: int = 0) -> bytes:
    """What a reader gets from the disk from there on."""
    slices = log.read(offset, 1 << 20, log.end_position)
    try:
        return b"".join(piece.read(0, piece.length) for piece in slices.slices)
    finally:
        slices.release()


def test_s3_whatever_byte_is_damaged_it_is_found_and_not_served() -> None:
    """What no checksum covers, as where a batch begins, contradicts the batch behind it."""
    chance = random.Random(3)
    tried = 0
    size = len(batch(2).buffer)
    for byte in range(size):
        here = World()
        log = filled(here)
        segment = log.segments.active
        place = chance.randrange(1, BATCHES - 1)
        here.disk.corrupt(PATH, place * size + byte, 1 << chance.randrange(8))
        good = served_before(log, place)
        assert whole(segment).damage is not None, byte
        with pytest.raises(DamagedBatchError):
            served(log)
        assert segment.damaged
        # A good batch less where it might be the damaged one.
        assert good.startswith(served(log)) and len(served(log)) >= len(good) - size
        tried += 1
    assert tried == size


def served_before(log: Log, place: int) -> bytes:
    """The bytes of the first batches, which were not touched."""
    size = log.segments.active.size_bytes // BATCHES
    with log.segments.active.log_file as fd:
        return log.context.disk.pread(fd, place * size, 0)


def test_readers_get_what_is_before_and_behind_a_damaged_batch() -> None:
    here = World()
    log = filled(here)
    size = log.segments.active.size_bytes // BATCHES
    here.disk.corrupt(PATH, 3 * size + 65)
    found: list[Segment] = []
    log.context.on_damage = found.append
    # Not checked before it was asked for from the disk.
    with pytest.raises(DamagedBatchError, match=f"damaged at byte {3 * size}: .* checksum"):
        served(log, 4)
    assert found == [log.segments.active]
    assert [each[:2] for each in found[0].damaged] == [(3 * size, 4 * size)]
    assert len(served(log)) == 3 * size
    with pytest.raises(StorageError, match="damaged at byte"):
        log.read(6, 1 << 20, log.end_position)
    behind = served(log, 8)
    assert [header.base_offset for _, header in iterate_batches(behind)] == [8, 10, 12, 14]
    # It is told once.
    assert whole(found[0]).damage is not None
    mark(found[0], found[0].damaged[0])
    assert len(found) == 1


def test_a_slice_that_waits_to_be_sent_is_not_sent_once_damage_is_found_in_it() -> None:
    here = World()
    log = filled(here)
    segment = log.segments.active
    size = segment.size_bytes // BATCHES
    slices = log.read(0, 1 << 20, log.end_position)
    (piece,) = slices.slices
    assert piece.read_cached_into(memoryview(bytearray(size)), 0) == size
    mark(segment, Damage(3 * size, 4 * size, "found by the scrub"))
    with pytest.raises(DamagedBatchError, match="found by the scrub"):
        piece.read_cached_into(memoryview(bytearray(size)), size)
    slices.release()


def test_a_shorter_file_and_a_length_that_lies_are_damage_to_the_end() -> None:
    here = World()
    log = filled(here)
    segment = log.segments.active
    size = segment.size_bytes // BATCHES
    here.disk.corrupt(PATH, 2 * size + 9, 0x10)
    damage = whole(segment).damage
    assert damage is not None and damage[:2] == (2 * size, segment.size_bytes)
    with segment.log_file as fd:
        here.disk.truncate(fd, size)
    damage = whole(segment).damage
    assert damage == Damage(size, segment.size_bytes, "the file is shorter than it was")


def test_a_check_goes_on_where_the_last_one_ended() -> None:
    here = World()
    log = filled(here)
    segment = log.segments.active
    size = segment.size_bytes // BATCHES
    here.disk.corrupt(PATH, 5 * size + 65)
    at, steps = Checked(0, 0), 0
    while at.damage is None:
        at = check(segment, at, segment.size_bytes, 1)
        steps += 1
    assert at.end == 5 * size and steps >= 1


def test_what_a_cut_took_away_is_no_damage() -> None:
    here = World()
    log = filled(here)
    slices = log.read(0, 1 << 20, log.end_position)
    (piece,) = slices.slices
    cut = log.cuts.truncation(6)
    assert cut is not None
    cut.run()
    log.cuts.done(cut)
    with pytest.raises(StorageError, match="truncated under a reader"):
        piece.read(0, piece.length)
    slices.release()
    assert not log.segments.active.damaged
