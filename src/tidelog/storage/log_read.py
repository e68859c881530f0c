"""The reading half of a log: from offsets and times to pieces of segment files.

Reads give whole batches. An offset inside a batch gives the whole batch, since clients skip what
they did not ask for; an offset in a gap left by compaction gives the batch behind the gap. What a
watermark means on disk is a `LogPosition`, so bytes between two of them are summed, not read.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import LogPosition, TopicPartition
from tidelog.storage.epochs import LeaderEpochs
from tidelog.storage.segment import Segment
from tidelog.storage.slices import FileSlice, Slices
from tidelog.storage.timestamp_search import FoundRecord, TimestampSearch
from tidelog.storage.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)


class LogReader:
    """What can be asked of a log without changing it."""

    __slots__ = ("bases", "epochs", "log_start_offset", "segments", "topic_partition")

    segments: list[Segment]
    bases: list[int]
    epochs: LeaderEpochs
    log_start_offset: int
    topic_partition: TopicPartition

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get."""
        return self.segments[-1].next_offset

    @property
    def end_position(self) -> LogPosition:
        """The log's end, with its place on disk."""
        active = self.segments[-1]
        return LogPosition(active.next_offset, active.base_offset, active.size_bytes)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def read(
        self, offset: int, max_bytes: int, limit: LogPosition, at_least_one: bool = True
    ) -> Slices:
        """Whole batches from `offset` up to `limit`, at most `max_bytes` of them.

        With `at_least_one` the first batch is given whatever its size. Release what is returned.
        """
        if offset < self.log_start_offset or offset > self.segments[-1].next_offset:
            raise self._out_of_range(offset)
        if offset >= limit.offset:
            return Slices([], 0)
        try:
            return self._slices_from(offset, max_bytes, limit, at_least_one)
        except OSError as error:
            raise self.unreadable(error) from error

    def _slices_from(
        self, offset: int, max_bytes: int, limit: LogPosition, at_least_one: bool
    ) -> Slices:
        slices: list[FileSlice] = []
        place = bisect_right(self.bases, offset) - 1
        segment = self.segments[place]
        position = segment.find(offset)
        total = 0
        while True:
            last = segment.base_offset >= limit.segment_base_offset
            end = limit.position if last else segment.size_bytes
            room = max_bytes - total
            if end - position > room:
                end = self._cut(segment, position, position + room, at_least_one and not total)
                last = True
            elif last:
                segment.remember(limit.offset, end)
            if end > position:
                slices.append(FileSlice(segment, position, end - position))
                total += end - position
            if last or total >= max_bytes:
                return Slices(slices, total)
            place += 1
            segment, position = self.segments[place], 0

    def _cut(self, segment: Segment, position: int, end: int, whatever_size: bool) -> int:
        """Where to stop so that only whole batches are given, and not more than fit."""
        boundary, next_offset = segment.boundary_within(position, end)
        if boundary > end and not whatever_size:
            return position
        segment.remember(next_offset, boundary)
        return boundary

    def locate(self, offset: int) -> LogPosition:
        """Where the batch begins that holds `offset` (or the first one behind it)."""
        if offset < self.log_start_offset or offset > self.segments[-1].next_offset:
            raise self._out_of_range(offset)
        return self.position_after(offset)

    def position_after(self, offset: int) -> LogPosition:
        """The place of a watermark: what lies before it is below `offset`."""
        active = self.segments[-1]
        if offset >= active.next_offset:
            return self.end_position
        place = max(bisect_right(self.bases, offset) - 1, 0)
        segment = self.segments[place]
        try:
            position = segment.find(offset)
        except OSError as error:
            raise self.unreadable(error) from error
        return LogPosition(offset, segment.base_offset, position)

    def bytes_between(self, start: LogPosition, end: LogPosition) -> int:
        """How many bytes lie between two places; reads nothing."""
        if start.segment_base_offset == end.segment_base_offset:
            return max(end.position - start.position, 0)
        if start.offset >= end.offset:
            return 0
        first = bisect_left(self.bases, start.segment_base_offset)
        last = bisect_left(self.bases, end.segment_base_offset)
        between = sum(segment.size_bytes for segment in self.segments[first:last])
        # Where retention took the segment that `start` was in, all that is left lies behind it.
        gone = self.bases[first : first + 1] != [start.segment_base_offset]
        # And where compaction made that segment smaller, the start is its new end at most.
        before = 0 if gone else min(start.position, self.segments[first].size_bytes)
        return max(between - before + end.position, 0)

    def reach(self, offset: int, max_bytes: int, limit: LogPosition) -> tuple[int, int]:
        """Where the last whole batch ends within `max_bytes`, at least the first one; its bytes."""
        start = self.locate(offset)
        whole = self.bytes_between(start, limit)
        if whole <= max_bytes:
            return limit.offset, whole
        place = bisect_right(self.bases, start.segment_base_offset) - 1
        position, total = start.position, 0
        try:
            while True:
                segment = self.segments[place]
                room = max_bytes - total
                if segment.size_bytes - position > room:
                    break
                total += segment.size_bytes - position
                place, position = place + 1, 0
            boundary, next_offset = segment.boundary_within(position, position + room)
        except OSError as error:
            raise self.unreadable(error) from error
        if boundary - position > room and total:
            return segment.base_offset, total
        return next_offset, total + boundary - position

    def timestamp_searches(self, timestamp: int) -> Iterator[TimestampSearch]:
        """Where to look for the first record that is at least so new, the likeliest place first.

        Each search holds a segment until it is released; make the next only where one found
        nothing.
        """
        for segment in list(self.segments):
            if segment.next_offset <= self.log_start_offset:
                continue
            if segment.largest_timestamp < timestamp:
                continue
            try:
                search = TimestampSearch(segment, timestamp, self.log_start_offset)
            except OSError as error:
                raise self.unreadable(error) from error
            yield search

    def offset_for_timestamp(self, timestamp: int) -> FoundRecord | None:
        """Offset, timestamp and leader epoch of the first record that is at least so new. Blocks.

        A log that is being served is searched off the loop, with `timestamp_searches`.
        """
        for search in self.timestamp_searches(timestamp):
            try:
                found = search.run()
            except OSError as error:
                raise self.unreadable(error) from error
            finally:
                search.release()
            if found is not None:
                return found
        return None

    @property
    def newest_timestamp(self) -> int:
        """The greatest timestamp of the log; -1 where there is none."""
        times = [
            segment.largest_timestamp
            for segment in self.segments
            if segment.next_offset > self.log_start_offset
        ]
        return max(times, default=-1)

    def offset_of_max_timestamp(self) -> FoundRecord | None:
        """Offset, timestamp and leader epoch of the first of the newest records. Blocks."""
        newest = self.newest_timestamp
        return None if newest < 0 else self.offset_for_timestamp(newest)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and its end offset; (-1, -1) where unknown."""
        return self.epochs.end_offset_for(epoch, self.segments[-1].next_offset)

    def aborted_transactions(self, start: int, end: int) -> list[tuple[int, int]]:
        """Producer id and first offset of the aborted transactions that touch [start, end)."""
        entries = self.aborted_entries(start, end)
        return [(entry.producer_id, entry.first_offset) for entry in entries]

    def aborted_entries(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions that touch [start, end), in the order of their markers."""
        found = []
        for segment in self.segments:
            if segment.next_offset <= start:
                continue
            for entry in segment.aborted.entries:
                if entry.last_offset >= start and entry.first_offset < end:
                    found.append(entry)
                if entry.last_stable_offset >= end:
                    return found
        return found

    def unreadable(self, error: OSError) -> KafkaError:
        """What a reader is told of a disk that fails; the log has a line of it."""
        logger.error("cannot read partition=%s error=%s", self.topic_partition, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {self.topic_partition} is not within"
            f" {self.log_start_offset} and {self.log_end_offset}",
        )
