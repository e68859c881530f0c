"""The segments of one log, in their order: look-ups by offset and place, and who comes and goes.

Reads give whole batches. An offset inside a batch gives the whole batch, since clients skip what
they did not ask for; an offset in a gap left by compaction gives the batch behind the gap. What a
watermark means on disk is a `LogPosition`, so bytes between two of them are summed, not read.

A log is never without a segment, and the last one is the active one. Files of segments that go are
renamed at once and unlinked off the loop, after a delay and when no reader holds them. A disk that
fails under a look-up is a KafkaError, under a change an OSError, and the list is as it was.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import LogPosition
from tidelog.storage.damage import end_before_damage, refuse
from tidelog.storage.flush import FlushState
from tidelog.storage.log_context import LogContext
from tidelog.storage.segment import Segment
from tidelog.storage.slices import FileSlice, Slices
from tidelog.storage.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)


class Segments:
    """The ordered list of a log's segments."""

    __slots__ = ("_context", "_flush", "_segments", "active", "bases", "directory")

    def __init__(
        self, context: LogContext, directory: str, segments: Sequence[Segment], flush: FlushState
    ) -> None:
        self._context = context
        self.directory = directory
        self._flush = flush
        self._segments = list(segments)
        assert self._segments, f"{directory} has no segment"
        # What each segment begins with, for bisection, and the one that is written to.
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        rising = all(one < next_one for one, next_one in pairwise(self.bases))
        assert rising, f"the segments of {directory} are not in order: {self.bases}"

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, place: int) -> Segment:
        return self._segments[place]

    @property
    def sealed(self) -> list[Segment]:
        """All but the active one."""
        return self._segments[:-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    # Looking up

    @property
    def end_position(self) -> LogPosition:
        """The log's end, with its place on disk."""
        active = self.active
        return LogPosition(active.next_offset, active.base_offset, active.size_bytes)

    def holder(self, offset: int) -> Segment:
        """The segment that an offset lies in; the first one where it lies below them all."""
        return self._segments[max(bisect_right(self.bases, offset) - 1, 0)]

    def position_after(self, offset: int) -> LogPosition:
        """The place of a watermark: what lies before it is below `offset`."""
        if offset >= self.active.next_offset:
            return self.end_position
        segment = self.holder(offset)
        try:
            return LogPosition(offset, segment.base_offset, segment.find(offset))
        except OSError as error:
            raise self.unreadable(error) from error

    def bytes_between(self, start: LogPosition, end: LogPosition) -> int:
        """How many bytes lie between two places; reads nothing."""
        if start.segment_base_offset == end.segment_base_offset:
            return max(end.position - start.position, 0)
        if start.offset >= end.offset:
            return 0
        first = bisect_left(self.bases, start.segment_base_offset)
        last = bisect_left(self.bases, end.segment_base_offset)
        between = sum(segment.size_bytes for segment in self._segments[first:last])
        # Where retention took the segment that `start` was in, all that is left lies behind it.
        gone = self.bases[first : first + 1] != [start.segment_base_offset]
        # And where compaction made that segment smaller, the start is its new end at most.
        before = 0 if gone else min(start.position, self._segments[first].size_bytes)
        return max(between - before + end.position, 0)

    def slices(self, offset: int, max_bytes: int, limit: LogPosition, at_least_one: bool) -> Slices:
        """Whole batches from the one that holds `offset` up to `limit`; see `Log.read`."""
        slices: list[FileSlice] = []
        place = bisect_right(self.bases, offset) - 1
        segment = self._segments[place]
        total = 0
        try:
            position = segment.find(offset)
            while True:
                last = segment.base_offset >= limit.segment_base_offset
                end = limit.position if last else segment.size_bytes
                if segment.damaged:
                    whole = end_before_damage(segment, position, end)
                    if whole == position < end and not total:
                        refuse(segment, position)
                    last, end = last or whole < end, whole
                room = max_bytes - total
                if end - position > room:
                    end = _cut(segment, position, position + room, at_least_one and not total)
                    last = True
                elif last and end == limit.position:
                    segment.remember(limit.offset, end)
                if end > position:
                    slices.append(FileSlice(segment, position, end - position))
                    total += end - position
                if last or total >= max_bytes:
                    return Slices(slices, total)
                place += 1
                segment, position = self._segments[place], 0
        except OSError as error:
            raise self.unreadable(error) from error

    def reach(self, start: LogPosition, max_bytes: int, limit: LogPosition) -> tuple[int, int]:
        """Where the last whole batch ends within `max_bytes`, at least the first one; its bytes."""
        whole = self.bytes_between(start, limit)
        if whole <= max_bytes:
            return limit.offset, whole
        place = bisect_right(self.bases, start.segment_base_offset) - 1
        position, total = start.position, 0
        while True:
            segment = self._segments[place]
            room = max_bytes - total
            if segment.size_bytes - position > room:
                break
            total += segment.size_bytes - position
            place, position = place + 1, 0
        try:
            boundary, next_offset = segment.boundary_within(position, position + room)
        except OSError as error:
            raise self.unreadable(error) from error
        if boundary - position > room and total:
            return segment.base_offset, total
        return next_offset, total + boundary - position

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions that touch [start, end), in the order of their markers."""
        found = []
        for segment in self._segments:
            if segment.next_offset <= start:
                continue
            for entry in segment.aborted.entries:
                if entry.last_offset >= start and entry.first_offset < end:
                    found.append(entry)
                if entry.last_stable_offset >= end:
                    return found
        return found

    def aborted_transactions(self, start: int, end: int) -> list[tuple[int, int]]:
        """Producer id and first offset of the aborted transactions that touch [start, end)."""
        try:
            entries = self.aborted_between(start, end)
        except OSError as error:
            raise self.unreadable(error) from error
        return [(entry.producer_id, entry.first_offset) for entry in entries]

    def unreadable(self, error: OSError) -> KafkaError:
        """What a reader is told of a disk that fails; the log has a line of it."""
        logger.error("cannot read directory=%s error=%s", self.directory, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    # Coming and going

    def begin(self, base_offset: int) -> None:
        """Go on in a new, empty segment."""
        active = self.active
        alone_and_empty = len(self) == 1 and not active.size_bytes
        assert base_offset >= active.next_offset or alone_and_empty, (
            f"a segment at {base_offset} would begin before {active.log_file.path} ends, which is"
            f" at {active.next_offset}"
        )
        segment = create_segment(self._context, self.directory, base_offset)
        self._flush.directory_changed()
        self._segments.append(segment)
        self.bases.append(base_offset)
        self.active = segment

    def place_of_cut(self, offset: int) -> tuple[Segment, int, int]:
        """Where a cut at `offset` goes: segment, position, and the offset that the log ends at.

        The batch that holds the offset goes, too.
        """
        segment = self.holder(offset)
        place = segment.find(offset)
        for _, header in segment.batches_from(place):
            return segment, place, min(offset, header.base_offset)
        return segment, place, offset

    def keep_up_to(self, last: Segment) -> list[Segment]:
        """Go on in an earlier segment: those behind it, which are no longer ours."""
        place = self._segments.index(last) + 1
        return self._take_off(place, len(self))

    def start_over(self, base_offset: int) -> list[Segment]:
        """Have one empty segment alone; the others, which are no longer ours."""
        place = bisect_left(self.bases, base_offset)
        if self.bases[place : place + 1] == [base_offset]:
            self._segments[place].forget_from(0, base_offset)
        else:
            self._segments.insert(place, Segment(self._context, self.directory, base_offset))
            self.bases.insert(place, base_offset)
        behind = self._take_off(place + 1, len(self))
        return self._take_off(0, place) + behind

    def _take_off(self, start: int, end: int) -> list[Segment]:
        dropped = self._segments[start:end]
        for segment in dropped:
            self._flush.forget(segment)
        del self._segments[start:end]
        del self.bases[start:end]
        self.active = self._segments[-1]
        self._flush.directory_changed()
        return dropped

    def retire(self, segment: Segment, delay_ms: int) -> None:
        """Take a segment off the list; its files are renamed now and unlinked later."""
        assert len(self) > 1, f"{segment.log_file.path} is the only segment"
        at_an_end = segment is self._segments[0] or segment is self.active
        assert at_an_end or not segment.size_bytes, f"{segment.log_file.path} would leave a hole"
        self._put([segment], [], delay_ms)

    def has(self, run: list[Segment]) -> bool:
        """True where these segments are here, one behind the other."""
        place = bisect_left(self.bases, run[0].base_offset)
        return self._segments[place : place + len(run)] == run

    def replace(self, old: list[Segment], new: Segment, delay_ms: int) -> None:
        """Have one segment in the place of those that it was made from, which go."""
        self._put(old, [new], delay_ms)

    def _put(self, old: list[Segment], new: list[Segment], delay_ms: int) -> None:
        for segment in old:
            segment.retire(self._context, delay_ms)
            self._flush.forget(segment)
        self._flush.directory_changed()
        place = self._segments.index(old[0])
        self._segments[place : place + len(old)] = new
        self.bases[place : place + len(old)] = [segment.base_offset for segment in new]
        self.active = self._segments[-1]
        assert len(self.bases) == len(self._segments), "a segment without its base"

    def close(self) -> None:
        for segment in self._segments:
            segment.close()


def create_segment(
    context: LogContext, directory: str, base_offset: int, suffix: str = ""
) -> Segment:
    """A new, empty segment with its log file; what lies under its names from before is emptied."""
    segment = Segment(context, directory, base_offset, suffix)
    try:
        with segment.log_file as fd:
            context.disk.truncate(fd, 0)
        segment.aborted.reset()
    except OSError:
        # Left there it would look like a segment that lost its batches.
        segment.discard()
        raise
    return segment


def _cut(segment: Segment, position: int, end: int, whatever_size: bool) -> int:
    """Where to stop so that only whole batches are given, and not more than fit."""
    boundary, next_offset = segment.boundary_within(position, end)
    if boundary > end and not whatever_size:
        return position
    segment.remember(next_offset, boundary)
    return boundary
