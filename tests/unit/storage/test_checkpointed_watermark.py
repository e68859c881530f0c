"""High watermarks over restarts: from the checkpoint, within the log, never lower by accident."""

from __future__ import annotations

import pytest

from tests.unit.storage.helpers import (
    NOW_MS,
    PARTITION,
    TOPIC_ID,
    World,
    append,
    batch,
    create_log,
    flush,
)
from tidelog.config import TopicConfig
from tidelog.model import TopicPartition
from tidelog.storage.data_dir import DataDir
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.testing.disk import CrashMode

OTHER = TopicPartition("other", 1)
CONFIG = TopicConfig(segment_bytes=400, file_delete_delay_ms=0)


def begun(world: World) -> tuple[DataDir, Log]:
    data_dir = DataDir.open("/data", world.context)
    data_dir.load_logs({})
    log = create_log(data_dir, PARTITION, NewLog(TOPIC_ID, CONFIG))
    assert log.checkpointed_watermark == 0
    for number in range(12):
        append(log, batch(fill=number))
    return data_dir, log


def after(world: World, mode: CrashMode) -> Log:
    world.disk = world.disk.crash(mode)
    world.restart()
    data_dir = DataDir.open("/data", world.context)
    loaded = data_dir.load_logs({PARTITION: NewLog(TOPIC_ID, CONFIG)})
    return loaded.logs[PARTITION]


@pytest.mark.parametrize("mode", list(CrashMode))
def test_a_log_knows_after_a_crash_what_was_committed(mode: CrashMode) -> None:
    world = World(config=CONFIG)
    data_dir, log = begun(world)
    flush(log)
    data_dir.checkpoint({PARTITION: 9}).run()
    assert after(world, mode).checkpointed_watermark == 9


def test_i33_a_watermark_is_never_above_what_is_left_of_the_log() -> None:
    world = World(config=CONFIG)
    data_dir, log = begun(world)
    data_dir.checkpoint({PARTITION: 9}).run()
    log = after(world, CrashMode.LOSE_ALL)
    assert (log.log_end_offset, log.checkpointed_watermark) == (0, 0)


def test_a_watermark_is_never_below_the_logs_start() -> None:
    world = World(config=CONFIG)
    data_dir, log = begun(world)
    data_dir.checkpoint({PARTITION: 2}).run()
    log.advance_log_start(7)
    assert log.apply_retention(NOW_MS, 12) > 0
    flush(log)
    log = after(world, CrashMode.KEEP_ALL)
    assert log.log_start_offset > 2
    assert log.checkpointed_watermark == log.log_start_offset


def test_a_checkpoint_keeps_the_watermark_of_a_partition_that_nobody_serves_yet() -> None:
    """As at a start: the first checkpoints come before all partitions are built."""
    world = World(config=CONFIG)
    data_dir, log = begun(world)
    flush(log)
    data_dir.checkpoint({PARTITION: 9}).run()
    world.disk = world.disk.crash(CrashMode.KEEP_ALL)
    world.restart()
    data_dir = DataDir.open("/data", world.context)
    data_dir.load_logs({PARTITION: NewLog(TOPIC_ID, CONFIG)})
    data_dir.checkpoint({}).run()
    assert after(world, CrashMode.KEEP_ALL).checkpointed_watermark == 9


@pytest.mark.parametrize("damage", ["missing", "garbage"])
def test_the_inventory_knows_watermarks_where_the_checkpoint_is_damaged(damage: str) -> None:
    world = World(config=CONFIG)
    data_dir, log = begun(world)
    flush(log)
    data_dir.checkpoint({PARTITION: 9}).run()
    path = "/data/replication-offset-checkpoint"
    if damage == "missing":
        world.disk.unlink(path)
    else:
        world.disk.replace(path, b"\xff\x00 nonsense")
    assert after(world, CrashMode.KEEP_ALL).checkpointed_watermark == 9


def test_r22_the_logs_start_stays_where_records_were_deleted() -> None:
    """Their segment is still there: only the checkpoint knows that they are gone."""
    world = World(config=TopicConfig(segment_bytes=1 << 20))
    data_dir, log = begun(world)
    log.advance_log_start(7)
    data_dir.checkpoint({PARTITION: 12}).run()
    flush(log)
    log = after(world, CrashMode.RANDOM)
    assert log.log_start_offset == 7
    log.advance_log_start(3)
    assert log.log_start_offset == 7
