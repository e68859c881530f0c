"""When a log goes on in a new segment: the active one is full, or old enough.

A segment's age is by its records' clock where that is believed, and by its file's otherwise.
"""

from __future__ import annotations

from tidelog.config.topic_config import TopicConfig
from tidelog.storage.log_context import LogContext
from tidelog.storage.retention import FUTURE_MS
from tidelog.storage.segment import Segment


class Rolling:
    """When the active segment of one log is to be sealed."""

    __slots__ = ("_config", "_context", "_longest_ms")

    def __init__(self, context: LogContext, config: TopicConfig) -> None:
        self._context = context
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
