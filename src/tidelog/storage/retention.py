"""Which segments of a log may go: by age, by size, and below the log's start.

Only whole segments go, oldest first, and none that reaches above the high watermark. Age is that of
a segment's newest record. A timestamp from the future, more than an hour ahead of the clock, is not
believed: the file's own age counts then, so one bad producer cannot keep a segment for ever. A file
from the future was written while the clock was wrong, and ages by the time that the broker ran.
After a start or a jump of the clock, while the running clock is careful, at most one segment a
minute goes by age: time for an operator to set the clock right. Size is never slowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.storage.running_clock import Ages
from tidelog.storage.segment import Segment

# A timestamp that is further ahead of the clock is wrong, or the clock is.
FUTURE_MS = 3_600_000
_PACE_MS = 60_000


@dataclass(slots=True)
class RetentionRules:
    """What a topic keeps; -1 is without a limit."""

    retention_ms: int
    retention_bytes: int
    delete: bool


@dataclass(slots=True)
class Moment:
    """The wall time of a look, ages by the running clock, and above which offset nothing may go."""

    wall_ms: int
    ages: Ages
    high_watermark: int


class RetentionPace:
    """How fast one log may be deleted by age; whether that is slow is for the running clock."""

    __slots__ = ("_last_ms",)

    def __init__(self) -> None:
        self._last_ms: int | None = None

    def allowed(self, ages: Ages) -> int | None:
        """How many segments may go by age now; None is any number."""
        if not ages.is_careful:
            return None
        # A restart must not win a segment: the first minute begins with the process.
        last_ms = ages.started_ms if self._last_ms is None else self._last_ms
        return 1 if ages.running_ms - last_ms >= _PACE_MS else 0

    def deleted(self, ages: Ages) -> None:
        self._last_ms = ages.running_ms


def age_ms(segment: Segment, moment: Moment) -> int:
    """How long ago the newest record of a segment was written, as far as its time is believed."""
    newest_ms, now_ms = segment.largest_timestamp, moment.wall_ms
    if 0 <= newest_ms <= now_ms + FUTURE_MS:
        return now_ms - newest_ms
    modified_ms = segment.disk.modified_ms(segment.log_file.path)
    return now_ms - modified_ms if modified_ms <= now_ms else moment.ages.age_ms(modified_ms)


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
        if age_ms(segment, moment) <= rules.retention_ms:
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
