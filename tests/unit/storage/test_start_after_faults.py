"""What a start, a stop and a removal leave behind when one of their steps fails."""

from __future__ import annotations

import errno
import uuid

import pytest

from tests.unit.storage.helpers import PARTITION, TOPIC_ID, World, append, batch, flush, offsets
from tests.unit.storage.test_losses import (
    DATA,
    HERE,
    INVENTORY,
    OTHER,
    OTHER_ID,
    lived,
    loaded,
    logs_in,
)
from tidelog.config import TopicConfig
from tidelog.errors import KafkaError, StorageError
from tidelog.host.disk import Disk
from tidelog.model import TopicPartition
from tidelog.storage.data_dir import DataDir
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.storage.reserve import RESERVE_BYTES, DiskReserve
from tidelog.testing.disk import CrashMode, PowerCut

MARKER = f"{DATA}/.kafka_cleanshutdown"


def test_s8_a_start_that_failed_after_a_crash_leaves_no_marker_of_a_clean_stop() -> None:
    world = lived(clean=False)
    world.restart()
    before = world.disk.content(f"{DATA}/recovery-point-offset-checkpoint")
    data_dir = DataDir.open(DATA, world.context)
    assert not data_dir.close()
    assert not world.disk.exists(MARKER)
    assert world.disk.content(f"{DATA}/recovery-point-offset-checkpoint") == before


def test_a_start_that_failed_after_a_clean_stop_leaves_the_marker() -> None:
    world = lived(clean=True)
    assert DataDir.open(DATA, world.context).close()
    assert world.disk.exists(MARKER)
    assert offsets(loaded(world)[1].logs[PARTITION]) == list(range(40))


def test_s8_a_partition_that_was_offline_after_a_crash_is_walked_once_it_is_back() -> None:
    world = lived(clean=False)
    metadata = world.disk.content(f"{HERE}/partition.metadata")
    world.disk.unlink(f"{HERE}/partition.metadata")
    data_dir, outcome = loaded(world)
    assert PARTITION in outcome.offline
    assert not data_dir.close()
    fd = world.disk.open(f"{HERE}/partition.metadata", create=True)
    world.disk.pwritev(fd, (metadata,), 0)
    world.disk.close(fd)
    data_dir, outcome = loaded(world)
    assert not data_dir.was_clean
    assert outcome.logs[PARTITION].repairs.recovered_bytes > 0


def test_nothing_is_unlinked_of_a_partition_that_is_refused() -> None:
    world = World(config=TopicConfig(segment_bytes=300))
    data_dir, _ = loaded(world)
    log = data_dir.logs[PARTITION]
    for number in range(13):
        append(log, batch(2, fill=number))
    flush(log)
    data_dir.checkpoint({PARTITION: 26}).run()
    for number in range(13):
        append(log, batch(2, fill=number))
    assert 26 not in log.segments.bases
    world.disk = world.disk.crash(CrashMode.KEEP_ALL)
    # The one that holds the recovery point: what lies behind it was not synced.
    lost = [name for name in logs_in(world) if int(name[:20]) < 26][-1]
    content = world.disk.content(f"{HERE}/{lost}")
    world.disk.unlink(f"{HERE}/{lost}")
    data_dir, outcome = loaded(world)
    assert PARTITION in outcome.offline
    data_dir.abandon()
    fd = world.disk.open(f"{HERE}/{lost}", create=True)
    world.disk.pwritev(fd, (content,), 0)
    world.disk.close(fd)
    assert offsets(loaded(world)[1].logs[PARTITION]) == list(range(52))


def test_s15_a_directory_that_cannot_be_read_is_one_partitions_trouble() -> None:
    world = lived(clean=True)
    world.disk.unlink(f"{HERE}/partition.metadata")
    world.disk.make_dir(f"{HERE}/partition.metadata")
    _, outcome = loaded(world)
    assert "is not readable" in outcome.offline[PARTITION]
    assert offsets(outcome.logs[OTHER]) == list(range(40))


def test_a_read_of_a_damaged_batch_never_moves_the_end_of_the_log() -> None:
    world = World(config=TopicConfig(segment_bytes=100_000, index_interval_bytes=100))
    log = world.open()
    for number in range(200):
        append(log, batch(2, fill=number))
    entry = log.segments[-1].offsets.from_end(50)
    assert entry is not None
    path = f"{HERE}/{0:020d}.log"
    world.disk.corrupt(path, entry[1] + 16, 0xFF)
    with pytest.raises((StorageError, KafkaError)):
        log.read(entry[0], 10_000, log.end_position)
    assert log.log_end_offset == 400
    assert append(log).base_offset == 400


def test_s14_retention_that_meets_a_fault_tells_of_it_as_the_logs_own() -> None:
    world = World(config=TopicConfig(segment_bytes=300, retention_ms=1))
    log = world.open()
    for number in range(12):
        append(log, batch(fill=number, timestamp=world.clock.now_ms + 10**9))
    for segment in log.segments[:-1]:
        world.disk.unlink(segment.log_file.path)
    with pytest.raises(KafkaError):
        log.apply_retention(world.clock.now_ms, log.log_end_offset)


def test_a_removal_that_is_cut_short_still_tells_whose_directory_it_is() -> None:
    world = lived(clean=True)
    data_dir, _ = loaded(world)
    data_dir.drop(PARTITION)
    retired = data_dir.retire_directory(PARTITION, TOPIC_ID)
    assert retired is not None
    count = len(world.disk.list_dir(retired))
    for number in range(1, count):
        world.disk.fail_at(world.disk.calls + 4, "crash")
        with pytest.raises(PowerCut):
            data_dir.remove_retired([retired])
        world.disk = world.disk.crash(CrashMode.KEEP_ALL)
        world.restart()
        data_dir = DataDir.open(DATA, world.context)
        outcome = data_dir.load_logs({}, deleted=[TOPIC_ID])
        if not outcome.retired:
            assert number > 2
            assert not world.disk.exists(retired)
            return
        assert outcome.retired == [retired]
    data_dir.remove_retired([retired])
    assert not world.disk.exists(retired)


def test_one_directory_that_cannot_be_removed_does_not_keep_the_others() -> None:
    world = lived(clean=True)
    data_dir, _ = loaded(world)
    retired = []
    for partition, topic_id in ((PARTITION, TOPIC_ID), (OTHER, OTHER_ID)):
        data_dir.drop(partition)
        path = data_dir.retire_directory(partition, topic_id)
        assert path is not None
        retired.append(path)
    world.disk.fail_next("unlink", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        data_dir.remove_retired(retired)
    assert world.disk.exists(retired[0])
    assert not world.disk.exists(retired[1])


def test_s11_a_checkpoint_that_failed_leaves_its_left_overs_to_the_next() -> None:
    world = lived(clean=False)
    data_dir, outcome = loaded(world)
    outcome.logs[PARTITION].advance_log_start(20)
    assert outcome.logs[PARTITION].apply_retention(world.clock.now_ms, 40)
    world.run_deferred()
    world.disk.fail_next("rename", errno.ENOSPC)
    with pytest.raises(OSError, match="space"):
        data_dir.checkpoint(None).run()
    assert [name for name in world.disk.list_dir(HERE) if name.endswith(".deleted")]
    data_dir.checkpoint(None).run()
    assert not [name for name in world.disk.list_dir(HERE) if name.endswith(".deleted")]


def test_a_reserve_that_a_power_cut_emptied_is_written_again() -> None:
    world = World()
    world.disk.make_dir(DATA)
    world.disk.close(world.disk.open(f"{DATA}/disk-reserve", create=True))
    disk: Disk = world.disk
    reserve = DiskReserve(disk, DATA)
    assert not reserve.held
    reserve.make()
    assert reserve.held
    assert world.disk.file_size(f"{DATA}/disk-reserve") == RESERVE_BYTES


def test_a_reserve_written_in_part_is_given_up_too() -> None:
    world = World()
    world.disk.make_dir(DATA)
    path = f"{DATA}/disk-reserve"
    descriptor = world.disk.open(path, create=True)
    world.disk.pwritev(descriptor, (bytes(4096),), 0)
    world.disk.close(descriptor)
    world.disk.capacity_bytes = RESERVE_BYTES
    reserve = DiskReserve(world.disk, DATA)
    reserve.release_if_full()
    assert reserve.released
    assert not world.disk.exists(path)


def test_a_creation_that_was_not_listed_leaves_no_line_behind() -> None:
    world = lived(clean=False)
    data_dir, _ = loaded(world)
    failed = TopicPartition("a-long-name-that-leaves-its-end-behind", 0)
    world.disk.fail_next("fdatasync", errno.EIO, after=1)
    outcome = data_dir.create_logs({failed: NewLog(uuid.UUID(int=1), world.config)})
    assert isinstance(outcome[failed], OSError)
    made = TopicPartition("b", 0)
    outcome = data_dir.create_logs({made: NewLog(uuid.UUID(int=2), world.config)})
    assert isinstance(outcome[made], Log)
    assert b"its-end-behind" not in world.disk.content(INVENTORY)
    assert set(data_dir.inventory.entries) == {PARTITION, OTHER, made}
