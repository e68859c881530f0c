"""Retention: the oldest segments of a log go by age, by size, and below the log's start.

Only whole segments go, oldest first, and none that reaches above the high watermark. Age is that of
a segment's newest record. A timestamp from the future, more than an hour ahead of the clock, is not
believed: the file's own age counts then, so one bad producer cannot keep a segment for ever. A file
from the future was written while the clock was wrong, and ages by the time that the broker ran.
After a start or a jump of the clock, while the running clock is careful, at most one segment a
minute goes by age: time for an operator to set the clock right. Size is never slowed.

Segments go from the start of the log, so that a crash at any step leaves it without a hole.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.config.topic_config import TopicConfig
from tidelog.storage.faults import OUT_OF_DESCRIPTORS
from tidelog.storage.running_clock import Ages
from tidelog.storage.segment import Segment
from tidelog.storage.segments import Segments
from tidelog.storage.snapshot_files import SnapshotFiles

logger = logging.getLogger(__name__)

# A timestamp that is further ahead of the clock is wrong, or the clock is.
FUTURE_MS = 3_600_000
_PACE_MS = 60_000


@dataclass(slots=True)
class Moment:
    """The wall time of a look, ages by the running clock, and above which offset nothing may go."""

    wall_ms: int
    ages: Ages
    high_watermark: int


class Retention:
    """Chooses and removes the segments of one log that may go."""

    __slots__ = ("_last_ms", "_segments", "_snapshots")

    def __init__(self, segments: Segments, snapshots: SnapshotFiles) -> None:
        self._segments = segments
        self._snapshots = snapshots
        # When a segment last went by age, while the running clock is careful.
        self._last_ms: int | None = None

    def due(
        self, config: TopicConfig, moment: Moment, log_start_offset: int
    ) -> Iterator[tuple[int, str]]:
        """How many of the oldest segments go now, and why; `remove` them before you go on."""
        segments = self._segments
        if expired := count_expired(segments, config, moment, self._allowed(moment.ages)):
            self._last_ms = moment.ages.running_ms
            yield expired, "age"
        if oversize := count_oversize(segments, config, moment.high_watermark):
            yield oversize, "size"
        if below := count_below(segments, log_start_offset):
            yield below, "log start offset"

    def remove(self, count: int, reason: str, delay_ms: int) -> None:
        """Take the oldest segments off the log, whose start is behind them."""
        assert 0 < count < len(self._segments), f"{count} of {len(self._segments)} segments"
        logger.info(
            "deleting segments directory=%s count=%d reason=%s log_start_offset=%d",
            self._segments.directory, count, reason, self._segments.bases[count],
        )  # fmt: skip
        for _ in range(count):
            self._segments.retire(self._segments[0], delay_ms)
        try:
            self._snapshots.drop_later(self._snapshots.below(self._segments.bases), delay_ms)
        except OSError as error:
            # Without a descriptor they cannot be listed; they go with the next segment.
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise

    def _allowed(self, ages: Ages) -> int | None:
        """How many segments may go by age now; None is any number."""
        if not ages.is_careful:
            return None
        # A restart must not win a segment: the first minute begins with the process.
        last_ms = ages.started_ms if self._last_ms is None else self._last_ms
        return 1 if ages.running_ms - last_ms >= _PACE_MS else 0


def age_ms(segment: Segment, moment: Moment) -> int:
    """How long ago the newest record of a segment was written, as far as its time is believed."""
    newest_ms, now_ms = segment.largest_timestamp, moment.wall_ms
    if 0 <= newest_ms <= now_ms + FUTURE_MS:
        return now_ms - newest_ms
    modified_ms = segment.disk.modified_ms(segment.log_file.path)
    return now_ms - modified_ms if modified_ms <= now_ms else moment.ages.age_ms(modified_ms)


def _is_empty_end(segment: Segment, segments: Segments) -> bool:
    """True for an active segment without a batch: there is nothing in it to delete."""
    return not segment.size_bytes and segment is segments.active


def count_expired(
    segments: Segments, config: TopicConfig, moment: Moment, allowed: int | None
) -> int:
    """How many of the oldest segments are past `retention.ms`."""
    if not config.cleanup_delete or config.retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if (allowed is not None and count >= allowed) or _is_empty_end(segment, segments):
            break
        if segment.next_offset > moment.high_watermark:
            break
        if age_ms(segment, moment) <= config.retention_ms:
            break
        count += 1
    return count


def count_oversize(segments: Segments, config: TopicConfig, high_watermark: int) -> int:
    """How many of the oldest segments can go and still leave `retention.bytes`."""
    if not config.cleanup_delete or config.retention_bytes < 0:
        return 0
    excess = segments.size_bytes - config.retention_bytes
    count = 0
    for segment in segments:
        if segment.size_bytes > excess or _is_empty_end(segment, segments):
            break
        if segment.next_offset > high_watermark:
            break
        excess -= segment.size_bytes
        count += 1
    return count


def count_below(segments: Segments, log_start_offset: int) -> int:
    """How many of the oldest segments lie wholly below the log's start; never the active one."""
    return max(bisect_right(segments.bases, log_start_offset) - 1, 0)
