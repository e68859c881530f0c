"""Log compaction while other things happen: reads, retention, truncation, stops, faults."""

from __future__ import annotations

import errno
import threading
from dataclasses import replace

import pytest

from tests.unit.storage.compaction_helpers import COMPACT, clean, keyed, pairs, put, seal, stored
from tests.unit.storage.helpers import (
    DIRECTORY,
    NOW_MS,
    World,
    admitted,
    close,
    flush,
    stored_batches,
    truncate,
)
from tidelog.model import Codec
from tidelog.protocol.batches import (
    BatchHeader,
    Record,
    build_batch,
    check_crc,
    decode_records,
    encode_batch,
    read_header,
)
from tidelog.protocol.batches import seal as seal_batch
from tidelog.storage.compaction import Clean
from tidelog.storage.dirt import CleanAbandonedError, UncleanableError, measure
from tidelog.storage.log import Log
from tidelog.storage.partition_directory import remove_tree
from tidelog.storage.segment import DiskFullError
from tidelog.storage.verification import COORDINATOR


def world() -> World:
    return World(config=replace(COMPACT))


def begin(log: Log) -> tuple[Clean, threading.Event]:
    stop = threading.Event()
    work = Clean(log, measure(log, log.flushed_offset, NOW_MS), 1 << 20, stop)
    work.read_keys()
    return work, stop


def two_segments(here: World) -> Log:
    log = here.open()
    for number in range(12):
        put(log, ("a", f"{number}" * 100))
    seal(log)
    assert len(log.segments) >= 4
    return log


def test_a_fetch_goes_on_reading_what_was_replaced() -> None:
    here = world()
    log = two_segments(here)
    before = stored_batches(log)
    old = [log.read(0, 10**6, log.end_position)]
    expected = [b"".join(before)]
    for value in "xyz":
        clean(log)
        put(log, ("a", value))
        seal(log)
        expected.append(b"".join(stored_batches(log)))
        old.append(log.read(0, 10**6, log.end_position))
    clean(log)
    here.run_deferred()
    # Readers find their files by name where the descriptors had to go to others.
    for file in list(here.context.files.opened):
        file.evict()
    assert [slices.read_all() for slices in old] == expected
    for slices in old:
        slices.release()
    here.run_deferred()
    assert not [name for name in here.disk.list_dir(DIRECTORY) if "deleted" in name]


def test_retention_in_the_middle_of_a_clean_wins() -> None:
    here = world()
    log = two_segments(here)
    work, _ = begin(log)
    (group, *_) = work.groups()
    cleaned = work.rewrite(group)
    log.advance_log_start(log.segments.bases[1])
    assert log.apply_retention(NOW_MS, log.log_end_offset) == 1
    expected = stored_batches(log)
    with pytest.raises(CleanAbandonedError):
        work.swap(group, cleaned)
    work.release()
    here.run_deferred()
    assert stored_batches(log) == expected
    assert not [
        name for name in here.disk.list_dir(DIRECTORY) if name.endswith((".cleaned", ".deleted"))
    ]


def test_a_truncation_in_the_middle_of_a_clean_wins() -> None:
    here = world()
    log = two_segments(here)
    work, _ = begin(log)
    (group, *_) = work.groups()
    cleaned = work.rewrite(group)
    truncate(log, log.segments.bases[1] - 1)
    for number in range(6):
        put(log, ("new", f"{number}" * 100))
    seal(log)
    assert work.is_stale
    expected = stored_batches(log)
    with pytest.raises(CleanAbandonedError):
        work.swap(group, cleaned)
    work.release()
    assert stored_batches(log) == expected


@pytest.mark.parametrize("end", ["delete", "close", "delete-policy"])
def test_a_log_that_is_deleted_closed_or_reconfigured_is_not_touched(end: str) -> None:
    here = world()
    log = two_segments(here)
    work, _ = begin(log)
    (group, *_) = work.groups()
    cleaned = work.rewrite(group)
    if end == "delete":
        log.abandon()
        remove_tree(here.disk, log.directory)
    elif end == "close":
        close(log)
    else:
        log.reconfigure(replace(here.config, cleanup_compact=False))
    with pytest.raises(CleanAbandonedError):
        work.swap(group, cleaned)
    work.release()
    if end == "close":
        assert len(stored(here.open(clean=True))) == 12


def test_a_clean_stops_when_it_is_told_to() -> None:
    here = world()
    log = two_segments(here)
    work, stop = begin(log)
    stop.set()
    with pytest.raises(CleanAbandonedError):
        work.rewrite(work.groups()[0])
    work.release()
    assert not [name for name in here.disk.list_dir(DIRECTORY) if name.endswith(".cleaned")]
    assert len(stored(log)) == 12
    clean(log)
    assert len(stored(log)) == 1


@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "rename"])
def test_a_full_disk_breaks_a_clean_off_and_leaves_the_log_in_use(call: str) -> None:
    here = world()
    log = two_segments(here)
    work, _ = begin(log)
    group = work.groups()[0]
    here.disk.fail_next(call, errno.ENOSPC)
    with pytest.raises(Exception, match=r"space"):
        work.swap(group, work.rewrite(group))
    work.release()
    assert not log.offline
    assert not [
        name for name in here.disk.list_dir(DIRECTORY) if name.endswith((".cleaned", ".swap"))
    ]
    assert len(stored(log)) == 12
    clean(log)
    assert len(stored(log)) == 1


def test_a_clean_is_not_begun_without_room_for_it() -> None:
    here = world()
    log = two_segments(here)
    here.disk.capacity_bytes = here.disk.used_bytes() + 100
    with pytest.raises(DiskFullError):
        clean(log)
    assert len(stored(log)) == 12


def test_a_damaged_batch_is_kept_byte_for_byte_and_the_rest_is_cleaned() -> None:
    """Written again it would get a checksum that is right."""
    for position in (80, 30, 60):  # a value, a timestamp, the record count
        here = world()
        log = two_segments(here)
        here.disk.corrupt(f"{DIRECTORY}/00000000000000000000.log", position)
        damaged = stored_batches(log)[0]
        assert not check_crc(damaged, 0, len(damaged))
        clean(log)
        after = stored_batches(log)
        assert after[0] == damaged
        kept = [record.offset for data in after[1:] for record in decode_records(data)]
        assert kept == [11]
        assert log.first_dirty_offset == 12


@pytest.mark.parametrize("fields", [{"transactional": True}, {"control": True}])
def test_a_damaged_batch_that_may_be_part_of_a_transaction_makes_a_log_uncleanable(
    fields: dict[str, bool],
) -> None:
    here = world()
    log = here.open()
    commit = Record(key=b"\0\0\0\1", value=bytes(6))
    batch = encode_batch([commit], producer_id=7, producer_epoch=0, **fields)
    log.append(admitted(batch), 0, NOW_MS, COORDINATOR)
    put(log, ("a", "2"))
    log.producers.high_watermark_moved(log.log_end_offset)
    seal(log)
    here.disk.corrupt(f"{DIRECTORY}/00000000000000000000.log", 66)
    before = stored_batches(log)
    with pytest.raises(UncleanableError, match="checksum"):
        clean(log, stable_offset=log.log_end_offset)
    assert not log.offline
    assert stored_batches(log) == before


def test_a_damaged_last_offset_does_not_move_the_end_of_a_segment() -> None:
    here = world()
    log = here.open()
    put(log, ("a", "1"), ("b", "1"))
    seal(log)
    path = f"{DIRECTORY}/00000000000000000000.log"
    here.disk.corrupt(path, 26)
    before = here.disk.content(path)
    assert read_header(before).last_offset_delta == 0
    with pytest.raises(UncleanableError, match="does not end at offset 1"):
        clean(log)
    assert here.disk.content(path) == before
    assert log.log_end_offset == 2


@pytest.mark.parametrize("claimed", [3, 2**31 - 1])
def test_compressed_nonsense_of_other_days_is_kept_and_the_rest_is_cleaned(claimed: int) -> None:
    """Not looked into when it came, since the topic was not compacted then."""
    here = world()
    log = two_segments(here)
    nonsense = build_batch(
        BatchHeader(record_count=claimed, last_offset_delta=claimed - 1), b"no records at all"
    )
    header = read_header(nonsense)
    header.attributes = Codec.GZIP
    seal_batch(nonsense, 0, header)
    log.append(admitted(nonsense), 0, NOW_MS)
    end = log.log_end_offset
    put(log, ("a", "last"), ("b", "only"))
    seal(log)
    poison = stored_batches(log)[-2]
    clean(log)
    after = stored_batches(log)
    assert after[-2] == poison
    assert [record.offset for record in decode_records(after[-1])] == [end, end + 1]
    assert not [data for data in after[:-2] if read_header(data).record_count]
    assert log.first_dirty_offset == log.log_end_offset == end + 2


def test_batches_larger_than_what_is_read_at_once_are_cleaned() -> None:
    here = world()
    here.config.segment_bytes = 20 << 20
    log = here.open()
    for number in range(3):
        put(log, ("small", str(number)))
        put(log, ("large", f"{number}" * (3 << 20)))
    seal(log)
    clean(log)
    assert [(offset, key, value[:1]) for offset, key, value in pairs(stored(log)) if value] == [
        (4, "small", "2"),
        (5, "large", "2"),
    ]


def test_both_policies_let_old_segments_go_and_clean_the_rest() -> None:
    here = world()
    here.config.cleanup_delete = True
    here.config.retention_ms = 1000
    log = two_segments(here)
    clean(log)
    here.clock.advance(2000)
    log.append(keyed([("new", "v")], timestamp=here.clock.now_ms), 0, here.clock.now_ms)
    removed = log.apply_retention(here.clock.now_ms, log.log_end_offset)
    assert removed == 4
    assert pairs(stored(log)) == [(12, "new", "v")]
    assert log.log_start_offset == 12


def test_a_replaced_segment_keeps_the_log_without_a_hole_for_recovery() -> None:
    """With every segment's end kept, a log without any recovery point is still recovered whole."""
    here = world()
    log = two_segments(here)
    put(log, ("b", "1"))
    seal(log)
    here.config.segment_bytes = 300
    log.reconfigure(here.config)
    clean(log)
    assert len(log.segments) > 3
    expected = stored_batches(log)
    assert sum(read_header(data).record_count == 0 for data in expected) >= 2
    flush(log)
    again = here.reopen_after(here.disk.crash(), recovery_point=0)
    assert stored_batches(again) == expected
    assert again.repairs.truncated_bytes == 0
