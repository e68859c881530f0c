"""Producers whose batches retention has removed stay known, whatever becomes of snapshots."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from tests.unit.storage.helpers import (
    DIRECTORY,
    NOW_MS,
    World,
    append,
    batch,
    close,
    flush,
    idempotent,
)
from tests.unit.storage.test_producers import refused
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, StorageError
from tidelog.testing.disk import CrashMode, SimulatedDisk


@pytest.mark.parametrize("whole", [False, True], ids=["one segment left", "nothing left"])
@pytest.mark.parametrize("damage", ["missing", "rotten"])
def test_t3_state_survives_retention_where_snapshots_were_lost_before(
    whole: bool, damage: str
) -> None:
    retention_bytes = 0 if whole else 300
    world = World(config=TopicConfig(segment_bytes=300, retention_bytes=retention_bytes))
    log = world.open()
    append(log, idempotent(0))
    for _ in range(6):
        append(log, batch(size=100))
    append(log, idempotent(0, producer_id=8))
    flush(log)
    end = log.log_end_offset
    for base in log.segments.bases[1:]:
        path = f"{DIRECTORY}/{base:020d}.snapshot"
        if damage == "missing":
            world.disk.unlink(path)
        else:
            world.disk.corrupt(path, 12)
    log = world.reopen_after(world.disk.crash(CrashMode.KEEP_ALL), recovery_point=end)
    assert log.apply_retention(NOW_MS, end) >= 4
    world.run_deferred()
    flush(log)
    for mode in (CrashMode.LOSE_ALL, CrashMode.KEEP_ALL):
        log = world.reopen_after(world.disk.crash(mode), recovery_point=end)
        for producer_id in (7, 8):
            item = idempotent(2, producer_id=producer_id)
            assert refused(log, item) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert append(log, idempotent(0, producer_id=producer_id)).duplicate


def test_t3_state_survives_a_power_cut_right_after_everything_was_deleted() -> None:
    emptied = 0
    for seed in range(400):
        config = TopicConfig(segment_bytes=300, retention_bytes=0)
        world = World(disk=SimulatedDisk(seed), config=config)
        log = world.open()
        append(log, idempotent(0))
        for _ in range(4):
            append(log, batch(size=100))
        flush(log)
        log.apply_retention(NOW_MS, log.log_end_offset)
        for _ in range(2):
            # Twice: what recovery falls back to must still be there for the next one.
            log = world.reopen_after(world.disk.crash(CrashMode.RANDOM), recovery_point=5)
            assert 7 in log.producers.states
        emptied += log.log_start_offset == 5
    assert emptied >= 10


def test_t3_the_only_snapshot_is_never_written_over() -> None:
    """The stop of a log that retention has emptied writes the snapshot that is there already."""
    crashes = 0
    for seed in range(60):
        config = TopicConfig(segment_bytes=300, retention_bytes=0)
        world = World(disk=SimulatedDisk(seed), config=config)
        log = world.open()
        for producer_id in (6, 7):
            append(log, idempotent(0, producer_id=producer_id))
        log.apply_retention(NOW_MS, log.log_end_offset)
        world.run_deferred()
        flush(log)
        log = world.reopen_after(world.disk.crash(CrashMode.LOSE_ALL), recovery_point=2)
        # As if it had expired meanwhile.
        del log.producers.states[6]
        world.disk.fail_next("fdatasync", errno.EIO, after=seed % 3)
        with suppress(OSError, StorageError):
            close(log)
        log = world.reopen_after(world.disk.crash(CrashMode.RANDOM), recovery_point=2)
        assert 7 in log.producers.states
        crashes += 1
    assert crashes == 60
