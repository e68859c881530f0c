"""When a log goes on in a new segment, and how: the active one is full, or old enough.

A segment's age is by its records' clock where that is believed, and by its file's otherwise.
"""

from __future__ import annotations

from tidelog.config.topic_config import TopicConfig
from tidelog.storage.flush import FlushState
from tidelog.storage.log_context import LogContext
from tidelog.storage.producers import ProducerStates
from tidelog.storage.retention import FUTURE_MS
from tidelog.storage.scan import LARGEST_RELATIVE_OFFSET
from tidelog.storage.segment import Segment
from tidelog.storage.segments import Segments
from tidelog.storage.snapshot_files import SnapshotFiles


class Rolling:
    """Seals the active segment of one log where that is due."""

    __slots__ = ("_config", "_context", "_flush", "_longest_ms", "_segments", "_snapshots")

    def __init__(
        self,
        context: LogContext,
        config: TopicConfig,
        segments: Segments,
        snapshots: SnapshotFiles,
        flush: FlushState,
    ) -> None:
        self._context = context
        self._segments = segments
        self._snapshots = snapshots
        self._flush = flush
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        self._config = config
        self.begun()

    def begun(self) -> None:
        """A segment has begun: draw how long it is filled at most."""
        config = self._config
        longest_ms = config.segment_ms
        if config.cleanup_compact:
            longest_ms = min(longest_ms, config.max_compaction_lag_ms)
        jitter = config.segment_jitter_ms
        self._longest_ms = longest_ms - (self._context.random.below(jitter) if jitter > 0 else 0)

    def fits(self, last_offset: int, size_bytes: int, timestamp: int, now_ms: int) -> bool:
        """True where a batch certainly belongs into the active segment, as nearly all do."""
        active, limit = self._segments.active, self._config.segment_index_bytes
        return (
            active.size_bytes + size_bytes <= self._config.segment_bytes
            and timestamp - active.first_timestamp <= self._longest_ms
            and 0 <= active.first_timestamp <= now_ms + FUTURE_MS
            and last_offset - active.base_offset <= LARGEST_RELATIVE_OFFSET
            and active.offsets.size_bytes + 8 <= limit
            and active.times.size_bytes + 12 <= limit
        )

    def too_far(self, last_offset: int) -> bool:
        """True where an offset is too high for the active segment's indexes."""
        return last_offset - self._segments.active.base_offset > LARGEST_RELATIVE_OFFSET

    def is_due(self, size_bytes: int, timestamp: int, now_ms: int) -> bool:
        """True where so many bytes more belong into a new segment."""
        active = self._segments.active
        return bool(active.size_bytes) and (
            self.is_full(active, size_bytes) or self.is_old(active, timestamp, now_ms)
        )

    def is_full(self, segment: Segment, size_bytes: int) -> bool:
        """True where so many bytes more, or an index entry more, do not fit."""
        limit = self._config.segment_index_bytes
        return (
            segment.size_bytes + size_bytes > self._config.segment_bytes
            or segment.offsets.size_bytes + 8 > limit
            or segment.times.size_bytes + 12 > limit
        )

    def is_old(self, segment: Segment, timestamp: int, now_ms: int) -> bool:
        """True where a segment has been filling for longer than `segment.ms`."""
        if 0 <= segment.first_timestamp <= now_ms + FUTURE_MS:
            age_ms = timestamp - segment.first_timestamp
        elif segment.created_ms <= now_ms:
            age_ms = now_ms - segment.created_ms
        else:
            age_ms = self._context.running_clock.ages().age_ms(segment.created_ms)
        return age_ms > self._longest_ms

    def roll(self, base_offset: int, producers: ProducerStates) -> None:
        """Seal the active segment, with its indexes and a snapshot; go on in a new one.

        Raises OSError, and the active segment goes on then.
        """
        active = self._segments.active
        indexes = active.write_indexes()
        self.write_snapshot(producers)
        self._segments.begin(base_offset)
        self.begun()
        self._flush.sealed(active, indexes)
        if not active.size_bytes:
            self._segments.retire(active, self._config.file_delete_delay_ms)

    def write_snapshot(self, producers: ProducerStates) -> None:
        """Put the producers as they are at the log's end into a file."""
        producers.end_offset = self._segments.active.next_offset
        self._snapshots.write(producers.end_offset, producers)
