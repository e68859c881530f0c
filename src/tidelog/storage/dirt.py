"""How much of a log waits to be cleaned; `compaction` cleans it."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.errors import StorageError
from tidelog.storage.log import Log
from tidelog.storage.retention import FUTURE_MS
from tidelog.storage.segment import Segment


class CleanAbandonedError(Exception):
    """The clean was told to stop; the log is right as it is."""


class UncleanableError(StorageError):
    """The log cannot be cleaned: something in it is damaged."""


@dataclass(slots=True)
class Dirt:
    """How much of a log waits to be cleaned."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    # True where `max.compaction.lag.ms` has passed for some record.
    overdue: bool

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def measure(log: Log, stable_offset: int, now_ms: int) -> Dirt:
    """How dirty a log is, of what lies below `stable_offset` and may be cleaned now."""
    config = log.config
    start = log.segments[0].base_offset
    first_dirty = log.first_dirty_offset
    if not start <= first_dirty <= log.segments.active.base_offset:
        first_dirty = start
    dirt = Dirt(first_dirty, start, 0, 0, overdue=False)
    oldest_ms = now_ms - config.max_compaction_lag_ms
    for segment in log.segments.sealed:
        too_new = config.min_compaction_lag_ms and _is_too_new(log, segment, now_ms)
        dirty = segment.next_offset > first_dirty
        if segment.next_offset > stable_offset or (dirty and too_new):
            break
        dirt.end_offset = segment.next_offset
        if not dirty:
            dirt.clean_bytes += segment.size_bytes
            continue
        dirt.dirty_bytes += segment.size_bytes
        dirt.overdue = dirt.overdue or 0 < segment.first_timestamp < oldest_ms
    return dirt


def _is_too_new(log: Log, segment: Segment, now_ms: int) -> bool:
    """Whether `min.compaction.lag.ms` keeps a segment as it is; a jump ahead does not end that."""
    written_ms = segment.largest_timestamp
    if written_ms < 0:
        written_ms = segment.created_ms
    elif written_ms > now_ms + FUTURE_MS:
        written_ms = segment.disk.modified_ms(segment.log_file.path)
    elif written_ms > now_ms:
        written_ms = now_ms
    ages = log.context.running_clock.ages()
    return ages.age_ms(written_ms) < log.config.min_compaction_lag_ms


def needs_cleaning(log: Log, dirt: Dirt) -> bool:
    """Whether a log is dirty enough, or has been dirty for too long."""
    if not log.config.cleanup_compact or not dirt.dirty_bytes:
        return False
    return dirt.overdue or dirt.ratio > log.config.min_cleanable_dirty_ratio
