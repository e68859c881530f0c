"""Opening a log after every kind of stop, one anomaly at a time."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from tests.unit.storage.helpers import (
    DIRECTORY,
    NOW_MS,
    PARTITION,
    TOPIC_ID,
    World,
    append,
    batch,
    close,
    flush,
    offset_for_timestamp,
    offsets,
    stored_batches,
    truncate,
)
from tidelog.config import TopicConfig
from tidelog.errors import StorageError
from tidelog.model import Codec
from tidelog.protocol.batches import (
    ATTRIBUTES_CONTROL,
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    seal,
)
from tidelog.protocol.compression import compress
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.storage.losses import Expectation
from tidelog.storage.producers import read_marker
from tidelog.storage.recovery import Opened, Opening, load
from tidelog.testing.disk import SECTOR_BYTES, CrashMode, SimulatedDisk

SEGMENT = f"{DIRECTORY}/{0:020d}.log"
INDEX = f"{DIRECTORY}/{0:020d}.index"
TIMES = f"{DIRECTORY}/{0:020d}.timeindex"
EPOCHS = f"{DIRECTORY}/leader-epoch-checkpoint"


def filled(world: World, count: int = 30) -> Log:
    log = world.open()
    for number in range(count):
        append(log, batch(2, fill=number, size=60, timestamp=NOW_MS + number))
    return log


def one_segment() -> World:
    return World(config=TopicConfig(segment_bytes=1 << 20, index_interval_bytes=300))


def test_s1_a_torn_last_batch_is_cut_off_at_every_byte() -> None:
    world = one_segment()
    log = filled(world, 3)
    whole = world.disk.content(SEGMENT)
    batches = stored_batches(log)
    start = len(whole) - len(batches[-1])
    for size in range(start, len(whole)):
        world = one_segment()
        world.open().abandon()
        world.disk.replace(SEGMENT, whole[:size])
        log = world.open()
        assert stored_batches(log) == batches[:-1]
        assert log.repairs.truncated_bytes == size - start
        assert append(log).base_offset == 4


def test_s1_a_torn_batch_with_sectors_of_zeros_is_cut_off() -> None:
    world = one_segment()
    log = filled(world, 20)
    whole = world.disk.content(SEGMENT)
    batches = stored_batches(log)
    for sector in range(len(whole) // SECTOR_BYTES):
        torn = bytearray(whole)
        torn[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES] = bytes(SECTOR_BYTES)
        world = one_segment()
        world.open().abandon()
        world.disk.replace(SEGMENT, bytes(torn))
        found = stored_batches(world.open())
        assert found == batches[: len(found)]
        assert sum(map(len, found)) <= sector * SECTOR_BYTES < sum(map(len, found)) + len(whole)


def test_s2_nothing_behind_a_hole_is_kept() -> None:
    world = one_segment()
    log = filled(world, 10)
    batches = stored_batches(log)
    whole = bytearray(world.disk.content(SEGMENT))
    start = sum(map(len, batches[:4]))
    whole[start : start + len(batches[4])] = bytes(len(batches[4]))
    world.disk.replace(SEGMENT, bytes(whole))
    log = world.reopen_after(world.disk.crash(CrashMode.KEEP_ALL))
    assert stored_batches(log) == batches[:4]
    assert log.log_end_offset == 8


def test_s2_segments_behind_a_hole_are_dropped() -> None:
    world = World(config=TopicConfig(segment_bytes=600))
    log = filled(world)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 4
    batches = stored_batches(log)
    world.disk.unlink(f"{DIRECTORY}/{bases[2]:020d}.log")
    log = world.reopen_after(world.disk.crash(CrashMode.KEEP_ALL))
    assert log.log_end_offset == bases[2]
    assert stored_batches(log) == batches[: bases[2] // 2]
    names = world.disk.list_dir(DIRECTORY)
    assert not any(name.startswith(f"{bases[3]:020d}") for name in names)


def test_s2_old_bytes_behind_a_truncation_are_not_taken_for_new_ones() -> None:
    """The blocks of a rewritten tail reach the disk, the cut before them does not."""
    world = one_segment()
    log = world.open()
    for number in range(6):
        append(log, batch(fill=number), epoch=3)
    old = stored_batches(log)
    flush(log)
    truncate(log, 3)
    append(log, batch(fill=40), epoch=5)
    new = stored_batches(log)
    mixed = b"".join([*new, *old[4:]])
    world.disk.replace(SEGMENT, mixed)
    log = world.reopen_after(world.disk.crash(CrashMode.KEEP_ALL))
    assert stored_batches(log) == new


def test_s3_an_offset_too_far_for_its_segment_ends_the_log_there() -> None:
    """The base offset lies outside the checksum, and index entries have 31 bits for offsets."""
    world = one_segment()
    log = filled(world, 10)
    batches = stored_batches(log)
    start = sum(map(len, batches[:6]))
    for position in (0, 1, 3, 4):
        damaged = bytearray(world.disk.content(SEGMENT))
        damaged[start + position] |= 0x80 if position == 4 else 0x40
        other = one_segment()
        other.open().abandon()
        other.disk.replace(SEGMENT, bytes(damaged))
        assert stored_batches(other.open()) == batches[:6]


def test_s3_a_flipped_bit_in_what_is_scanned_ends_the_log_there() -> None:
    world = one_segment()
    log = filled(world, 10)
    batches = stored_batches(log)
    start = sum(map(len, batches[:6]))
    for position in (0, 8, 16, 17, 21, 23, 57, 61, len(batches[6]) - 1):
        if position == 0:
            continue
        disk = world.disk.crash(CrashMode.KEEP_ALL)
        world.disk._down = False
        disk.corrupt(SEGMENT, start + position, 0x40)
        found = World(disk, config=world.config).open()
        assert stored_batches(found) == batches[:6], position


def test_s4_a_damaged_epoch_file_is_rebuilt_from_the_batches() -> None:
    for clean in (True, False):
        for damage in (None, b"", b"0\n2\n1 0\n", b"garbage", b"0\n1\n9 0\n", b"0\n2\n1 0\n2 7\n"):
            world = World(config=TopicConfig(segment_bytes=600))
            log = world.open()
            for number in range(20):
                append(log, batch(2, fill=number), epoch=1 + number // 8)
            close(log)
            assert world.disk.content(EPOCHS) == b"0\n3\n1 0\n2 16\n3 32\n"
            if damage is None:
                world.disk.unlink(EPOCHS)
            else:
                world.disk.replace(EPOCHS, damage)
            log = world.open(clean=clean, recovery_point=40)
            assert log.epochs.entries == [(1, 0), (2, 16), (3, 32)]


@pytest.mark.parametrize("path", [INDEX, TIMES])
@pytest.mark.parametrize("clean", [True, False])
def test_s5_any_damage_to_an_index_is_survived(path: str, clean: bool) -> None:
    world = one_segment()
    log = filled(world)
    batches = stored_batches(log)
    close(log)
    good = world.disk.content(path)
    chance = random.Random(5)
    cases = [b"", good[:-1], good + b"\0" * 24, b"\xff" * len(good), bytes(len(good)), good * 2]
    for _ in range(60):
        flipped = bytearray(good)
        flipped[chance.randrange(len(good))] ^= 1 << chance.randrange(8)
        cases.append(bytes(flipped))
    for case in cases:
        world.disk.replace(path, case)
        log = world.open(clean=clean, recovery_point=60)
        assert stored_batches(log, 400) == batches
        for offset in range(0, 60, 7):
            position = log.locate(offset)
            assert position.position == sum(map(len, batches[: offset // 2]))
            timestamp = NOW_MS + offset // 2
            assert offset_for_timestamp(log, timestamp) == (
                first_at_or_after(offset // 2),
                timestamp,
                0,
            )
        log.abandon()
    world.disk.unlink(path)
    assert stored_batches(world.open(clean=clean, recovery_point=60)) == batches


def first_at_or_after(number: int) -> int:
    """Batch n has records at times n and n + 1, so time n is first seen in the batch before."""
    return max(2 * number - 1, 0)


def test_s6_an_empty_file_where_a_segment_was_is_an_empty_segment() -> None:
    world = World(config=TopicConfig(segment_bytes=600))
    log = filled(world, 12)
    batches = stored_batches(log)
    last = log.segments[-1].base_offset
    world.disk.replace(f"{DIRECTORY}/{last:020d}.log", b"")
    log = world.reopen_after(world.disk.crash(CrashMode.KEEP_ALL))
    assert log.log_end_offset == last
    assert stored_batches(log) == batches[: last // 2]
    assert append(log).base_offset == last


def test_s6_a_segment_whose_name_was_not_synced_is_not_needed() -> None:
    world = World(config=TopicConfig(segment_bytes=600))
    log = filled(world, 3)
    flush(log)
    flushed = log.log_end_offset
    for number in range(10):
        append(log, batch(2, fill=number))
    log = world.reopen_after(world.disk.crash(CrashMode.LOSE_ALL), recovery_point=flushed)
    assert log.log_end_offset == flushed


@pytest.mark.parametrize("recovery_point", [0, 7, 20, 60, 61, 10**9])
def test_s7_checkpoints_older_or_newer_than_the_log(recovery_point: int) -> None:
    world = World(config=TopicConfig(segment_bytes=600))
    log = filled(world)
    batches = stored_batches(log)
    close(log)
    log = world.open(recovery_point=recovery_point)
    assert stored_batches(log) == batches
    assert log.flushed_offset == log.log_end_offset == 60


def test_s7_epochs_beyond_the_log_are_dropped() -> None:
    world = World()
    log = filled(world, 4)
    close(log)
    world.disk.replace(EPOCHS, b"0\n2\n0 0\n5 900\n")
    log = world.open(clean=True, recovery_point=8)
    assert log.epochs.entries == [(0, 0)]
    assert log.epochs.end_offset_for(5, log.log_end_offset) == (-1, -1)


def test_s7_a_log_start_above_the_log_leaves_an_empty_log_there() -> None:
    world = World()
    close(filled(world, 4))
    log = world.open(clean=True, recovery_point=8, log_start=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert append(log).base_offset == 50
    assert offsets(log) == [50]


def test_s8_a_lying_clean_marker_does_not_let_a_torn_batch_in() -> None:
    world = one_segment()
    log = filled(world, 8)
    batches = stored_batches(log)
    close(log)
    content = world.disk.content(SEGMENT)
    world.disk.replace(SEGMENT, content[:-10])
    log = world.open(clean=True, recovery_point=16)
    assert stored_batches(log) == batches[:-1]
    assert append(log).base_offset == 14


def test_s19_a_file_name_that_lies_about_its_offsets_ends_the_log_before_it() -> None:
    world = World(config=TopicConfig(segment_bytes=600))
    log = filled(world)
    batches = stored_batches(log)
    bases = [segment.base_offset for segment in log.segments]
    log.abandon()
    world.disk.rename(f"{DIRECTORY}/{bases[2]:020d}.log", f"{DIRECTORY}/{bases[2] + 1:020d}.log")
    log = world.open()
    assert stored_batches(log) == batches[: bases[2] // 2]


def test_left_overs_of_deletions_are_removed() -> None:
    world = World()
    close(filled(world, 4))
    for suffix in (".log.deleted", ".index.deleted", ".log.swap", ".log.cleaned"):
        fd = world.disk.open(f"{DIRECTORY}/{7:020d}{suffix}", create=True)
        world.disk.close(fd)
    log = world.open(clean=True, recovery_point=8)
    assert not [name for name in world.disk.list_dir(DIRECTORY) if f"{7:020d}" in name]
    assert log.log_end_offset == 8


def test_recovery_twice_gives_what_recovery_once_gave() -> None:
    for seed in range(20):
        world = World(SimulatedDisk(seed), config=TopicConfig(segment_bytes=900))
        log = filled(world, 10)
        flush(log)
        for number in range(20):
            append(log, batch(2, fill=number, size=90))
        log = world.reopen_after(world.disk.crash(CrashMode.RANDOM), recovery_point=20)
        first = stored_batches(log)
        log.abandon()
        log = world.open(recovery_point=20)
        assert stored_batches(log) == first
        assert log.repairs.truncated_bytes == 0
        log = world.reopen_after(world.disk.crash(CrashMode.LOSE_ALL), recovery_point=20)
        assert stored_batches(log) == first


def test_batches_larger_than_the_scans_chunk_are_recovered() -> None:
    world = World(config=TopicConfig(segment_bytes=64 << 20, max_message_bytes=32 << 20))
    log = world.open()
    for size in (3 << 20, 100, (1 << 20) - 61, 5 << 20, 10):
        append(log, batch(size=size))
    batches = stored_batches(log)
    log = world.reopen_after(world.disk.crash(CrashMode.KEEP_ALL))
    assert stored_batches(log) == batches


def opened(world: World) -> Opened:
    new = NewLog(TOPIC_ID, replace(world.config, index_interval_bytes=300))
    return load(Opening(PARTITION, new, world.context, Expectation(DIRECTORY), clean=False))


def test_what_recovery_read_and_cut_off_is_counted() -> None:
    world = one_segment()
    log = filled(world, 10)
    whole, batches = world.disk.content(SEGMENT), stored_batches(log)
    sound = sum(map(len, batches[:6]))
    bad_checksum = bytearray(whole)
    bad_checksum[sound + 70] ^= 1
    torn = whole[: sound + len(batches[6]) - 1]
    for content, offsets_cut in (
        (whole, 0),
        (bytes(bad_checksum), 8),
        (torn, 2),
        (whole[:sound] + bytes(500), 0),
        (whole[: sound + 30], 0),
    ):
        world = one_segment()
        world.open().abandon()
        world.disk.replace(SEGMENT, content)
        found = opened(world)
        assert found.repairs.recovered_bytes == len(content)
        assert found.repairs.truncated_bytes == (0 if content == whole else len(content) - sound)
        assert found.repairs.truncated_offsets == offsets_cut


def test_segments_dropped_behind_a_hole_are_counted() -> None:
    world = World(config=TopicConfig(segment_bytes=600))
    log = filled(world)
    sizes = {segment.base_offset: segment.size_bytes for segment in log.segments}
    bases = list(sizes)
    end = log.log_end_offset
    world.disk.unlink(f"{DIRECTORY}/{bases[2]:020d}.log")
    world.disk = world.disk.crash(CrashMode.KEEP_ALL)
    world.restart()
    found = opened(world)
    assert found.repairs.truncated_offsets == end - bases[3]
    assert found.repairs.truncated_bytes == sum(sizes[base] for base in bases[3:])
    assert found.repairs.recovered_bytes == sizes[bases[0]] + sizes[bases[1]]


def test_a_tail_that_cannot_be_read_is_cut_off_all_the_same() -> None:
    world = one_segment()
    log = filled(world, 10)
    batches = stored_batches(log)
    sound = sum(map(len, batches[:6]))
    damaged = bytearray(world.disk.content(SEGMENT))
    damaged[sound] = 0x80
    world.disk.replace(SEGMENT, bytes(damaged))
    world.disk = world.disk.crash(CrashMode.KEEP_ALL)
    world.restart()
    read = world.disk.pread

    def pread(fd: int, length: int, position: int) -> bytes:
        if position >= sound:
            raise OSError(errno.EIO, "Input/output error")
        return read(fd, length, position)

    world.disk.pread = pread  # type: ignore[method-assign]
    assert opened(world).repairs.truncated_bytes == len(damaged) - sound


@pytest.mark.parametrize(
    "stream", [b"garbage" * 9, compress(Codec.GZIP, bytes(70_000)), compress(Codec.ZSTD, b"")]
)
def test_a_compressed_marker_that_cannot_be_read_is_a_storage_error(stream: bytes) -> None:
    """Inflating raised an error that recovery does not expect, after up to 128 MiB."""
    marker = bytearray(HEADER_BYTES) + stream
    codec = Codec.ZSTD if stream == compress(Codec.ZSTD, b"") else Codec.GZIP
    header = BatchHeader(
        batch_length=len(marker) - LOG_OVERHEAD,
        attributes=codec | ATTRIBUTES_CONTROL,
        record_count=1,
    )
    seal(marker, 0, header)
    with pytest.raises(StorageError, match="control batch at offset 0"):
        read_marker(bytes(marker), header)
