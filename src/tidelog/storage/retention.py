"""Which segments of a log may go: by age, by size, and below the log's start.

Only whole segments go, oldest first, and none that reaches above the high watermark. Age is that of
a segment's newest record. A timestamp from the future, more than an hour ahead of the clock, is not
believed: the file's own age counts then, so one bad producer cannot keep a segment for ever. After
the wall clock has jumped ahead by more than five minutes against the monotonic one, at most one
segment a minute goes by age, for an hour: time for an operator to set the clock right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.storage.segment import Segment

_FUTURE_MS = 3_600_000
_JUMP_MS = 300_000
_PACE_S = 60.0
_CAUTION_S = 3600.0


@dataclass(slots=True)
class RetentionRules:
    """What a topic keeps; -1 is without a limit."""

    retention_ms: int
    retention_bytes: int
    delete: bool


@dataclass(slots=True)
class Moment:
    """Both clocks at a look, and the offset above which nothing may go."""

    wall_ms: int
    monotonic: float
    high_watermark: int


class RetentionPace:
    """Notices jumps of the wall clock and slows deletion by age down after one."""

    __slots__ = ("_cautious_until", "_last", "_last_deletion")

    def __init__(self) -> None:
        self._last: Moment | None = None
        self._cautious_until = float("-inf")
        self._last_deletion = float("-inf")

    def allowed(self, moment: Moment) -> int | None:
        """How many segments may go by age now; None is any number."""
        last, self._last = self._last, moment
        if last is not None:
            passed_ms = (moment.monotonic - last.monotonic) * 1000
            if moment.wall_ms - last.wall_ms - passed_ms > _JUMP_MS:
                self._cautious_until = moment.monotonic + _CAUTION_S
        if moment.monotonic >= self._cautious_until:
            return None
        return 1 if moment.monotonic - self._last_deletion >= _PACE_S else 0

    def deleted(self, moment: Moment) -> None:
        self._last_deletion = moment.monotonic


def newest_record_ms(segment: Segment, now_ms: int) -> int:
    """The age that retention goes by, as the time of the segment's newest record."""
    newest = segment.largest_timestamp
    if 0 <= newest <= now_ms + _FUTURE_MS:
        return newest
    return min(segment.disk.modified_ms(segment.log_file.path), now_ms)


def _is_empty_end(segment: Segment, segments: Sequence[Segment]) -> bool:
    """True for an active segment without a batch: there is nothing in it to delete."""
    return not segment.size_bytes and segment is segments[-1]


def count_expired(
    segments: Sequence[Segment], rules: RetentionRules, moment: Moment, allowed: int | None
) -> int:
    """How many of the oldest segments are past `retention.ms`."""
    if not rules.delete or rules.retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if (allowed is not None and count >= allowed) or _is_empty_end(segment, segments):
            break
        if segment.next_offset > moment.high_watermark:
            break
        age_ms = moment.wall_ms - newest_record_ms(segment, moment.wall_ms)
        if age_ms <= rules.retention_ms:
            break
        count += 1
    return count


def count_oversize(segments: Sequence[Segment], rules: RetentionRules, high_watermark: int) -> int:
    """How many of the oldest segments can go and still leave `retention.bytes`."""
    if not rules.delete or rules.retention_bytes < 0:
        return 0
    excess = sum(segment.size_bytes for segment in segments) - rules.retention_bytes
    count = 0
    for segment in segments:
        if segment.size_bytes > excess or _is_empty_end(segment, segments):
            break
        if segment.next_offset > high_watermark:
            break
        excess -= segment.size_bytes
        count += 1
    return count


def count_below(segments: Sequence[Segment], log_start_offset: int) -> int:
    """How many of the oldest segments lie wholly below the log's start; never the active one."""
    count = 0
    for segment in segments[1:]:
        if segment.base_offset > log_start_offset:
            break
        count += 1
    return count
