"""The first record at or after a time: in which segments of a log to look, and where in them.

A search is made on the event loop and holds its segment as a reader does, until `release`. `run`
reads from the disk and inflates, so it belongs to a thread where a log is being served. A batch
that cannot be read is answered with its first offset and the newest time in its header: a consumer
that seeks there sees what is wrong, and nothing is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog._kernels import records as kernel
from tidelog.errors import KafkaError, ProtocolError
from tidelog.model import TimestampType
from tidelog.protocol.batches import BatchHeader, index_records, inflate
from tidelog.storage.log import Log
from tidelog.storage.segment import Segment

FoundRecord = tuple[int, int, int]


class TimestampSearch:
    """Looks for the first record of a segment that is at least so new."""

    __slots__ = ("_log_start_offset", "_position", "_segment", "_timestamp")

    def __init__(self, segment: Segment, timestamp: int, log_start_offset: int) -> None:
        self._position = segment.first_position_at_or_after(timestamp)
        self._segment = segment
        self._timestamp = timestamp
        self._log_start_offset = log_start_offset
        segment.readers += 1

    def release(self) -> None:
        """Let go of the segment; once, on the loop."""
        self._segment.reader_left()

    def run(self) -> FoundRecord | None:
        """Offset, timestamp and leader epoch of the record; OSError where the disk fails."""
        segment = self._segment
        for position, header in segment.batches_from(self._position):
            if header.max_timestamp < self._timestamp:
                continue
            if header.last_offset < self._log_start_offset:
                continue
            found = self._first_in(segment.read_batch(position, header), header)
            if found is not None:
                return found
        return None

    def _first_in(self, batch: bytes, header: BatchHeader) -> FoundRecord | None:
        base_offset, epoch = header.base_offset, header.leader_epoch
        try:
            payload = inflate(batch, 0, header)
            rows, times = index_records(payload, header.record_count, header.first_timestamp)
        except (KafkaError, ProtocolError):
            return max(base_offset, self._log_start_offset), header.max_timestamp, epoch
        append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        for index, created in enumerate(times):
            timestamp = header.max_timestamp if append_time else created
            if timestamp < self._timestamp:
                continue
            offset = base_offset + rows[index * kernel.ROW_FIELDS + kernel.OFFSET_DELTA]
            if offset >= self._log_start_offset:
                return offset, timestamp, epoch
        return None


def newest_timestamp(log: Log) -> int:
    """The greatest timestamp of a log; -1 where there is none."""
    return max((each.largest_timestamp for each in _searched(log, -1)), default=-1)


def timestamp_searches(log: Log, timestamp: int) -> Iterator[TimestampSearch]:
    """Where to look for the first record that is at least so new, the likeliest place first.

    Each search holds a segment until it is released; make the next only where one found nothing.
    """
    for segment in _searched(log, timestamp):
        try:
            search = TimestampSearch(segment, timestamp, log.log_start_offset)
        except OSError as error:
            raise log.segments.unreadable(error) from error
        yield search


def _searched(log: Log, timestamp: int) -> list[Segment]:
    """The segments with records above the log's start, one of them at least so new."""
    return [
        segment
        for segment in log.segments
        if segment.next_offset > log.log_start_offset and segment.largest_timestamp >= timestamp
    ]
