"""Log compaction: which log is dirty, and one clean of it from its first segment to a fixed end.

A clean reads the dirty stretch into a map of keys, then writes the log anew from its start to the
end of what the map has seen, a few segments at a time, and puts each result into the place of its
sources (`swap`). What stays of a batch is `compaction_filter`'s business. Only whole, sealed
segments are cleaned, below the last stable offset and below the recovery point: of each key the
newest record is on disk before an older one goes, and no truncation can take it away again.

`measure`, `Clean`, `swap`, `finish` and `abandon` belong to the event loop; `read_keys` and
`rewrite` block and belong to a thread. They touch nothing but sealed segments, which the clean
holds as a reader does, and files that nobody else knows. A clean that breaks off anywhere leaves a
log that is right: what was replaced is, and the rest comes next time. A batch that cannot be read
is copied as it is. A log is uncleanable only where the walk from batch to batch breaks, or where a
damaged batch may be part of a transaction.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidelog.errors import KafkaError, ProtocolError, StorageError
from tidelog.host.clock import Clock
from tidelog.protocol.batches import BatchHeader, check_crc
from tidelog.storage.compaction_filter import (
    BatchFilter,
    CleanedTransactions,
    FilterCounts,
    FilterRules,
    Kept,
    last_of_producers,
    read_records,
)
from tidelog.storage.dirt import CleanAbandonedError, Dirt, UncleanableError
from tidelog.storage.log import Log
from tidelog.storage.offset_map import OffsetMap
from tidelog.storage.scan import LARGEST_RELATIVE_OFFSET
from tidelog.storage.segment import CLEANED_SUFFIX, DiskFullError, Segment
from tidelog.storage.segments import create_segment

logger = logging.getLogger(__name__)

_READ_BYTES = 1 << 20
_WRITE_BYTES = 1 << 20
# Renaming happens on the loop: so many segments are replaced by one at most.
_GROUP_SEGMENTS_MAX = 32
_LARGEST_POSITION = 2**31 - 1
# A thread that works without a pause keeps the interpreter from the event loop for 5 ms at a time.
_WORK_SECONDS = 0.001
_PAUSE_SECONDS = 0.0001


class Breather:
    """Lets others run now and then, and ends the work when it is told to."""

    __slots__ = ("_clock", "_since", "_stop")

    def __init__(self, clock: Clock, stop: threading.Event) -> None:
        self._clock = clock
        self._stop = stop
        self._since = clock.monotonic()

    def __call__(self) -> None:
        if self._clock.monotonic() - self._since >= _WORK_SECONDS:
            self._stop.wait(_PAUSE_SECONDS)
            self._since = self._clock.monotonic()
        if self._stop.is_set():
            raise CleanAbandonedError


@dataclass(slots=True)
class CleanResult:
    """What a clean came to."""

    first_dirty_offset: int
    bytes_read: int = 0
    bytes_written: int = 0
    segments_before: int = 0
    segments_after: int = 0


class Clean:
    """One clean of one log."""

    def __init__(self, log: Log, dirt: Dirt, buffer_bytes: int, stop: threading.Event) -> None:
        assert dirt.end_offset <= log.flushed_offset, (
            f"{log.directory} would be cleaned up to {dirt.end_offset}, it is on disk up to"
            f" {log.flushed_offset}"
        )
        context = log.context
        self._log = log
        self._context = context
        self._directory = log.directory
        self._config = log.config
        self._breathe = Breather(context.clock, stop)
        self._sources = [
            segment for segment in log.segments.sealed if segment.next_offset <= dirt.end_offset
        ]
        self._truncations = [segment.truncations for segment in self._sources]
        self._first_dirty = dirt.first_dirty_offset
        self._aborted = log.segments.aborted_between(0, dirt.end_offset)
        self._map = OffsetMap(buffer_bytes, self._breathe)
        rules = FilterRules(
            self._map,
            last_of_producers(log.producers.states),
            context.running_clock.ages(),
            log.config.delete_retention_ms,
        )
        self._filter = BatchFilter(rules, self._aborted)
        self.result = CleanResult(dirt.first_dirty_offset)
        for segment in self._sources:
            segment.readers += 1

    @property
    def counts(self) -> FilterCounts:
        return self._filter.counts

    # In a thread

    def read_keys(self) -> None:
        """Fill the map from the dirty stretch, as far as its memory goes. Blocks."""
        offset_map, first_dirty = self._map, self._first_dirty
        dirty = [segment for segment in self._sources if segment.next_offset > first_dirty]
        # Transactions that ended before are left out: their markers are not read here.
        start = dirty[0].base_offset if dirty else first_dirty
        transactions = CleanedTransactions(
            [entry for entry in self._aborted if entry.last_offset >= start]
        )
        offset_map.next_offset = first_dirty
        with _naming_damage(self._directory):
            for batch, header, sound in self._batches(dirty):
                if header.is_control:
                    transactions.end(batch, header)
                elif not transactions.is_aborted(header) and header.last_offset >= first_dirty:
                    # What cannot be read names no key; whatever count it claims does not matter.
                    found = read_records(batch, header) if sound else None
                    if found is not None:
                        full = len(offset_map) + header.record_count > offset_map.entries_max
                        if full and offset_map.next_offset > first_dirty:
                            return
                        offset_map.put(found[0], found[1], header.base_offset)
                offset_map.next_offset = max(offset_map.next_offset, header.last_offset + 1)

    def rewrite(self, group: list[Segment]) -> Segment | None:
        """Write anew what stays of a few segments, synced; None where nothing changed. Blocks."""
        context = self._context
        size_bytes = sum(segment.size_bytes for segment in group)
        if context.disk.free_bytes(self._directory) < size_bytes:
            raise DiskFullError(f"no space to clean {size_bytes} bytes in {self._directory}")
        cleaned = create_segment(context, self._directory, group[0].base_offset, CLEANED_SUFFIX)
        try:
            with _naming_damage(self._directory):
                changed = self._write_kept(group, cleaned)
            if changed:
                cleaned.created_ms = group[-1].created_ms
                cleaned.log_file.sync()
                for index in cleaned.write_indexes():
                    index.sync()
                return cleaned
        except BaseException:
            cleaned.discard()
            raise
        cleaned.discard()
        return None

    def _write_kept(self, group: list[Segment], cleaned: Segment) -> bool:
        changed = len(group) > 1
        pending: list[Kept] = []
        pending_bytes = 0
        next_offset = group[-1].next_offset
        for batch, header, sound in self._batches(group):
            ends = header.last_offset + 1 == next_offset
            kept: Kept | None
            if sound:
                kept, aborted = self._filter.apply(batch, header, ends_segment=ends)
            else:
                kept, aborted = self._filter.keep_unread(batch, header), None
            if aborted is not None:
                cleaned.aborted.append(aborted)
            changed = changed or kept is None or kept.data is not batch
            if kept is not None:
                pending.append(kept)
                pending_bytes += len(kept.data)
            if pending_bytes >= _WRITE_BYTES:
                self._write(cleaned, pending)
                pending_bytes = 0
        self._write(cleaned, pending)
        if cleaned.next_offset != next_offset:
            raise ProtocolError(f"the last batch does not end at offset {next_offset - 1}")
        return changed

    def _write(self, cleaned: Segment, pending: list[Kept]) -> None:
        data = b"".join([kept.data for kept in pending])
        if cleaned.size_bytes + len(data) > _LARGEST_POSITION:
            # Horizons make batches longer, and a segment of the largest size has no room for them.
            raise UncleanableError(f"{cleaned.log_file.path} would be larger than a segment may be")
        if data:
            cleaned.write(data)
        for kept in pending:
            cleaned.note(kept.header, len(kept.data), self._config.index_interval_bytes)
        pending.clear()

    def _batches(self, segments: list[Segment]) -> Iterator[tuple[memoryview, BatchHeader, bool]]:
        """Every batch of sealed segments, and whether its checksum is right.

        ProtocolError where it is not and what the header says of transactions is needed: taken for
        something else, a marker would let the cleaner drop records that were committed.
        """
        expected = -1
        for segment in segments:
            for batch, header in _stored_batches(segment):
                self._breathe()
                if header.base_offset < expected:
                    raise ProtocolError(f"offset {header.base_offset} follows {expected - 1}")
                expected = header.last_offset + 1
                sound = check_crc(batch, 0, header.size_bytes)
                if not sound and (
                    self._aborted
                    or header.is_control
                    or header.is_transactional
                    or header.last_offset >= segment.next_offset
                ):
                    raise ProtocolError(f"wrong checksum at offset {header.base_offset}")
                yield batch, header, sound

    # On the loop

    @property
    def is_stale(self) -> bool:
        """True where the log was closed, cut or told not to be compacted since this began."""
        log = self._log
        return (
            log.closed
            or log.offline
            or not log.config.cleanup_compact
            or self._truncations != [segment.truncations for segment in self._sources]
        )

    def groups(self) -> list[list[Segment]]:
        """The segments to write anew, in order, those together that fit one segment."""
        end = self._map.next_offset
        groups: list[list[Segment]] = []
        for segment in self._sources:
            if segment.base_offset >= end:
                break
            if groups and self._fits(groups[-1], segment):
                groups[-1].append(segment)
            else:
                groups.append([segment])
        return groups

    def _fits(self, group: list[Segment], segment: Segment) -> bool:
        config = self._config
        members = [*group, segment]
        return (
            len(members) <= _GROUP_SEGMENTS_MAX
            and sum(each.size_bytes for each in members) <= config.segment_bytes
            and sum(each.offsets.size_bytes for each in members) <= config.segment_index_bytes
            and sum(each.times.size_bytes for each in members) <= config.segment_index_bytes
            and segment.next_offset - 1 - group[0].base_offset <= LARGEST_RELATIVE_OFFSET
        )

    def swap(self, group: list[Segment], cleaned: Segment | None) -> None:
        """Put the result of `rewrite` into place; CleanAbandonedError where the log changed."""
        result = self.result
        size_bytes = sum(segment.size_bytes for segment in group)
        result.bytes_read += size_bytes
        result.segments_before += len(group)
        result.segments_after += 1
        if cleaned is None:
            result.bytes_written += size_bytes
            return
        try:
            swapped = not self.is_stale and self._log.replace_segments(group, cleaned)
        except BaseException:
            if not self._log.offline:
                cleaned.discard()
            raise
        if not swapped:
            cleaned.discard()
            raise CleanAbandonedError
        result.bytes_written += cleaned.size_bytes

    def finish(self) -> None:
        """All groups were swapped: the log is clean up to where the map ended."""
        assert self._first_dirty <= self._map.next_offset <= self._log.log_end_offset
        self.result.first_dirty_offset = self._map.next_offset
        self._log.first_dirty_offset = self._map.next_offset

    def release(self) -> None:
        """Let go of the segments, at the end of a clean whatever came of it."""
        for segment in self._sources:
            segment.reader_left()
        self._sources = []


@contextmanager
def _naming_damage(directory: str) -> Iterator[None]:
    """Damage that the cleaner cannot go round makes the log uncleanable, and nothing worse."""
    try:
        yield
    except UncleanableError:
        raise
    except (ProtocolError, KafkaError, StorageError) as error:
        raise UncleanableError(f"{directory} is damaged: {error}") from error


def _stored_batches(segment: Segment) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Each batch from the start of a segment to its end, read in large pieces."""
    chunk, start, end = memoryview(b""), 0, 0
    with segment.log_file as fd:
        for position, header in segment.batches_from(0):
            end = position + header.size_bytes
            if end > start + len(chunk):
                length = min(max(_READ_BYTES, end - position), segment.size_bytes - position)
                chunk, start = memoryview(segment.disk.pread(fd, length, position)), position
                if len(chunk) < length:
                    raise ProtocolError(f"cut off at position {position + len(chunk)}")
            yield chunk[position - start : end - start], header
    if end != segment.size_bytes:
        raise ProtocolError(f"no valid batch at position {end}")
