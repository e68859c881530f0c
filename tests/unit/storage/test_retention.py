"""What retention takes and what it leaves."""

from __future__ import annotations

from tests.unit.storage.helpers import DIRECTORY, NOW_MS, World, append, batch, offsets
from tidelog.storage.log import LogConfig

HOUR_MS = 3_600_000


def config(**options: int | bool) -> LogConfig:
    return LogConfig(segment_bytes=600, retention_ms=-1, **options)


def test_segments_go_when_their_newest_record_is_too_old() -> None:
    world = World(config=config())
    log = world.open()
    for hour in range(6):
        append(log, batch(2, timestamp=NOW_MS + hour * HOUR_MS, size=200))
    log.reconfigure(LogConfig(segment_bytes=600, retention_ms=2 * HOUR_MS))
    for passed_ms, removed in ((0, 0), (2 * HOUR_MS + 1, 0), (1, 1), (3 * HOUR_MS, 3)):
        world.clock.advance(passed_ms)
        assert log.apply_retention(world.clock.now_ms, 12) == removed
    assert log.log_start_offset == 8
    assert offsets(log) == list(range(8, 12))


def test_the_active_segment_goes_too_and_offsets_go_on() -> None:
    world = World(config=LogConfig(retention_ms=1000))
    log = world.open()
    append(log, batch(5))
    assert log.apply_retention(NOW_MS + 2000, 5) == 1
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert append(log, batch(timestamp=NOW_MS + 2000)).base_offset == 5
    assert log.apply_retention(NOW_MS + 2000, 6) == 0
    assert log.apply_retention(NOW_MS + 9000, 6) == 1
    assert log.apply_retention(NOW_MS + 9000, 6) == 0


def test_nothing_above_the_high_watermark_goes() -> None:
    world = World(config=LogConfig(segment_bytes=600, retention_ms=1, retention_bytes=0))
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
    assert log.size_bytes == 4 * one
    log.reconfigure(config(retention_bytes=3 * one))
    assert log.apply_retention(NOW_MS, 12) == 1
    assert log.apply_retention(NOW_MS, 12) == 0


def test_a_compacted_topic_keeps_everything_above_its_start() -> None:
    world = World(
        config=LogConfig(segment_bytes=600, retention_ms=1, retention_bytes=0, cleanup_delete=False)
    )
    log = world.open()
    for _ in range(6):
        append(log, batch(2, size=200))
    assert log.apply_retention(NOW_MS + HOUR_MS, 12) == 0
    log.advance_log_start(5)
    assert log.apply_retention(NOW_MS + HOUR_MS, 12) == 2
    assert (log.log_start_offset, log.bases[0]) == (5, 4)


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
    world = World(config=LogConfig(segment_bytes=600, retention_ms=HOUR_MS))
    log = world.open()
    append(log, batch(2, size=200, timestamp=NOW_MS + 10 * 365 * 24 * HOUR_MS))
    append(log, batch(2, size=200))
    world.clock.advance(HOUR_MS // 2)
    assert log.apply_retention(world.clock.now_ms, 4) == 0
    world.clock.advance(HOUR_MS)
    assert log.apply_retention(world.clock.now_ms, 4) == 2


def test_s21_records_without_a_timestamp_age_by_their_file() -> None:
    world = World(config=LogConfig(retention_ms=HOUR_MS))
    log = world.open()
    append(log, batch(timestamp=-1))
    assert log.segments[0].largest_timestamp == -1
    assert log.apply_retention(world.clock.now_ms, 1) == 0
    world.clock.advance(HOUR_MS + 1)
    assert log.apply_retention(world.clock.now_ms, 1) == 1


def test_s21_after_a_jump_of_the_clock_one_segment_a_minute_goes() -> None:
    world = World(config=LogConfig(segment_bytes=600, retention_ms=24 * HOUR_MS))
    log = world.open()
    for _ in range(10):
        append(log, batch(2, size=200))
    assert log.apply_retention(world.clock.now_ms, 20) == 0
    # The wall clock leaps ten years; the monotonic one knows that a minute has passed.
    world.clock.seconds += 60
    world.clock.now_ms += 10 * 365 * 24 * HOUR_MS
    assert log.apply_retention(world.clock.now_ms, 20) == 1
    assert log.apply_retention(world.clock.now_ms, 20) == 0
    world.clock.advance(60_000)
    assert log.apply_retention(world.clock.now_ms, 20) == 1
    # The clock is set right again: nothing more is lost.
    world.clock.now_ms -= 10 * 365 * 24 * HOUR_MS
    world.clock.advance(60_000)
    assert log.apply_retention(world.clock.now_ms, 20) == 0
    assert len(offsets(log)) == 16


def test_s21_a_clock_that_falls_back_deletes_nothing() -> None:
    world = World(config=LogConfig(segment_bytes=600, retention_ms=2 * HOUR_MS))
    log = world.open()
    for _ in range(4):
        append(log, batch(2, size=200))
    world.clock.now_ms -= HOUR_MS
    assert log.apply_retention(world.clock.now_ms, 8) == 0


def test_time_that_passes_on_both_clocks_is_no_jump() -> None:
    world = World(config=LogConfig(segment_bytes=600, retention_ms=HOUR_MS))
    log = world.open()
    for _ in range(5):
        append(log, batch(2, size=200))
    assert log.apply_retention(world.clock.now_ms, 10) == 0
    world.clock.advance(48 * HOUR_MS)
    assert log.apply_retention(world.clock.now_ms, 10) == 5
