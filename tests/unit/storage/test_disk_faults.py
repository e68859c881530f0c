"""Full disks, failing disks, readers of what is deleted."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from tests.unit.storage.helpers import (
    DIRECTORY,
    NOW_MS,
    World,
    append,
    append_marker,
    batch,
    close,
    flush,
    marker,
    offsets,
    stored_batches,
    transactional,
    truncate,
)
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.storage.admission import Admitted
from tidelog.storage.faults import LogOfflineError
from tidelog.storage.log import Log
from tidelog.storage.partition_directory import remove_tree
from tidelog.testing.disk import CrashMode


def storage_error(log: Log, item: Admitted | None = None) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        append(log, item)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return caught.value


@pytest.mark.parametrize("room", [0, 1, 60, 61, 100, 5000, 23_000])
def test_s10_a_full_disk_refuses_the_batch_and_leaves_no_part_of_it(room: int) -> None:
    world = World(config=TopicConfig(segment_bytes=1 << 20))
    log = world.open()
    append(log, batch(2))
    before = stored_batches(log)
    size = log.segments.size_bytes
    world.disk.capacity_bytes = world.disk.used_bytes() + room
    for _ in range(3):
        storage_error(log, batch(size=24_000))
        assert log.segments.size_bytes == size
        assert len(world.disk.content(f"{DIRECTORY}/{0:020d}.log")) == size
        assert stored_batches(log) == before
    world.disk.capacity_bytes = None
    assert append(log, batch(size=24_000)).base_offset == 2
    assert offsets(log) == [0, 1, 2]
    assert not log.offline
    assert world.offline == []


def test_s10_a_smaller_batch_after_a_short_write_does_not_land_behind_garbage() -> None:
    world = World(config=TopicConfig(segment_bytes=1 << 20))
    log = world.open()
    append(log)
    world.disk.capacity_bytes = world.disk.used_bytes() + 1000
    storage_error(log, batch(size=5000))
    append(log, batch(size=500))
    world.disk.capacity_bytes = None
    stored = stored_batches(log)
    log = world.reopen_after(world.disk.crash(CrashMode.KEEP_ALL))
    assert stored_batches(log) == stored
    assert log.repairs.truncated_bytes == 0


def test_s11_a_full_disk_while_rolling_refuses_and_recovers() -> None:
    world = World(config=TopicConfig(segment_bytes=400, index_interval_bytes=10))
    log = world.open()
    append(log, batch(size=100))
    append(log, batch(size=100))
    stored = stored_batches(log)
    for room in range(0, 120, 8):
        world.disk.capacity_bytes = world.disk.used_bytes() + room
        storage_error(log, batch(size=200))
        assert stored_batches(log) == stored
    world.disk.capacity_bytes = None
    assert append(log, batch(size=200)).base_offset == 2
    assert len(log.segments) == 2
    log = world.reopen_after(world.disk.crash(CrashMode.KEEP_ALL))
    assert offsets(log) == [0, 1, 2]


def test_s11_a_full_disk_while_flushing_moves_nothing_and_is_tried_again() -> None:
    world = World()
    log = world.open()
    append(log, epoch=3)
    world.disk.capacity_bytes = world.disk.used_bytes()
    plan = log.flush_plan()
    plan.run()
    with pytest.raises(KafkaError) as caught:
        log.flushed(plan)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.flushed_offset == 0
    assert not log.offline
    world.disk.capacity_bytes = None
    flush(log)
    assert log.flushed_offset == 1


def test_s11_an_index_that_finds_the_disk_full_stays_in_memory() -> None:
    world = World(config=TopicConfig(segment_bytes=1 << 20, index_interval_bytes=1))
    log = world.open()
    for number in range(511):
        append(log, batch(fill=number))
    size = batch().header.size_bytes
    world.disk.capacity_bytes = world.disk.used_bytes() + 3 * size
    for number in range(3):
        append(log, batch(fill=number))
    assert offsets(log) == list(range(514))
    assert log.locate(300).offset == 300
    world.disk.capacity_bytes = None
    for number in range(600):
        append(log, batch(fill=number))
    close(log)
    assert offsets(world.open(clean=True, recovery_point=1114)) == list(range(1114))


def test_s12_a_failed_sync_takes_the_log_offline_and_is_not_tried_again() -> None:
    world = World()
    log = world.open()
    append(log)
    world.disk.fail_next("fdatasync", errno.EIO)
    plan = log.flush_plan()
    plan.run()
    with pytest.raises(LogOfflineError):
        log.flushed(plan)
    assert log.offline
    assert [path for path, _ in world.offline] == [DIRECTORY]
    assert log.flushed_offset == 0
    storage_error(log)
    with pytest.raises(StorageError):
        log.flush_plan()
    with pytest.raises(StorageError):
        close(log)
    assert len(world.offline) == 1


@pytest.mark.parametrize("fault", [errno.EIO, errno.EROFS, errno.ENODEV])
def test_s15_a_failing_write_takes_the_log_offline_and_reads_go_on(fault: int) -> None:
    world = World()
    log = world.open()
    append(log, batch(3))
    world.disk.fail_next("pwritev", fault)
    error = storage_error(log)
    assert isinstance(error, LogOfflineError)
    assert offsets(log) == [0, 1, 2]
    assert log.apply_retention(NOW_MS + 10**12, 3) == 0
    assert not log.roll_if_due(NOW_MS + 10**12)


def test_s15_a_failing_read_is_a_storage_error() -> None:
    world = World()
    log = world.open()
    for _ in range(5):
        append(log)
    world.disk.fail_next("pread", errno.EIO)
    with pytest.raises(KafkaError) as caught:
        log.read(3, 1, log.end_position)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_s14_descriptors_running_out_are_taken_from_other_files() -> None:
    world = World(config=TopicConfig(segment_bytes=300))
    log = world.open()
    for number in range(40):
        append(log, batch(fill=number))
    world.disk.fail_next("open", errno.EMFILE)
    append(log, batch(size=200))
    assert offsets(log) == list(range(41))


def test_s14_without_any_descriptor_batches_are_refused_and_the_log_recovers() -> None:
    world = World(config=TopicConfig(segment_bytes=1000, index_interval_bytes=10))
    log = world.open()
    for number in range(12):
        append(log, batch(fill=number))
    close_idle_files(world)
    world.disk.descriptors_max = 0
    stored = log.log_end_offset
    for _ in range(3):
        storage_error(log, batch(size=600))
        storage_error(log, batch(size=10))
    assert (log.log_end_offset, log.offline, world.offline) == (stored, False, [])
    world.disk.descriptors_max = None
    assert append(log, batch(size=600)).base_offset == stored
    assert offsets(log) == list(range(stored + 1))


@pytest.mark.parametrize("opens", range(8))
def test_s14_a_roll_that_runs_out_of_descriptors_at_any_step_is_refused_and_recovers(
    opens: int,
) -> None:
    world = World(config=TopicConfig(segment_bytes=600, index_interval_bytes=10))
    log = world.open()
    append(log, batch(size=300))
    append(log, batch(size=100))
    close_idle_files(world)
    for step in range(opens, 40):
        world.disk.fail_next("open", errno.EMFILE, after=step)
    with suppress(KafkaError):
        append(log, batch(size=300))
    assert not log.offline
    world.disk._fault_calls.clear()
    append(log, batch(size=300))
    flush(log)
    assert len(log.segments) >= 2
    assert offsets(log) == list(range(log.log_end_offset))
    stored = stored_batches(log)
    log = world.reopen_after(world.disk.crash(CrashMode.KEEP_ALL))
    assert stored_batches(log) == stored


def test_s14_an_abort_marker_without_descriptors_is_refused_or_kept_whole() -> None:
    world = World(config=TopicConfig(segment_bytes=1 << 20))
    log = world.open()
    append(log, transactional(0))
    append_marker(log, marker(0))
    close(log)
    world.restart()
    log = world.open(clean=True, recovery_point=2)
    append(log, transactional(1))
    close_idle_files(world)
    log.segments[-1].log_file.pin()
    world.disk.descriptors_max = len(world.disk.open_files)
    with pytest.raises(KafkaError):
        append_marker(log, marker(0))
    world.disk.descriptors_max = None
    log.segments[-1].log_file.unpin()
    append_marker(log, marker(0))
    assert not log.offline
    assert log.segments.aborted_transactions(0, 4) == [(7, 0), (7, 2)]


def test_s14_a_flush_without_descriptors_moves_nothing_and_is_tried_again() -> None:
    world = World()
    log = world.open()
    append(log, epoch=3)
    close_idle_files(world)
    world.disk.descriptors_max = 0
    with pytest.raises(KafkaError) as caught:
        log.flush_plan()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.descriptors_max = None
    plan = log.flush_plan()
    world.disk.descriptors_max = len(world.disk.open_files)
    plan.run()
    with pytest.raises(KafkaError):
        log.flushed(plan)
    assert (log.flushed_offset, log.offline) == (0, False)
    world.disk.descriptors_max = None
    flush(log)
    assert log.flushed_offset == 1


def test_s14_a_directory_that_cannot_be_opened_to_be_synced_is_synced_later() -> None:
    world = World()
    log = world.open()
    append(log)
    world.disk.fail_next("sync_dir", errno.ENFILE)
    plan = log.flush_plan()
    plan.run()
    with pytest.raises(KafkaError):
        log.flushed(plan)
    assert (log.flushed_offset, log.offline) == (0, False)
    flush(log)
    log = world.reopen_after(world.disk.crash(CrashMode.LOSE_ALL))
    assert offsets(log) == [0]


def test_s14_an_index_that_gets_no_descriptor_stays_in_memory() -> None:
    world = World(config=TopicConfig(segment_bytes=1 << 20, index_interval_bytes=1))
    log = world.open()
    held = log.segments[-1].log_file
    held.pin()
    world.disk.descriptors_max = len(world.disk.open_files)
    for number in range(1200):
        append(log, batch(fill=number % 200))
    assert log.locate(300).offset == 300
    assert not log.offline
    world.disk.descriptors_max = None
    held.unpin()
    for number in range(600):
        append(log, batch(fill=number % 200))
    close(log)
    assert offsets(world.open(clean=True, recovery_point=1800)) == list(range(1800))


def test_s14_retention_without_descriptors_deletes_what_it_can_and_keeps_the_log() -> None:
    world = World(config=TopicConfig(segment_bytes=300, retention_ms=1000))
    log = world.open()
    for number in range(12):
        append(log, batch(fill=number))
    segments = len(log.segments)
    log.advance_log_start(log.segments.bases[-2])
    world.disk.fail_next("list_dir", errno.EMFILE)
    assert log.apply_retention(world.clock.now_ms, log.log_end_offset) == segments - 2
    assert not log.offline
    assert offsets(log) == list(range(log.segments.bases[0], 12))


def close_idle_files(world: World) -> None:
    """Take every descriptor that nobody has pinned."""
    with world.context.files.lock:
        for file in tuple(world.context.files.opened):
            file.evict()


def test_s20_a_deleted_segment_is_read_to_its_end_and_then_unlinked() -> None:
    world = World(config=TopicConfig(segment_bytes=300, retention_ms=1000), descriptors=1)
    log = world.open()
    for number in range(12):
        append(log, batch(fill=number))
    wanted = stored_batches(log)
    slices = log.read(0, 1 << 20, log.end_position)
    world.clock.advance(100_000)
    segments = len(log.segments)
    assert log.apply_retention(world.clock.now_ms, log.log_end_offset) == segments
    assert log.log_start_offset == 12
    world.run_deferred()
    for number in range(40):
        append(log, batch(fill=100 + number))
    assert slices.read_all() == b"".join(wanted)
    deleted = [name for name in world.disk.list_dir(DIRECTORY) if name.endswith(".deleted")]
    assert len([name for name in deleted if ".log" in name]) == segments
    slices.release()
    slices.release()
    assert {delay for delay, _ in world.deferred} == {60.0}
    world.run_deferred()
    assert not [name for name in world.disk.list_dir(DIRECTORY) if name.endswith(".deleted")]


def test_s20_a_truncated_slice_is_refused_rather_than_read_wrongly() -> None:
    world = World(config=TopicConfig(segment_bytes=1 << 20))
    log = world.open()
    for number in range(6):
        append(log, batch(fill=number))
    low = log.read(0, 2 * batch().header.size_bytes, log.end_position)
    high = log.read(3, 1 << 20, log.end_position)
    truncate(log, 4)
    for number in range(6):
        append(log, batch(fill=50 + number), epoch=2)
    assert len(low.read_all()) == low.size_bytes
    with pytest.raises(StorageError):
        high.read_all()
    low.release()
    high.release()


def test_a_plan_survives_the_deletion_of_what_it_syncs() -> None:
    world = World(config=TopicConfig(segment_bytes=300, retention_ms=1000, file_delete_delay_ms=0))
    log = world.open()
    for number in range(12):
        append(log, batch(fill=number))
    plan = log.flush_plan()
    world.clock.advance(100_000)
    assert log.apply_retention(world.clock.now_ms, log.log_end_offset)
    world.run_deferred()
    plan.run()
    log.flushed(plan)
    assert log.flushed_offset == 12
    plan = log.flush_plan()
    log.abandon()
    remove_tree(world.disk, log.directory)
    plan.run()
    log.flushed(plan)
    assert world.disk.open_files == []
    assert world.disk.list_dir("/data") == []


def test_overlapping_plans_leave_the_newest_leader_epochs() -> None:
    world = World()
    log = world.open()
    append(log, epoch=1)
    older = log.flush_plan()
    append(log, epoch=2)
    newer = log.flush_plan()
    for plan in (newer, older):
        plan.run()
    for plan in (newer, older):
        log.flushed(plan)
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    assert world.disk.content(path) == b"0\n2\n1 0\n2 1\n"


def test_s24_a_fault_between_write_and_bookkeeping_leaves_a_usable_log() -> None:
    world = World()
    log = world.open()
    append(log)
    segment = log.segments[-1]
    item = batch(3, size=300)
    segment.write(item.buffer)
    assert append(log, batch(size=10)).base_offset == 1
    assert offsets(log) == [0, 1]
    stored = stored_batches(log)
    log = world.reopen_after(world.disk.crash(CrashMode.KEEP_ALL))
    assert stored_batches(log) == stored


def test_i31_lose_all_keeps_all_that_was_flushed() -> None:
    world = World(config=TopicConfig(segment_bytes=500))
    log = world.open()
    for number in range(25):
        append(log, batch(2, fill=number), epoch=1 + number // 10)
        if number % 4 == 0:
            flush(log)
    flushed = log.flushed_offset
    stored = stored_batches(log)
    log = world.reopen_after(world.disk.crash(CrashMode.LOSE_ALL))
    assert log.log_end_offset == flushed == 50
    assert stored_batches(log) == stored
    assert log.epochs.entries == [(1, 0), (2, 20), (3, 40)]
