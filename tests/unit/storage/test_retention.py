"""What retention takes and what it leaves."""

from __future__ import annotations

import pytest

from tests.unit.storage.helpers import (
    DIRECTORY,
    NOW_MS,
    PARTITION,
    TOPIC_ID,
    World,
    append,
    batch,
    offsets,
    start_over,
)
from tidelog.config import TopicConfig
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.storage.losses import Expectation
from tidelog.storage.recovery import Opening

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def config(**options: int | bool) -> TopicConfig:
    return TopicConfig(segment_bytes=600, retention_ms=-1, **options)


def test_segments_go_when_their_newest_record_is_too_old() -> None:
    world = World(config=config())
    log = world.open()
    for hour in range(6):
        append(log, batch(2, timestamp=NOW_MS + hour * HOUR_MS, size=200))
    log.reconfigure(TopicConfig(segment_bytes=600, retention_ms=2 * HOUR_MS))
    for passed_ms, removed in ((0, 0), (2 * HOUR_MS + 1, 0), (1, 1), (3 * HOUR_MS, 3)):
        world.run_for(passed_ms)
        assert log.apply_retention(world.clock.now_ms, 12) == removed
    assert log.log_start_offset == 8
    assert offsets(log) == list(range(8, 12))


def test_a_log_that_was_given_up_is_left_alone() -> None:
    world = World(config=TopicConfig(retention_ms=1000))
    log = world.open()
    append(log, batch(5))
    log.abandon()
    before = world.disk.list_dir(DIRECTORY)
    assert log.apply_retention(NOW_MS + 2000, 5) == 0
    assert world.disk.list_dir(DIRECTORY) == before


def test_the_active_segment_goes_too_and_offsets_go_on() -> None:
    world = World(config=TopicConfig(retention_ms=1000))
    log = world.open()
    append(log, batch(5))
    assert log.apply_retention(NOW_MS + 2000, 5) == 1
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert append(log, batch(timestamp=NOW_MS + 2000)).base_offset == 5
    assert log.apply_retention(NOW_MS + 2000, 6) == 0
    assert log.apply_retention(NOW_MS + 9000, 6) == 1
    assert log.apply_retention(NOW_MS + 9000, 6) == 0


def test_nothing_above_the_high_watermark_goes() -> None:
    world = World(config=TopicConfig(segment_bytes=600, retention_ms=1, retention_bytes=0))
    log = world.open()
    for _ in range(6):
        append(log, batch(2, size=200))
    assert log.apply_retention(NOW_MS + HOUR_MS, 5) == 2
    assert log.log_start_offset == 4


def test_size_takes_whole_segments_and_leaves_at_least_what_was_asked_for() -> None:
    world = World(config=config())
    log = world.open()
    for _ in range(6):
        append(log, batch(2, size=200))
    one = log.segments[0].size_bytes
    log.reconfigure(config(retention_bytes=3 * one + 1))
    assert log.apply_retention(NOW_MS, 12) == 2
    assert log.segments.size_bytes == 4 * one
    log.reconfigure(config(retention_bytes=3 * one))
    assert log.apply_retention(NOW_MS, 12) == 1
    assert log.apply_retention(NOW_MS, 12) == 0


def test_a_compacted_topic_keeps_everything_above_its_start() -> None:
    world = World(
        config=TopicConfig(
            segment_bytes=600, retention_ms=1, retention_bytes=0, cleanup_delete=False
        )
    )
    log = world.open()
    for _ in range(6):
        append(log, batch(2, size=200))
    assert log.apply_retention(NOW_MS + HOUR_MS, 12) == 0
    log.advance_log_start(5)
    assert log.apply_retention(NOW_MS + HOUR_MS, 12) == 2
    assert (log.log_start_offset, log.segments.bases[0]) == (5, 4)


def test_files_are_renamed_at_once_and_unlinked_after_the_delay() -> None:
    world = World(config=config(file_delete_delay_ms=7000))
    log = world.open()
    for _ in range(4):
        append(log, batch(2, size=200))
    log.advance_log_start(3)
    assert log.apply_retention(NOW_MS, 8) == 1
    names = world.disk.list_dir(DIRECTORY)
    assert f"{0:020d}.log" not in names
    assert f"{0:020d}.log.deleted" in names
    assert [delay for delay, _ in world.deferred] == [7.0]
    world.run_deferred()
    names = world.disk.list_dir(DIRECTORY)
    assert not [name for name in names if name.startswith(f"{0:020d}")]
    assert f"{2:020d}.snapshot" in names


def test_s21_a_timestamp_from_the_future_does_not_keep_a_segment_for_ever() -> None:
    world = World(config=TopicConfig(segment_bytes=600, retention_ms=HOUR_MS))
    log = world.open()
    append(log, batch(2, size=200, timestamp=NOW_MS + 10 * 365 * 24 * HOUR_MS))
    append(log, batch(2, size=200))
    world.run_for(HOUR_MS // 2)
    assert log.apply_retention(world.clock.now_ms, 4) == 0
    world.run_for(HOUR_MS)
    assert log.apply_retention(world.clock.now_ms, 4) == 2


def test_s21_records_without_a_timestamp_age_by_their_file() -> None:
    world = World(config=TopicConfig(retention_ms=HOUR_MS))
    log = world.open()
    append(log, batch(timestamp=-1))
    assert log.segments[0].largest_timestamp == -1
    assert log.apply_retention(world.clock.now_ms, 1) == 0
    world.run_for(HOUR_MS + 1)
    assert log.apply_retention(world.clock.now_ms, 1) == 1


def test_s21_after_a_jump_of_the_clock_one_segment_a_minute_goes() -> None:
    world = World(config=TopicConfig(segment_bytes=600, retention_ms=24 * HOUR_MS))
    log = world.open()
    for _ in range(10):
        append(log, batch(2, size=200))
    assert log.apply_retention(world.clock.now_ms, 20) == 0
    # The wall clock leaps ten years; the monotonic one knows that a minute has passed.
    world.clock.seconds += 60
    world.clock.now_ms += 10 * 365 * 24 * HOUR_MS
    assert log.apply_retention(world.clock.now_ms, 20) == 1
    assert log.apply_retention(world.clock.now_ms, 20) == 0
    world.run_for(60_000)
    assert log.apply_retention(world.clock.now_ms, 20) == 1
    # The clock is set right again: nothing more is lost.
    world.clock.now_ms -= 10 * 365 * 24 * HOUR_MS
    world.run_for(60_000)
    assert log.apply_retention(world.clock.now_ms, 20) == 0
    assert len(offsets(log)) == 16


def test_s21_a_clock_that_falls_back_deletes_nothing() -> None:
    world = World(config=TopicConfig(segment_bytes=600, retention_ms=2 * HOUR_MS))
    log = world.open()
    for _ in range(4):
        append(log, batch(2, size=200))
    world.clock.now_ms -= HOUR_MS
    assert log.apply_retention(world.clock.now_ms, 8) == 0


def test_time_that_passes_on_both_clocks_is_no_jump() -> None:
    world = World(config=TopicConfig(segment_bytes=600, retention_ms=HOUR_MS))
    log = world.open()
    for _ in range(5):
        append(log, batch(2, size=200))
    assert log.apply_retention(world.clock.now_ms, 10) == 0
    world.run_for(48 * HOUR_MS)
    assert log.apply_retention(world.clock.now_ms, 10) == 5


# A clock that jumps


def ten_segments(world: World) -> Log:
    log = world.open()
    for _ in range(10):
        append(log, batch(2, size=200))
    world.run_for(2 * MINUTE_MS)
    return log


def test_s21_after_a_jump_one_segment_a_minute_goes_for_an_hour_and_then_the_rest() -> None:
    world = World(config=TopicConfig(segment_bytes=600, retention_ms=DAY_MS))
    log = world.open()
    for _ in range(90):
        append(log, batch(2, size=200))
    world.run_for(2 * MINUTE_MS)
    world.clock.now_ms += 9 * DAY_MS
    removed = []
    for _ in range(60):
        # However often it is looked.
        removed.append(sum(log.apply_retention(world.clock.now_ms, 180) for _ in range(5)))
        world.run_for(MINUTE_MS)
    assert removed == [1] * 60
    assert log.apply_retention(world.clock.now_ms, 180) == 30


def test_s21_each_partition_has_its_own_minute() -> None:
    world = World(config=TopicConfig(segment_bytes=600, retention_ms=DAY_MS))
    one = ten_segments(world)
    world.disk.make_dir("/data/orders-1")
    new, expected = NewLog(TOPIC_ID, world.config), Expectation("/data/orders-1")
    other = Log.open(Opening(PARTITION, new, world.context, expected, clean=False))
    for _ in range(10):
        append(other, batch(2, size=200))
    world.clock.now_ms += 9 * DAY_MS
    assert [log.apply_retention(world.clock.now_ms, 20) for log in (one, other)] == [1, 1]


def test_s21_size_is_not_slowed_by_a_jump() -> None:
    world = World(config=TopicConfig(segment_bytes=600, retention_ms=DAY_MS, retention_bytes=0))
    log = ten_segments(world)
    world.clock.now_ms += 9 * DAY_MS
    assert log.apply_retention(world.clock.now_ms, 20) == 10


@pytest.mark.parametrize("jump_ms", [9 * DAY_MS, 3650 * DAY_MS])
def test_s21_what_was_written_while_the_clock_was_ahead_is_not_kept_for_ever(jump_ms: int) -> None:
    world = World(config=TopicConfig(segment_bytes=600, retention_ms=DAY_MS))
    log = world.open()
    world.run_for(HOUR_MS)
    world.clock.now_ms += jump_ms
    for _ in range(3):
        append(log, batch(2, size=200, timestamp=world.clock.now_ms))
    world.run_for(MINUTE_MS)
    world.clock.now_ms -= jump_ms
    world.run_for(DAY_MS - 2 * MINUTE_MS)
    assert log.apply_retention(world.clock.now_ms, 6) == 0
    world.run_for(2 * MINUTE_MS)
    assert log.apply_retention(world.clock.now_ms, 6) == 3


@pytest.mark.parametrize("jump_ms", [-9 * DAY_MS, -3650 * DAY_MS, 1000 - NOW_MS])
def test_s21_a_clock_that_stays_behind_deletes_no_earlier_and_no_later(jump_ms: int) -> None:
    world = World(config=TopicConfig(segment_bytes=600, retention_ms=2 * DAY_MS))
    log = ten_segments(world)
    world.run_for(DAY_MS)
    world.clock.now_ms += jump_ms
    world.run_for(DAY_MS - HOUR_MS)
    assert log.apply_retention(world.clock.now_ms, 20) == 0
    world.run_for(HOUR_MS)
    assert log.apply_retention(world.clock.now_ms, 20) == 10


@pytest.mark.parametrize("jump_ms", [9 * DAY_MS, 3650 * DAY_MS])
def test_s21_a_segment_begun_while_the_clock_was_ahead_is_rolled_in_time(jump_ms: int) -> None:
    world = World(config=TopicConfig(segment_ms=DAY_MS))
    log = world.open()
    world.run_for(HOUR_MS)
    world.clock.now_ms += jump_ms
    start_over(log, 7)
    log.append(batch(timestamp=world.clock.now_ms), 0, world.clock.now_ms)
    world.run_for(MINUTE_MS)
    world.clock.now_ms -= jump_ms
    world.run_for(DAY_MS - HOUR_MS)
    assert not log.roll_if_due(world.clock.now_ms)
    world.run_for(HOUR_MS)
    log.append(batch(timestamp=world.clock.now_ms), 0, world.clock.now_ms)
    assert log.segments.bases == [7, 8]
