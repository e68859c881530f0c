"""Opening a log: what is on disk becomes segments, producer states and leader epochs.

After a clean stop the files are taken as they are, save that indexes must fit their logs. After any
other stop every segment from the one that holds the recovery point on is walked batch by batch with
its checksums; the log ends before the first batch that is bad or missing, whatever lies behind,
so that what is kept is the longest valid prefix. Indexes, aborted transactions, producer states and
leader epochs of what was walked are made anew. Doing it twice gives the same as doing it once.

A replacement by the cleaner that was decided is finished first (`swap`), and what was being written
(`.tmp`, `.cleaned`, `.swap`) is unlinked. Left-overs of deletions are named to the caller.
Everything here blocks: it runs before the log is served. Nothing is synced: the caller syncs the
file system once for all the logs that it opened, before it believes a recovery point.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidelog._kernels.batch_rows import LAST_OFFSET_DELTA, ROW_FIELDS
from tidelog.host.disk import Disk
from tidelog.model import TopicPartition
from tidelog.storage.epochs import LeaderEpochs
from tidelog.storage.faults import DISK_FULL
from tidelog.storage.log_context import LogContext, NewLog
from tidelog.storage.losses import Expectation, fill, follows
from tidelog.storage.producer_loading import Snapshots, reload_producers
from tidelog.storage.producers import ProducerStates
from tidelog.storage.replay import Replay, assign_epochs
from tidelog.storage.scan import Extent, header_at, stretches
from tidelog.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SWAP_SUFFIX,
    Segment,
    newest_timestamp,
)
from tidelog.storage.segments import create_segment
from tidelog.storage.snapshots import (
    SUFFIX,
    snapshot_offsets,
    snapshots_in,
    stray_snapshots,
    unlink_snapshot,
)
from tidelog.storage.swap import finish_swaps

logger = logging.getLogger(__name__)

_SEGMENT_NAME = re.compile(r"(\d{20})\.log")
_BROKEN_OFF = (".tmp", CLEANED_SUFFIX, SWAP_SUFFIX)
_SMALL_BYTES = 64 * 1024


@dataclass(slots=True)
class Opening:
    """What is known of a log before its files are looked at."""

    topic_partition: TopicPartition
    new: NewLog
    context: LogContext
    expected: Expectation
    clean: bool

    @property
    def directory(self) -> str:
        return self.expected.directory

    @property
    def index_interval_bytes(self) -> int:
        return self.new.config.index_interval_bytes


@dataclass(slots=True)
class Repairs:
    """What opening a log came to."""

    # How much was walked with its checksums, and how much of that was cut off: bytes, and as many
    # offsets as their headers claim.
    recovered_bytes: int = 0
    truncated_bytes: int = 0
    truncated_offsets: int = 0
    # Files of segments that were deleted before the last stop, to be unlinked once it is
    # written down where the log starts now.
    left_over: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Opened:
    """A log's content after recovery."""

    segments: list[Segment]
    log_start_offset: int = 0
    recovery_point: int = 0
    producers: ProducerStates = field(default_factory=ProducerStates)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    repairs: Repairs = field(default_factory=Repairs)
    # True where what is on disk is just what a clean stop would leave.
    untouched: bool = False
    # How many changes of the leader epochs the file on disk knows of.
    epochs_written: int = -1


def load(opening: Opening) -> Opened:
    """Read and, where the last stop was not clean, repair a log."""
    disk, directory = opening.context.disk, opening.directory
    names = finish_swaps(disk, directory, disk.list_dir(directory))
    _remove_broken_off(disk, directory, names)
    left_over = [f"{directory}/{name}" for name in names if name.endswith(DELETED_SUFFIX)]
    bases = segment_bases(names)
    opened = Opened([_open_segment(opening, base) for base in bases])
    opened.repairs.left_over = left_over
    segments = opened.segments
    opening.expected.check_first(bases, names)
    walked_from = 1
    if not _resume_small(opening, opened):
        walked_from = _first_to_walk(opening, segments)
        for segment in segments[: min(walked_from, len(segments) - 1)]:
            if not _resume(segment):
                segment.rebuild_indexes(
                    "it does not fit its log", opening.index_interval_bytes, may_shrink=True
                )
        _load_epochs(opening, opened, walked_from)
    if walked_from < len(segments):
        _recover(opening, opened, walked_from)
    elif segments:
        _leave_out_unused(opened)
        snapshots = Snapshots(disk, directory, snapshots_in(names))
        reload_producers(snapshots, segments, opened.producers)
        opened.untouched = f"{segments[-1].next_offset:020d}{SUFFIX}" in names
    _check_whole(opening, opened)
    if not segments or segments[-1].next_offset < opening.expected.log_start_offset:
        _start_again(opening, opened)
    opened.repairs.left_over += stray_snapshots(
        directory,
        [segment.base_offset for segment in segments],
        names if opening.clean else disk.list_dir(directory),
    )
    opened.log_start_offset = max(opening.expected.log_start_offset, segments[0].base_offset)
    opened.recovery_point = segments[-1].next_offset
    opened.epochs.truncate_from_end(opened.recovery_point)
    opened.epochs.truncate_from_start(opened.log_start_offset)
    return opened


def segment_bases(names: Iterable[str]) -> list[int]:
    """The base offsets of the segments whose files these are, in order."""
    return sorted(int(match[1]) for name in names if (match := _SEGMENT_NAME.fullmatch(name)))


def begin(opening: Opening) -> Opened:
    """A new log, whose empty first segment is on disk; touches no file."""
    return Opened([Segment(opening.context, opening.directory, 0)], untouched=True)


def _first_to_walk(opening: Opening, segments: list[Segment]) -> int:
    """The first segment whose bytes may not be as they were written."""
    if not segments:
        return 0
    if opening.clean:
        # A marker of a clean stop is believed only as far as the last batch is whole.
        return len(segments) if _resume(segments[-1]) else len(segments) - 1
    # A segment that ends at the recovery point may have been sealed after the flush that moved it
    # there: its batches are on disk, its indexes may not be.
    place = bisect_left(
        [segment.base_offset for segment in segments], opening.expected.recovery_point
    )
    return max(place - 1, 0)


def _remove_broken_off(disk: Disk, directory: str, names: list[str]) -> None:
    """Unlink what was being written; nobody has relied on it."""
    for name in names:
        if name.endswith(_BROKEN_OFF):
            disk.unlink(f"{directory}/{name}")


def _is_unused(earlier: Segment, later: Segment) -> bool:
    """True for the empty file of a roll that found no room: the segment before it went on."""
    return not later.size_bytes and later.base_offset < earlier.next_offset


def _leave_out_unused(opened: Opened) -> None:
    earlier = opened.segments[0]
    for later in opened.segments[1:]:
        if not _is_unused(earlier, later):
            earlier = later
        else:
            logger.warning("leaving an empty segment out segment=%s", later.log_file.path)
            later.close()
            opened.segments.remove(later)
            paths = (file.path for file in reversed(later.files))
            opened.repairs.left_over += (path for path in paths if later.disk.exists(path))


def _check_whole(opening: Opening, opened: Opened) -> None:
    """Refuse a log that lost what was synced, or fill the holes where that is accepted."""
    context, expected, segments = opening.context, opening.expected, opened.segments
    for place in range(len(segments) - 1, 0, -1):
        earlier, later = segments[place - 1 : place + 1]
        was_synced = expected.log_start_offset < later.base_offset <= expected.recovery_point
        if (was_synced or expected.accept_loss) and not follows(earlier, later):
            expected.check_gap(earlier, later)
            if expected.accept_loss:
                fill(context, segments, place, later.base_offset)
    end_offset = segments[-1].next_offset if segments else expected.log_start_offset
    expected.check_end(end_offset)
    if segments and expected.accept_loss and end_offset < expected.known_end:
        fill(context, segments, len(segments), expected.known_end)
        opened.producers.end_offset = expected.known_end


def _start_again(opening: Opening, opened: Opened) -> None:
    """Nothing usable at or above the log's start: an empty log that begins there."""
    start = opening.expected.log_start_offset
    if opening.expected.accept_loss:
        start = opening.expected.known_end
    # Made before the others go: a directory without a segment is one that lost them.
    segment = create_segment(opening.context, opening.directory, start)
    _drop_from(opened.segments, 0, f"it lies below the log start {start}")
    opened.segments.append(segment)
    opened.producers.clear(start)


def _drop(segment: Segment) -> None:
    segment.close()
    for file in reversed(segment.files):
        if segment.disk.exists(file.path):
            segment.disk.unlink(file.path)


# Segments


def _open_segment(opening: Opening, base_offset: int) -> Segment:
    """A segment from its files, its indexes as they are."""
    disk = opening.context.disk
    segment = Segment(opening.context, opening.directory, base_offset)
    segment.size_bytes = disk.file_size(segment.log_file.path)
    segment.created_ms = disk.modified_ms(segment.log_file.path)
    for index in (segment.offsets, segment.times):
        path = index.file.path
        index.load(disk.file_size(path) if disk.exists(path) else 0)
    return segment


def _resume_small(opening: Opening, opened: Opened) -> bool:
    """Walk a log of one small segment after a clean stop: one read instead of a dozen.

    Thousands of partitions are like that, and a start has to be short. False, and nothing changed,
    where the log is another or its batches do not fill it.
    """
    segments = opened.segments
    if not opening.clean or len(segments) != 1 or segments[0].size_bytes > _SMALL_BYTES:
        return False
    segment = segments[0]
    size_bytes = segment.size_bytes
    segment.reset()
    if size_bytes:
        with segment.log_file as fd:
            extent = Extent(segment.disk, fd, 0, size_bytes, segment.base_offset)
            for stretch in stretches(extent, verify=False):
                segment.note_all(stretch, opening.index_interval_bytes)
                assign_epochs(stretch, opened.epochs)
    if segment.size_bytes != size_bytes:
        segment.close()
        segments[0] = _open_segment(opening, segment.base_offset)
        opened.epochs.clear()
        return False
    return True


def _resume(segment: Segment) -> bool:
    """Find the end of a segment from its last index entry; False where an index must be wrong."""
    entry, time = segment.offsets.last(), segment.times.last()
    if segment.size_bytes and time is None and entry is not None:
        return False
    start, relative = (0, 0) if entry is None else (entry[1], entry[0])
    if not 0 <= start <= segment.size_bytes or relative < 0:
        return False
    end = start
    first_timestamp = -1
    for position, header in segment.batches_from(start):
        if not position:
            first_timestamp = newest_timestamp(header)
        if position == start and start and header.last_offset - segment.base_offset != relative:
            return False
        if newest_timestamp(header) > segment.largest_timestamp:
            segment.largest_timestamp = header.max_timestamp
            segment.largest_timestamp_offset = header.last_offset
        segment.next_offset = header.last_offset + 1
        end = position + header.size_bytes
    if end != segment.size_bytes or (time is None and segment.largest_timestamp >= 0):
        return False
    if time is not None:
        if not segment.times_fit(time):
            return False
        if time[0] > segment.largest_timestamp:
            segment.largest_timestamp = time[0]
            segment.largest_timestamp_offset = time[1] + segment.base_offset
    segment.resume_after(end - start, first_timestamp)
    return True


def _recover(opening: Opening, opened: Opened, first: int) -> None:
    """Walk what may not have reached the disk whole; cut the log at the first bad batch."""
    segments = opened.segments
    disk, directory, producers = opening.context.disk, opening.directory, opened.producers
    # The walk finds the aborted transactions of its segments again, so the producers are taken
    # as they were before it.
    snapshots = Snapshots(disk, directory)
    reload_producers(snapshots, segments[:first], producers, segments[first].base_offset)
    leader_epoch = -1
    before: Segment | None = None
    for place in range(first, len(segments)):
        segment = segments[place]
        # Segments follow each other without a gap, since the cleaner keeps the last batch of each;
        # other cleaners do not, but then what lies below the recovery point was synced.
        synced = segment.base_offset <= opening.expected.recovery_point
        if before is not None and _is_unused(before, segment):
            continue
        if before is not None and not synced and not follows(before, segment):
            if before.next_offset < opening.expected.recovery_point:
                opening.expected.check_gap(before, segment)
            if not opening.expected.accept_loss:
                _drop_behind_hole(opened, place)
                break
        size_bytes = segment.size_bytes
        opened.repairs.recovered_bytes += size_bytes
        leader_epoch = _recover_segment(opening, opened, segment, leader_epoch)
        if segment.size_bytes < size_bytes:
            opened.repairs.truncated_bytes += size_bytes - segment.size_bytes
            _drop_behind_hole(opened, place + 1)
            break
        before = segment
    _leave_out_unused(opened)
    producers.end_offset = segments[-1].next_offset
    for offset in snapshot_offsets(disk, directory):
        if offset > producers.end_offset:
            unlink_snapshot(disk, directory, offset)


def _recover_segment(opening: Opening, opened: Opened, segment: Segment, leader_epoch: int) -> int:
    """Walk one segment with checksums, learn what it says, cut off the rest; its last epoch."""
    size = segment.size_bytes
    file, disk = segment.log_file, segment.disk
    segment.reset()
    segment.aborted.reset()
    with file as fd:
        extent = Extent(disk, fd, 0, size, segment.base_offset, leader_epoch)
        replay = Replay(segment, opened.producers)
        fault = ""
        for stretch in stretches(extent, verify=True):
            segment.note_all(stretch, opening.index_interval_bytes)
            assign_epochs(stretch, opened.epochs)
            replay.take(stretch)
            leader_epoch, fault = stretch.leader_epoch, stretch.fault
        replay.finish()
        if segment.size_bytes < size:
            opening.expected.check_cut(segment)
            tail = Extent(disk, fd, segment.size_bytes, size, segment.next_offset)
            opened.repairs.truncated_offsets += _claimed_offsets(tail)
            disk.truncate(fd, segment.size_bytes)
            logger.warning(
                "cut off an invalid tail segment=%s position=%d bytes=%d next_offset=%d reason=%s",
                file.path,
                segment.size_bytes,
                size - segment.size_bytes,
                segment.next_offset,
                fault,
            )
    try:
        segment.write_indexes()
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        # They are in memory; what is read needs no more.
        logger.warning("no room for indexes segment=%s", file.path)
    return leader_epoch


def _claimed_offsets(extent: Extent) -> int:
    """How many offsets the headers in a part that is not valid claim, a torn batch's included."""
    end, next_offset, claimed = extent.start, extent.first_offset, 0
    try:
        for stretch in stretches(extent, verify=False):
            end, next_offset = stretch.end, stretch.next_offset
            deltas = stretch.rows[LAST_OFFSET_DELTA : stretch.count * ROW_FIELDS : ROW_FIELDS]
            claimed += sum(deltas) + stretch.count
        torn = header_at(extent.disk, extent.fd, end)
    except OSError:
        # These bytes are about to go. That they cannot be read must not keep the log from opening.
        return claimed
    if torn is not None and torn.base_offset == next_offset and torn.last_offset_delta >= 0:
        claimed += torn.last_offset_delta + 1
    return claimed


def _drop_behind_hole(opened: Opened, place: int) -> None:
    """Drop the segments from a place on, and count what goes with them."""
    segments = opened.segments
    if place == len(segments):
        return
    last = segments[-1]
    with last.log_file as fd:
        extent = Extent(last.disk, fd, 0, last.size_bytes, last.base_offset)
        opened.repairs.truncated_offsets += _claimed_offsets(extent)
    opened.repairs.truncated_offsets += last.base_offset - segments[place].base_offset
    opened.repairs.truncated_bytes += _drop_from(segments, place, "it lies behind a hole")


def _drop_from(segments: list[Segment], place: int, reason: str) -> int:
    dropped = 0
    for segment in segments[place:]:
        logger.warning("dropping segment=%s reason=%s", segment.log_file.path, reason)
        dropped += segment.size_bytes
        _drop(segment)
    del segments[place:]
    return dropped


# Leader epochs


def _load_epochs(opening: Opening, opened: Opened, walked_from: int) -> None:
    """Take the file for what was synced; headers tell the rest, or all where it is no use."""
    epochs, segments = opened.epochs, opened.segments
    known = epochs.load(opening.context.disk, opening.directory)
    if walked_from < len(segments):
        epochs.truncate_from_end(segments[walked_from].base_offset)
    kept = segments[:walked_from]
    if known and _epochs_fit(epochs, kept, opening.expected.log_start_offset):
        opened.epochs_written = epochs.changes
        return
    epochs.clear()
    for segment in kept:
        for _, header in segment.batches_from(0):
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)


def _epochs_fit(epochs: LeaderEpochs, segments: list[Segment], log_start_offset: int) -> bool:
    """False where the batches contradict the file, which has no checksum of its own."""
    entries = epochs.entries
    bases = [segment.base_offset for segment in segments]
    if not segments or not segments[-1].next_offset:
        return not entries
    start, last = max(log_start_offset, bases[0]), segments[-1].next_offset - 1
    probes = {offset + side for _, offset in entries for side in (-1, 0)} | {start, last}
    for offset in sorted(probe for probe in probes if start <= probe <= last):
        segment = segments[max(bisect_right(bases, offset) - 1, 0)]
        for _, header in segment.batches_from(segment.find(offset)):
            epoch = epochs.epoch_for(offset)
            # Compaction may have removed the batch that an epoch began with.
            if header.leader_epoch != epoch and header.base_offset <= offset:
                return False
            if header.leader_epoch < epoch:
                return False
            break
    return True
