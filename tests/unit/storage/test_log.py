"""Appending to a log and reading it back."""

from __future__ import annotations

import errno

import pytest

from tests.unit.storage.helpers import (
    DIRECTORY,
    NOW_MS,
    World,
    append,
    batch,
    close,
    flush,
    offset_for_timestamp,
    offset_of_max_timestamp,
    offsets,
    start_over,
    stored_batches,
    truncate,
)
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import Codec, LogPosition
from tidelog.protocol.batches import decode_records, read_header


def test_appended_batches_get_rising_offsets_and_the_leader_epoch() -> None:
    log = World().open()
    first = append(log, batch(3), epoch=4)
    second = append(log, batch(2), epoch=5)
    assert (first.base_offset, first.last_offset) == (0, 2)
    assert (second.base_offset, second.last_offset) == (3, 4)
    headers = [read_header(data) for data in stored_batches(log)]
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, 4), (3, 5)]
    assert log.log_end_offset == 5
    assert log.epochs.entries == [(4, 0), (5, 3)]


def test_bytes_outside_the_stamp_are_stored_untouched() -> None:
    log = World().open()
    item = batch(5, codec=Codec.ZSTD)
    before = bytes(item.buffer)
    append(log, item, epoch=9)
    (stored,) = stored_batches(log)
    assert stored[16:] == before[16:]
    assert stored[8:12] == before[8:12]


def test_log_append_time_is_told_from_the_batch() -> None:
    log = World().open()
    item = batch(timestamp_type=1)
    assert append(log, item).log_append_time_ms == item.header.max_timestamp
    assert append(log, batch()).log_append_time_ms == -1


def test_an_offset_inside_a_batch_gives_the_whole_batch() -> None:
    log = World().open()
    for _ in range(3):
        append(log, batch(10))
    slices = log.read(15, 1, log.end_position)
    assert read_header(slices.read_all()).base_offset == 10
    assert len(slices.slices) == 1
    slices.release()


def test_reads_stop_at_the_limit_and_at_whole_batches() -> None:
    log = World(config=TopicConfig(segment_bytes=1 << 20)).open()
    for fill in range(200):
        append(log, batch(2, fill=fill, size=50))
    size = len(stored_batches(log)[0])
    middle = log.segments.position_after(100)
    slices = log.read(90, 1 << 20, middle)
    assert slices.size_bytes == 5 * size
    slices.release()
    for max_bytes in (1, size - 1, size, 2 * size - 1, 2 * size, 17 * size + 3):
        slices = log.read(20, max_bytes, log.end_position)
        assert slices.size_bytes == max(max_bytes // size, 1) * size
        slices.release()
        strict = log.read(20, max_bytes, log.end_position, at_least_one=False)
        assert strict.size_bytes == max_bytes // size * size
        strict.release()


def test_reads_go_on_across_segments() -> None:
    world = World(config=TopicConfig(segment_bytes=1000))
    log = world.open()
    for fill in range(50):
        append(log, batch(2, fill=fill))
    assert len(log.segments) > 3
    whole = log.read(0, 1 << 20, log.end_position)
    assert whole.size_bytes == log.segments.size_bytes
    assert len(whole.slices) == len(log.segments)
    whole.release()
    for max_bytes in (1, 150, 999, 1001, 5000):
        assert offsets_read_in_steps(log, max_bytes) == list(range(100))


def offsets_read_in_steps(log, max_bytes: int) -> list[int]:
    return [
        record.offset for data in stored_batches(log, max_bytes) for record in decode_records(data)
    ]


def test_reading_at_the_end_gives_nothing_and_beyond_is_out_of_range() -> None:
    log = World().open()
    append(log, batch(4))
    slices = log.read(4, 100, log.end_position)
    assert slices.size_bytes == 0
    for offset in (5, -1):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100, log.end_position)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.advance_log_start(2)
    with pytest.raises(KafkaError) as caught:
        log.locate(1)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_positions_sum_to_the_bytes_between_them() -> None:
    log = World(config=TopicConfig(segment_bytes=700)).open()
    sizes = []
    for fill in range(30):
        item = batch(1 + fill % 3, fill=fill, size=fill)
        sizes.append((item.header.last_offset_delta + 1, item.header.size_bytes))
        append(log, item)
    starts = [0]
    for count, _ in sizes:
        starts.append(starts[-1] + count)
    for first in range(0, 30, 7):
        for last in range(first, 31, 3):
            start, end = (
                log.segments.position_after(starts[first]),
                log.segments.position_after(starts[last]),
            )
            assert log.segments.bytes_between(start, end) == sum(
                size for _, size in sizes[first:last]
            )
    assert log.segments.bytes_between(log.end_position, log.segments.position_after(0)) == 0
    assert log.locate(log.log_end_offset) == log.end_position
    assert isinstance(log.end_position, LogPosition)


def test_bytes_are_summed_from_where_a_reader_waits_though_its_segment_went() -> None:
    world = World(config=TopicConfig(retention_ms=1000, segment_bytes=300))
    log = world.open()
    for _ in range(4):
        append(log)
    waiting = log.end_position
    world.clock.advance(5000)
    log.apply_retention(world.clock.now_ms, 4)
    assert log.log_start_offset == 4
    sizes = [batch().header.size_bytes, batch(size=150).header.size_bytes]
    append(log, batch(timestamp=world.clock.now_ms))
    assert log.segments.bytes_between(waiting, log.end_position) == sizes[0]
    append(log, batch(size=150, timestamp=world.clock.now_ms))
    assert log.segments.bytes_between(waiting, log.end_position) == sum(sizes)


def test_a_slice_reads_its_own_bytes_only() -> None:
    log = World().open()
    for fill in range(3):
        append(log, batch(fill=fill))
    first, second, _ = stored_batches(log)
    slices = log.read(1, len(second), log.end_position)
    (piece,) = slices.slices
    assert piece.read(0, 10_000) == second
    assert piece.read(5, 3) == second[5:8]
    buffer = bytearray(10_000)
    assert piece.read_cached_into(memoryview(buffer), 4) == len(second) - 4
    assert bytes(buffer[: len(second) - 4]) == second[4:]
    assert first != second


def test_cold_data_is_told_apart() -> None:
    world = World()
    log = world.open()
    append(log)
    slices = log.read(0, 100, log.end_position)
    world.disk.cold = True
    with pytest.raises(BlockingIOError):
        slices.slices[0].read_cached_into(memoryview(bytearray(10)), 0)
    slices.release()


@pytest.mark.parametrize("codec", list(Codec))
def test_time_lookup_is_exact_inside_batches(codec: Codec) -> None:
    log = World(config=TopicConfig(segment_bytes=2000, index_interval_bytes=100)).open()
    for number in range(40):
        append(log, batch(5, timestamp=NOW_MS + 100 * number, codec=codec))
    for offset in range(0, 200, 3):
        timestamp = NOW_MS + 100 * (offset // 5) + offset % 5
        assert offset_for_timestamp(log, timestamp) == (offset, timestamp, 0)
    assert offset_for_timestamp(log, NOW_MS + 7) == (5, NOW_MS + 100, 0)
    assert offset_for_timestamp(log, 0) == (0, NOW_MS, 0)
    assert offset_for_timestamp(log, NOW_MS + 100_000) is None
    assert offset_of_max_timestamp(log) == (199, NOW_MS + 3904, 0)


def test_time_lookup_skips_what_lies_below_the_log_start() -> None:
    log = World().open()
    append(log, batch(5))
    append(log, batch(5, timestamp=NOW_MS + 50))
    log.advance_log_start(3)
    assert offset_for_timestamp(log, NOW_MS) == (3, NOW_MS + 3, 0)
    log.advance_log_start(10)
    assert offset_for_timestamp(log, NOW_MS) is None
    assert offset_of_max_timestamp(log) is None


def test_time_lookup_with_timestamps_out_of_order() -> None:
    log = World(config=TopicConfig(segment_bytes=100_000, index_interval_bytes=100)).open()
    times = [50, 10, 90, 20, 70, 30, 95, 5] * 12
    for time in times:
        append(log, batch(timestamp=NOW_MS + time, size=60))
    for wanted in (0, 11, 51, 71, 91, 95):
        first = next(place for place, time in enumerate(times) if time >= wanted)
        assert offset_for_timestamp(log, NOW_MS + wanted) == (first, NOW_MS + times[first], 0)
    assert offset_of_max_timestamp(log) == (6, NOW_MS + 95, 0)


def test_an_empty_log_knows_no_time_and_no_epoch() -> None:
    log = World().open()
    assert offset_for_timestamp(log, 0) is None
    assert offset_of_max_timestamp(log) is None
    assert log.epochs.end_offset_for(0, log.log_end_offset) == (-1, -1)
    assert offsets(log) == []


def test_a_segment_rolls_by_size_time_and_full_index() -> None:
    world = World(config=TopicConfig(segment_bytes=500))
    log = world.open()
    append(log, batch(size=300))
    append(log, batch(size=300))
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    log.reconfigure(TopicConfig(segment_ms=1000))
    append(log, batch(timestamp=NOW_MS + 1000))
    assert len(log.segments) == 2
    append(log, batch(timestamp=NOW_MS + 1001))
    assert len(log.segments) == 3
    log.reconfigure(TopicConfig(segment_index_bytes=24, index_interval_bytes=10))
    for _ in range(4):
        append(log, batch(timestamp=NOW_MS + 1001))
    assert len(log.segments) == 4
    assert offsets(log) == list(range(log.log_end_offset))


def test_roll_by_time_without_traffic() -> None:
    world = World(config=TopicConfig(segment_ms=1000))
    log = world.open()
    assert not log.roll_if_due(NOW_MS + 5000)
    append(log)
    assert not log.roll_if_due(NOW_MS + 1000)
    assert log.roll_if_due(NOW_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert not log.roll_if_due(NOW_MS + 9000)


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = World(config=TopicConfig(segment_bytes=200)).open()
    with pytest.raises(KafkaError) as caught:
        append(log, batch(size=300))
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_s19_relative_offsets_never_overflow_a_segment() -> None:
    log = World().open()
    for offset in (2**31 - 2, 2**31 - 1, 2**31, 2**33):
        item = batch(base_offset=offset)
        log.append_as_follower(item.buffer, 9)
    bases = [segment.base_offset for segment in log.segments]
    assert all(
        segment.next_offset - 1 - segment.base_offset <= 2**31 - 1 for segment in log.segments
    )
    assert len(bases) > 1
    assert offsets(log) == [2**31 - 2, 2**31 - 1, 2**31, 2**33]


def test_gaps_left_by_the_leader_are_read_over() -> None:
    log = World(config=TopicConfig(segment_bytes=400)).open()
    for offset in (0, 5, 6, 40, 41, 90):
        log.append_as_follower(batch(base_offset=offset).buffer, 9)
    assert offsets(log) == [0, 5, 6, 40, 41, 90]
    slices = log.read(10, 1, log.end_position)
    assert read_header(slices.read_all()).base_offset == 40
    slices.release()
    assert log.log_end_offset == 91


def test_a_follower_stores_the_leaders_bytes_and_leaves_out_a_partial_batch() -> None:
    log = World().open()
    whole = b"".join(
        bytes(batch(2, base_offset=2 * number, leader_epoch=3).buffer) for number in range(4)
    )
    log.append_as_follower(memoryview(bytearray(whole + whole[:30])), 9)
    assert b"".join(stored_batches(log)) == whole
    assert log.epochs.entries == [(3, 0)]
    with pytest.raises(Exception, match="ends at 8"):
        log.append_as_follower(memoryview(bytearray(whole)), 9)


def test_n14_a_follower_refuses_a_batch_with_a_wrong_checksum() -> None:
    log = World().open()
    data = bytearray(batch().buffer)
    data[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(memoryview(data), 9)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 0


def test_a_follower_refuses_a_leader_epoch_that_falls() -> None:
    """Recovery would take it for the end of the log."""
    log = World().open()
    log.append_as_follower(batch(2, leader_epoch=4).buffer, 9)
    fallen = [batch(base_offset=2, leader_epoch=5), batch(base_offset=3, leader_epoch=4)]
    for records in (
        batch(base_offset=2, leader_epoch=3).buffer,
        b"".join(x.buffer for x in fallen),
    ):
        with pytest.raises(KafkaError) as caught:
            log.append_as_follower(memoryview(records), 9)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, log.epochs.entries) == (2, [(4, 0)])


def test_end_offsets_of_epochs() -> None:
    log = World().open()
    for epoch in (2, 2, 5, 7):
        append(log, batch(10), epoch=epoch)
    log.epochs.assign(9, log.log_end_offset)
    assert log.epochs.end_offset_for(1, log.log_end_offset) == (1, 0)
    assert log.epochs.end_offset_for(2, log.log_end_offset) == (2, 20)
    assert log.epochs.end_offset_for(4, log.log_end_offset) == (2, 20)
    assert log.epochs.end_offset_for(6, log.log_end_offset) == (5, 30)
    assert log.epochs.end_offset_for(7, log.log_end_offset) == (7, 40)
    assert log.epochs.end_offset_for(9, log.log_end_offset) == (9, 40)
    assert log.epochs.end_offset_for(10, log.log_end_offset) == (-1, -1)
    assert log.epochs.end_offset_for(-1, log.log_end_offset) == (-1, -1)


def test_truncation_cuts_at_a_batch_boundary_and_appends_go_on() -> None:
    log = World(config=TopicConfig(segment_bytes=600)).open()
    for number in range(20):
        append(log, batch(5, fill=number), epoch=number // 5)
    truncate(log, 43)
    assert log.log_end_offset == 40
    assert log.epochs.entries == [(0, 0), (1, 25)]
    assert append(log, batch(2), epoch=6).base_offset == 40
    assert offsets(log) == list(range(42))
    truncate(log, 1000)
    assert log.log_end_offset == 42
    log.advance_log_start(32)
    truncate(log, 34)
    assert (log.log_start_offset, log.log_end_offset) == (32, 32)
    start_over(log, 500)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    assert append(log, batch(2), epoch=7).base_offset == 500


def test_flush_moves_only_to_where_the_plan_was_taken() -> None:
    log = World(config=TopicConfig(segment_bytes=300)).open()
    append(log)
    early = log.flush_plan()
    for _ in range(6):
        append(log)
    late = log.flush_plan()
    append(log)
    late.run()
    log.flushed(late)
    assert log.flushed_offset == 7
    early.run()
    log.flushed(early)
    assert log.flushed_offset == 7
    assert log.unflushed_messages == 1
    flush(log)
    assert log.flushed_offset == 8


def test_close_and_clean_reopen_keep_everything() -> None:
    world = World(config=TopicConfig(segment_bytes=700))
    log = world.open()
    for number in range(30):
        append(log, batch(2, fill=number), epoch=3)
    stored = stored_batches(log)
    close(log)
    assert world.disk.open_files == []
    calls = world.disk.calls
    log = world.open(clean=True, recovery_point=60)
    assert world.disk.calls - calls < 400
    assert stored_batches(log) == stored
    assert log.epochs.entries == [(3, 0)]
    assert append(log, epoch=3).base_offset == 60


def test_close_writes_nothing_where_nothing_was_changed() -> None:
    world = World(config=TopicConfig(segment_bytes=700))
    log = world.open()
    for number in range(30):
        append(log, batch(2, fill=number))
    flush(log)
    close(log)
    before = {name: world.disk.content(f"{DIRECTORY}/{name}") for name in names(world)}
    assert f"{60:020d}.snapshot" in before
    assert before[f"{log.segments.bases[-1]:020d}.timeindex"]
    log = world.open(clean=True, recovery_point=60)
    log.epochs.assign(9, log.log_end_offset)
    world.disk.fail_next("pwritev", errno.EIO)
    world.disk.fail_next("fdatasync", errno.EIO)
    close(log)
    after = {name: world.disk.content(f"{DIRECTORY}/{name}") for name in names(world)}
    assert after == before


def names(world: World) -> list[str]:
    return sorted(world.disk.list_dir(DIRECTORY))


def test_a_falling_leader_epoch_is_refused() -> None:
    log = World().open()
    append(log, epoch=3)
    with pytest.raises(KafkaError) as caught:
        append(log, epoch=2)
    assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH
    assert log.log_end_offset == 1
