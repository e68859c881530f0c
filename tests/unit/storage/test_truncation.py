"""Cutting a log: at once in memory, then on disk, and safe against a crash at every step."""

from __future__ import annotations

import errno

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
    create_log,
    finish_cut,
    flush,
    idempotent,
    offsets,
    start_over,
    stored_batches,
    truncate,
)
from tidelog.config import TopicConfig
from tidelog.errors import KafkaError, StorageError
from tidelog.protocol.batches import read_header
from tidelog.storage.data_dir import DataDir
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.testing.disk import CrashMode, PowerCut, SimulatedDisk

CONFIG = TopicConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=0)
CHANGES = ("pwritev", "truncate", "rename", "unlink", "fdatasync", "sync_dir", "make_dir")


def filled(world: World, count: int = 20) -> Log:
    log = world.open()
    for number in range(count):
        append(log, batch(fill=number), epoch=number // 5)
    return log


def changes_of(world: World) -> int:
    return sum(world.disk.calls_of(name) for name in CHANGES)


def test_rule_16_a_write_out_overtaken_by_a_truncation_proves_nothing() -> None:
    """After the cut the segment gets the size again that it had when the write-out began."""
    world = World(config=TopicConfig(segment_bytes=1 << 20))
    log = world.open()
    for number in range(4):
        append(log, batch(fill=number))
    overtaken = log.flush_plan()
    overtaken.run()
    truncate(log, 2)
    for number in range(2):
        append(log, batch(fill=40 + number), epoch=2)
    stored = stored_batches(log)
    # Only now does the loop hear that the write-out has ended.
    assert not log.flushed(overtaken)
    assert log.flushed_offset == 2
    flush(log)
    assert log.flushed_offset == 4
    log = world.reopen_after(world.disk.crash(CrashMode.LOSE_ALL), recovery_point=4)
    assert stored_batches(log) == stored


def test_a_cut_changes_no_file_before_it_is_run() -> None:
    world = World(config=CONFIG)
    log = filled(world)
    before = changes_of(world)
    cut = log.cuts.truncation(7)
    assert log.log_end_offset == 7
    assert offsets(log) == list(range(7))
    assert changes_of(world) == before
    assert cut is not None
    finish_cut(log, cut)
    assert offsets(log) == list(range(7))
    assert log.flushed_offset == 7
    assert log.epochs.entries == [(0, 0), (1, 5)]


def test_nothing_writes_to_a_log_that_is_being_cut() -> None:
    world = World(config=CONFIG)
    log = filled(world)
    sealed = log.segments[0]
    cut = log.cuts.truncation(7)
    for wrong in (
        lambda: append(log, epoch=9),
        lambda: log.append_as_follower(batch(base_offset=7, leader_epoch=9).buffer, 9),
        log.flush_plan,
        lambda: log.cuts.truncation(3),
        lambda: log.cuts.start_over(0),
    ):
        with pytest.raises(AssertionError, match="is being cut"):
            wrong()
    with pytest.raises(StorageError, match="is being cut"):
        log.write_for_stop()
    assert log.apply_retention(NOW_MS + 10**12, 7) == 0
    assert not log.roll_if_due(NOW_MS + 10**12)
    assert not log.replace_segments([sealed], sealed)
    finish_cut(log, cut)
    assert append(log, epoch=9).base_offset == 7


def test_a_cut_that_cuts_nothing_forgets_the_epoch_of_a_leader_without_records() -> None:
    """Else what the next leader appended in an older epoch would be refused for ever."""
    log = World().open()
    log.append_as_follower(batch(2, leader_epoch=4).buffer, 4)
    log.epochs.assign(6, 2)
    assert log.cuts.truncation(2) is None
    assert log.epochs.entries == [(4, 0)]
    log.append_as_follower(batch(base_offset=2, leader_epoch=5).buffer, 7)


def test_a_start_over_forgets_the_producers_of_the_log_that_was() -> None:
    """An old snapshot says nothing of a log that goes on far behind it."""
    world = World(config=CONFIG)
    log = world.open()
    for sequence in range(12):
        append(log, idempotent(sequence))
    flush(log)
    start_over(log, 500)
    assert not log.producers.states
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (500, 500, 500)
    assert append(log, idempotent(40)).base_offset == 500
    close(log)
    log = world.open(clean=True, recovery_point=501, log_start=500)
    assert log.producers.states[7].last_sequence == 40
    assert not [name for name in world.disk.list_dir(DIRECTORY) if name < f"{500:020d}"]


def test_producers_are_read_again_from_what_is_left() -> None:
    log = World(config=CONFIG).open()
    for sequence in range(12):
        append(log, idempotent(sequence))
    cut = log.cuts.truncation(6)
    finish_cut(log, cut)
    assert log.producers.states[7].last_sequence == 5
    assert append(log, idempotent(6)).base_offset == 6


def test_a_damaged_batch_at_the_cut_is_found_before_anything_is_changed() -> None:
    world = World(config=CONFIG)
    log = world.open()
    for sequence in range(12):
        append(log, idempotent(sequence))
    flush(log)
    first = log.segments[0]
    with first.log_file as fd:
        world.disk.pwritev(fd, (b"\xff" * 300,), 80)
    with pytest.raises(StorageError):
        log.cuts.truncation(2)
    assert (log.log_end_offset, log.flushed_offset, log.cuts.under_way) == (12, 12, None)
    assert append(log, idempotent(12)).base_offset == 12


def test_s20_a_slice_that_a_thread_reads_is_refused_when_the_cut_comes_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(config=TopicConfig(segment_bytes=1 << 20))
    log = filled(world, 6)
    slices = log.read(3, 1 << 20, log.end_position)
    pread = world.disk.pread

    def cut_first(fd: int, length: int, position: int) -> bytes:
        monkeypatch.setattr(world.disk, "pread", pread)
        truncate(log, 4)
        for number in range(6):
            append(log, batch(fill=50 + number), epoch=2)
        return pread(fd, length, position)

    monkeypatch.setattr(world.disk, "pread", cut_first)
    with pytest.raises(StorageError, match="truncated under a reader"):
        slices.read_all()
    slices.release()


def test_a_cut_through_a_long_index_reads_little_of_it() -> None:
    world = World(config=TopicConfig(segment_bytes=1 << 24, index_interval_bytes=100))
    log = world.open()
    data = b"".join(
        bytes(batch(base_offset=number, size=40, timestamp=NOW_MS + number).buffer)
        for number in range(3000)
    )
    log.append_as_follower(memoryview(data), 0)
    assert log.segments.active.offsets.entries > 1000
    reads = world.disk.calls_of("pread")
    cut = log.cuts.truncation(5)
    assert world.disk.calls_of("pread") - reads < 60
    finish_cut(log, cut)
    assert offsets(log) == list(range(5))


@pytest.mark.parametrize("kind", ["open", "truncate", "rename", "unlink", "fdatasync", "sync_dir"])
def test_a_disk_that_fails_under_a_cut_takes_the_log_offline(kind: str) -> None:
    world = World(config=CONFIG)
    log = filled(world)
    cut = log.cuts.truncation(7)
    assert cut is not None
    for segment in log.segments:
        segment.log_file.close()
    world.disk.fail_next(kind, errno.EIO)
    cut.run()
    if kind == "unlink":
        # A snapshot that stays is passed over: its offset is above the end.
        log.cuts.done(cut)
        return
    with pytest.raises(KafkaError):
        log.cuts.done(cut)
    assert log.offline
    assert log.cuts.under_way is cut


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EMFILE])
def test_a_cut_that_is_refused_for_now_can_be_run_again(fault: int) -> None:
    good = World(config=CONFIG)
    cut = filled(good).cuts.truncation(7)
    assert cut is not None
    before = good.disk.calls
    cut.run()
    refused = 0
    for call in range(1, good.disk.calls - before + 1):
        world = World(config=CONFIG)
        log = filled(world)
        cut = log.cuts.truncation(7)
        assert cut is not None
        world.disk.fail_at(world.disk.calls + call, fault)
        cut.run()
        try:
            log.cuts.done(cut)
        except KafkaError:
            if log.offline:
                # A sync that fails is final, whatever it says.
                continue
            assert log.cuts.under_way is cut
            refused += 1
            finish_cut(log, cut)
        assert offsets(log) == list(range(7))
        assert append(log, epoch=9).base_offset == 7
    assert refused > 5


# In a data directory, with a crash at each call


def data_dir_with(disk: SimulatedDisk, *, create: bool) -> tuple[World, DataDir, Log]:
    world = World(disk, config=CONFIG)
    data_dir = DataDir.open("/data", world.context)
    loaded = data_dir.load_logs({} if create else {PARTITION: NewLog(TOPIC_ID, CONFIG)})
    assert not loaded.offline, loaded.offline
    if create:
        return world, data_dir, create_log(data_dir, PARTITION, NewLog(TOPIC_ID, CONFIG))
    return world, data_dir, loaded.logs[PARTITION]


def lived(disk: SimulatedDisk) -> tuple[DataDir, Log, list[bytes]]:
    """A log from 6 to 20, retention has taken the rest; flushed and checkpointed."""
    world, data_dir, log = data_dir_with(disk, create=True)
    for number in range(20):
        append(log, batch(fill=number), epoch=number // 5)
    log.advance_log_start(6)
    log.apply_retention(NOW_MS, 20)
    flush(log)
    data_dir.checkpoint({PARTITION: 18}).run()
    world.run_deferred()
    data_dir.checkpoint(None).run()
    assert log.segments.bases[0] > 0
    return data_dir, log, stored_batches(log)


# Where the log is cut: in a segment, at the start of one, and starting over: below all, at the
# log's start, inside, at a segment's start, behind all.
CUTS = {
    "cut in a segment": lambda log: log.cuts.truncation(14),
    "cut at a segment": lambda log: log.cuts.truncation(log.segments.bases[2]),
    "cut in the first": lambda log: log.cuts.truncation(log.log_start_offset + 1),
    "over from below": lambda log: log.cuts.truncation(2),
    "over at the start": lambda log: log.cuts.truncation(log.log_start_offset),
    "over inside": lambda log: log.cuts.start_over(14),
    "over at a segment": lambda log: log.cuts.start_over(log.segments.bases[2]),
    "over behind": lambda log: log.cuts.start_over(400),
}


@pytest.mark.parametrize("name", list(CUTS))
def test_s16_a_crash_at_each_call_of_a_cut_leaves_a_prefix(name: str) -> None:
    crashes, modes = 0, [*CrashMode, CrashMode.RANDOM]
    while True:
        mode = modes[crashes % len(modes)]
        disk = SimulatedDisk(crashes)
        data_dir, log, old = lived(disk)
        start, wanted = log.log_start_offset, None
        disk.fail_at(disk.calls + crashes + 1, "crash")
        try:
            cut = CUTS[name](log)
            wanted = (log.log_start_offset, log.log_end_offset)
            finish_cut(log, cut, data_dir)
            append(log, batch(fill=99), epoch=9)
            new = stored_batches(log)
            flush(log)
            data_dir.checkpoint({PARTITION: log.log_start_offset}).run()
        except PowerCut:
            crashes += 1
        else:
            break
        after = disk.crash(mode)
        first = found_in(after)
        assert found_in(after.crash(CrashMode.LOSE_ALL)) == first
        check_prefix(first, wanted, old, start)
    disk.fail_at(disk.calls + 1, "crash")
    assert found_in(disk.crash(mode))[2] == new
    assert crashes > 15


def found_in(disk: SimulatedDisk) -> tuple[int, int, list[bytes]]:
    """What a start finds; it is served, and leaves the disk as a kill would."""
    _, data_dir, log = data_dir_with(disk, create=False)
    found = log.log_start_offset, log.log_end_offset, stored_batches(log)
    data_dir.abandon()
    return found


def check_prefix(
    found: tuple[int, int, list[bytes]],
    wanted: tuple[int, int] | None,
    old: list[bytes],
    old_start: int,
) -> None:
    start, end, batches = found
    if wanted is None:
        assert (start, batches) == (old_start, old)
        return
    assert start in (old_start, wanted[0])
    assert start <= end
    kept = [each for each in old if wanted[0] < read_header(each).last_offset + 1 <= wanted[1]]
    assert batches[: len(kept)] == kept
    # Behind them nothing but what the old log had there, or the one batch that was written after.
    behind = batches[len(kept) :]
    assert is_run_of(behind, old) or len(behind) == 1


def is_run_of(part: list[bytes], whole: list[bytes]) -> bool:
    return any(whole[place : place + len(part)] == part for place in range(len(whole)))
