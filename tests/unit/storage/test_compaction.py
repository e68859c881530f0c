"""Log compaction: what stays, what goes and when, and what may happen meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.storage.compaction_helpers import (
    COMPACT,
    clean,
    headers,
    keyed,
    pairs,
    put,
    seal,
    stored,
    visible,
)
from tests.unit.storage.helpers import (
    DIRECTORY,
    NOW_MS,
    World,
    admitted,
    append_marker,
    close,
    flush,
    marker,
    offset_for_timestamp,
    offset_of_max_timestamp,
    stored_batches,
    truncate,
)
from tidelog.model import Codec, TimestampType
from tidelog.protocol.batches import Record, decode_records, encode_batch
from tidelog.storage.dirt import measure, needs_cleaning
from tidelog.storage.log import Log

ABORT, COMMIT = 0, 1


def world() -> World:
    return World(config=replace(COMPACT))


def transaction(log: Log, pair: tuple[str, str | None], sequence: int, end: int) -> None:
    item = keyed(
        [pair], producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True
    )
    log.append(item, 0, NOW_MS)
    append_marker(log, marker(end))


# What stays


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_the_newest_record_of_each_key_stays_at_its_offset(codec: Codec) -> None:
    log = world().open()
    put(log, ("a", "1"), ("b", "1"), ("c", "1"), codec=codec)
    put(log, ("a", "2"), ("d", "1"), codec=codec)
    put(log, ("b", "2"), ("a", "3"), ("e", "1"), codec=codec)
    before = {record.offset: record for record in stored(log)}
    seal(log)
    put(log, ("c", "9"), codec=codec)

    clean(log)

    assert pairs(stored(log)) == [
        (2, "c", "1"), (4, "d", "1"), (5, "b", "2"), (6, "a", "3"), (7, "e", "1"), (8, "c", "9"),
    ]  # fmt: skip
    assert all(record == before.get(record.offset, record) for record in stored(log))
    assert [header.base_offset for header in headers(log)] == [0, 3, 5, 8]
    assert [header.last_offset for header in headers(log)] == [2, 4, 7, 8]
    assert {header.codec for header in headers(log)} == {codec}
    assert log.log_end_offset == 9
    assert log.first_dirty_offset == 8


def test_reads_in_a_gap_give_the_batch_behind_it() -> None:
    here = world()
    here.config.segment_bytes = 10_000
    log = here.open()
    for number in range(10):
        put(log, ("same", str(number)))
    last = put(log, ("other", "x"))
    seal(log)
    clean(log)
    assert [record.offset for record in stored(log)] == [9, last]
    for offset in range(11):
        slices = log.read(offset, 1, log.end_position)
        (found,) = decode_records(slices.read_all())
        slices.release()
        assert found.offset == max(9, offset)


def test_what_is_not_sealed_or_not_flushed_or_not_stable_is_left_alone() -> None:
    log = world().open()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    assert not measure(log, 2, NOW_MS).dirty_bytes
    log.roll_if_due(NOW_MS + 10**15)
    assert not measure(log, log.flushed_offset, NOW_MS).dirty_bytes
    flush(log)
    assert not measure(log, 1, NOW_MS).dirty_bytes
    assert measure(log, 2, NOW_MS).dirty_bytes


def test_a_batch_changes_only_where_it_must() -> None:
    log = world().open()
    fields = {"producer_id": 9, "producer_epoch": 3, "base_sequence": 40}
    log.append(keyed([("a", "1"), ("b", "1"), ("c", "1")], **fields), 5, NOW_MS)
    log.append(keyed([("c", "2")]), 5, NOW_MS)
    untouched = stored_batches(log)[1]
    seal(log)
    clean(log)
    first = headers(log)[0]
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (9, 3, 40)
    assert (first.leader_epoch, first.last_offset_delta, first.record_count) == (5, 2, 2)
    assert first.last_sequence == 42
    assert first.max_timestamp == NOW_MS + 1, "that of the newest record that is left"
    assert stored_batches(log)[1] == untouched


def test_with_append_times_the_time_of_a_batch_stays() -> None:
    log = world().open()
    records = [Record(timestamp=5, key=key, value=b"v") for key in (b"a", b"b")]
    for _ in range(2):
        data = encode_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
        log.append(admitted(data), 0, NOW_MS)
    put(log, ("b", None))
    seal(log)
    clean(log)
    (header, _) = headers(log)
    assert (header.base_offset, header.record_count, header.max_timestamp) == (2, 1, 5)


def test_small_segments_become_large_ones_within_their_limits() -> None:
    here = world()
    here.config.segment_bytes = 400
    log = here.open()
    for number in range(40):
        put(log, (f"key-{number}", "v" * 60))
    seal(log)
    before = len(log.segments)
    here.config.segment_bytes = 2000
    clean(log)
    assert before > 15
    assert len(log.segments) == 4
    assert all(segment.size_bytes <= 2000 for segment in log.segments)
    assert [record.offset for record in stored(log)] == list(range(40))
    assert here.disk.open_files
    names = {name.partition(".")[2] for name in here.disk.list_dir(DIRECTORY)}
    assert "log.swap" not in names and "log.cleaned" not in names
    here.run_deferred()
    names = here.disk.list_dir(DIRECTORY)
    assert not [name for name in names if name.endswith(".deleted")]
    assert len([name for name in names if name.endswith(".snapshot")]) <= 5


def test_a_clean_that_changes_nothing_leaves_the_files_as_they_are() -> None:
    here = world()
    log = here.open()
    put(log, ("a", "1"), ("b", "1"))
    seal(log)
    segment = log.segments[0]
    assert clean(log).bytes_written == segment.size_bytes
    assert log.segments[0] is segment
    assert log.first_dirty_offset == 2


def test_a_full_map_cleans_only_so_far_and_later_cleans_go_on() -> None:
    log = world().open()
    for number in range(60):
        put(log, (f"key-{number % 20}", str(number)))
    seal(log)
    firsts = []
    while measure(log, log.flushed_offset, NOW_MS).dirty_bytes:
        firsts.append(clean(log, buffer_bytes=192 * 8).first_dirty_offset)
        assert len(firsts) < 60
    assert len(firsts) > 3
    assert firsts == sorted(set(firsts))
    assert [record.offset for record in stored(log)] == list(range(40, 60))


def test_a_batch_larger_than_the_map_is_taken_whole() -> None:
    log = world().open()
    put(log, *[(f"k{number}", "1") for number in range(10)])
    put(log, *[(f"k{number}", "2") for number in range(10)])
    seal(log)
    assert clean(log, buffer_bytes=1).first_dirty_offset == 10
    assert clean(log, buffer_bytes=1).first_dirty_offset == 20
    assert [record.offset for record in stored(log)] == list(range(10, 20))


def test_long_keys_are_told_apart_and_records_without_a_key_go() -> None:
    log = world().open()
    long = "x" * 100
    put(log, (long + "1", "a"), (long + "2", "b"))
    log.append(admitted(encode_batch([Record(timestamp=1, value=b"no key")])), 0, NOW_MS)
    put(log, (long + "1", "c"), ("", "empty"))
    seal(log)
    clean(log)
    assert [(offset, value) for offset, _, value in pairs(stored(log))] == [
        (1, "b"), (3, "c"), (4, "empty"),
    ]  # fmt: skip


def test_times_are_still_found_over_gaps() -> None:
    log = world().open()
    for number in range(12):
        item = keyed([(f"k{number % 3}", str(number))], timestamp=NOW_MS + number * 10)
        log.append(item, 0, NOW_MS)
    seal(log)
    clean(log)
    assert offset_for_timestamp(log, NOW_MS + 15) == (9, NOW_MS + 90, 0)
    assert offset_for_timestamp(log, NOW_MS + 101) == (11, NOW_MS + 110, 0)
    assert offset_for_timestamp(log, NOW_MS + 111) is None
    assert offset_of_max_timestamp(log) == (11, NOW_MS + 110, 0)


def test_the_time_of_a_batch_without_records_is_not_the_newest() -> None:
    log = world().open()
    future = keyed([("a", "1")], timestamp=NOW_MS + 5000, producer_id=7, base_sequence=0,
                   producer_epoch=0)  # fmt: skip
    log.append(future, 0, NOW_MS)
    put(log, ("a", "2"))
    seal(log)
    clean(log)
    assert [header.record_count for header in headers(log)] == [0, 1]
    assert offset_of_max_timestamp(log) == (1, NOW_MS, 0)
    assert offset_for_timestamp(log, NOW_MS + 1) is None


# Producers


def test_the_last_batch_of_a_living_producer_stays_without_its_records() -> None:
    here = world()
    log = here.open()
    for sequence in range(3):
        item = keyed([("a", str(sequence))], producer_id=7, producer_epoch=2,
                     base_sequence=sequence)  # fmt: skip
        log.append(item, 0, NOW_MS)
    put(log, ("a", "x"))
    seal(log)
    clean(log)
    assert [(each.base_offset, each.record_count) for each in headers(log)] == [(2, 0), (3, 1)]
    for name in here.disk.list_dir(DIRECTORY):
        if name.endswith(".snapshot"):
            here.disk.unlink(f"{DIRECTORY}/{name}")
    again = here.reopen_after(here.disk.crash())
    state = again.producers.states[7]
    assert (state.epoch, state.last_sequence) == (2, 2)
    item = keyed([("b", "y")], producer_id=7, producer_epoch=2, base_sequence=3)
    assert again.append(item, 0, NOW_MS).base_offset == 4


def test_a_producer_that_is_forgotten_keeps_nothing() -> None:
    here = world()
    log = here.open()
    log.append(keyed([("a", "1")], producer_id=7, producer_epoch=0, base_sequence=0), 0, NOW_MS)
    put(log, ("a", "2"))
    seal(log)
    log.producers.expire(here.running_clock.ages(), 0)
    clean(log)
    assert [header.base_offset for header in headers(log)] == [1]


# Tombstones and markers


def test_s18_a_tombstone_stays_for_delete_retention_after_its_first_clean() -> None:
    here = world()
    log = here.open()
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None), ("c", "1"))
    seal(log)
    here.clock.advance(10**9)
    clean(log)
    assert pairs(stored(log)) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    header = headers(log)[1]
    assert header.has_delete_horizon
    assert header.first_timestamp == here.clock.now_ms + 1000
    assert [record.timestamp for record in stored(log)] == [NOW_MS + 1, NOW_MS, NOW_MS + 1]
    assert header.max_timestamp == NOW_MS + 1
    for passed_ms, there in ((999, True), (1, False)):
        here.clock.advance(passed_ms)
        put(log, ("z", "1"))
        seal(log)
        clean(log)
        assert ((2, "a", None) in pairs(stored(log))) is there
    assert (3, "c", "1") in pairs(stored(log))


def test_s18_a_horizon_is_not_moved_by_later_cleans_or_restarts() -> None:
    here = world()
    log = here.open()
    put(log, ("a", None))
    put(log, ("z", "0"))
    seal(log)
    clean(log)
    horizon = headers(log)[0].first_timestamp
    for number in range(3):
        here.clock.advance(300)
        put(log, ("z", str(number)))
        seal(log)
        close(log)
        log = here.open(clean=True)
        clean(log)
        assert headers(log)[0].first_timestamp == horizon
    here.clock.advance(100)
    put(log, ("z", "end"))
    seal(log)
    clean(log)
    assert "a" not in {key for _, key, _ in pairs(stored(log))}


def test_s17_aborted_data_never_shows_whatever_is_cleaned() -> None:
    here = world()
    log = here.open()
    put(log, ("a", "good"))
    transaction(log, ("a", "bad"), 0, ABORT)
    transaction(log, ("b", "bad"), 1, ABORT)
    transaction(log, ("c", "good"), 2, COMMIT)
    expected = {("a", "good"), ("c", "good")}
    for _ in range(6):
        put(log, ("z", "z"))
        seal(log)
        clean(log)
        here.clock.advance(600)
        for reader in (log, here.reopen_after(here.disk, recovery_point=log.flushed_offset)):
            seen = {(key, value) for _, key, value in pairs(visible(reader))}
            assert seen - {("z", "z")} == expected
            reader.producers.high_watermark_moved(reader.log_end_offset)
            assert reader.producers.first_unstable_offset == -1
        log = reader
    assert "bad" not in {value for _, _, value in pairs(stored(log))}


def test_s17_a_marker_goes_only_after_its_data_and_its_horizon() -> None:
    here = world()
    log = here.open()
    transaction(log, ("a", "1"), 0, COMMIT)
    transaction(log, ("b", "bad"), 1, ABORT)
    log.producers.expire(here.running_clock.ages(), 0)

    def markers() -> list[tuple[int, bool]]:
        put(log, ("z", "z"))
        seal(log)
        clean(log)
        return [
            (each.base_offset, each.has_delete_horizon) for each in headers(log) if each.is_control
        ]

    assert markers() == [(1, False), (3, False)], "the aborted batch went in this clean only"
    assert log.segments.aborted_transactions(0, 10) == [(7, 2)]
    assert markers() == [(1, False), (3, True)]
    assert log.segments.aborted_transactions(0, 10) == [], "nothing is left to be hidden"
    here.clock.advance(2000)
    assert markers() == [(1, False)], "the committed record is there, and so is its marker"
    put(log, ("a", "2"))
    assert markers() == [(1, False)]
    assert markers() == [(1, True)]
    here.clock.advance(2000)
    assert markers() == []


def test_s17_an_aborted_record_does_not_hide_an_older_good_one() -> None:
    log = world().open()
    put(log, ("a", "good"))
    transaction(log, ("a", "bad"), 0, ABORT)
    seal(log)
    clean(log)
    assert pairs(visible(log)) == [(0, "a", "good")]
    assert pairs(stored(log)) == [(0, "a", "good")]


def test_s17_an_open_transaction_is_not_cleaned() -> None:
    log = world().open()
    put(log, ("a", "1"))
    seal(log)
    item = keyed([("a", "2")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.append(item, 0, NOW_MS)
    put(log, ("a", "3"))
    seal(log)
    clean(log)
    assert [record.offset for record in stored(log)] == [0, 1, 2]
    append_marker(log, marker(ABORT))
    seal(log)
    clean(log)
    assert pairs(stored(log)) == [(2, "a", "3")]


def test_the_epoch_of_a_producer_is_known_from_a_marker_without_records() -> None:
    here = world()
    log = here.open()
    transaction(log, ("a", "1"), 0, COMMIT)
    append_marker(log, marker(ABORT, epoch=4))
    for _ in range(3):
        put(log, ("a", "2"))
        seal(log)
        clean(log)
        here.clock.advance(2000)
    emptied = [each for each in headers(log) if each.is_control and not each.record_count]
    assert [each.producer_epoch for each in emptied] == [4]
    for name in here.disk.list_dir(DIRECTORY):
        if name.endswith(".snapshot"):
            here.disk.unlink(f"{DIRECTORY}/{name}")
    again = here.reopen_after(here.disk.crash())
    assert again.producers.states[7].epoch == 4


# Which log, and when


def test_a_log_is_dirty_by_its_share_of_uncleaned_bytes() -> None:
    here = world()
    here.config.min_cleanable_dirty_ratio = 0.5
    log = here.open()
    for number in range(10):
        put(log, (f"k{number}", "v" * 100))
    seal(log)
    dirt = measure(log, log.flushed_offset, NOW_MS)
    assert dirt.ratio == 1.0
    assert needs_cleaning(log, dirt)
    clean(log)
    for number in range(5):
        put(log, (f"k{number}", "w" * 100))
        seal(log)
    dirt = measure(log, log.flushed_offset, NOW_MS)
    assert 0.3 < dirt.ratio < 0.4
    assert not needs_cleaning(log, dirt)
    log.config.cleanup_compact = False
    log.config.min_cleanable_dirty_ratio = 0.0
    assert not needs_cleaning(log, dirt)


def test_the_least_and_the_longest_lag_are_kept() -> None:
    here = world()
    here.config.min_compaction_lag_ms = 5000
    here.config.min_cleanable_dirty_ratio = 1.0
    here.config.max_compaction_lag_ms = 60_000
    log = here.open()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    seal(log)
    here.clock.advance(4999)
    assert not measure(log, 2, NOW_MS + 4999).dirty_bytes
    here.clock.advance(1)
    assert measure(log, 2, NOW_MS + 5000).dirty_bytes
    assert not needs_cleaning(log, measure(log, 2, NOW_MS + 60_000))
    assert needs_cleaning(log, measure(log, 2, NOW_MS + 60_001))
    put(log, ("b", "1"))
    assert not log.roll_if_due(NOW_MS + 60_000)
    assert log.roll_if_due(NOW_MS + 60_001)


def test_a_cleaned_offset_outside_the_log_is_not_believed() -> None:
    log = world().open()
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    seal(log)
    log.first_dirty_offset = 99
    assert measure(log, 2, NOW_MS).first_dirty_offset == 0
    log.first_dirty_offset = 2
    truncate(log, 1)
    assert log.first_dirty_offset == 1
