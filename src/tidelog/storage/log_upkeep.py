"""The keeping of a log: rolling, flushing, retention, truncation, closing, deleting.

A roll seals the active segment: its indexes and a snapshot of the producers are written, and synced
by the next flush. Truncation drops whole segments from the end before it cuts one, and retention
drops them from the start, so a crash at any step leaves a log without a hole. Deleted files are
renamed at once and unlinked off the loop, after a delay and when no reader holds them.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from typing import NoReturn
from uuid import UUID

from tidelog.config.topic_config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.model import LogPosition
from tidelog.protocol.batches import BatchHeader
from tidelog.storage.faults import OUT_OF_DESCRIPTORS, PASSING
from tidelog.storage.flush import FlushPlan, FlushState
from tidelog.storage.log_context import LogContext
from tidelog.storage.log_read import LogReader
from tidelog.storage.producer_loading import Snapshots, reload_producers
from tidelog.storage.producers import ProducerStates
from tidelog.storage.recovery import Opened, Opening
from tidelog.storage.retention import (
    FUTURE_MS,
    Moment,
    RetentionPace,
    RetentionRules,
    count_below,
    count_expired,
    count_oversize,
)
from tidelog.storage.scan import LARGEST_RELATIVE_OFFSET
from tidelog.storage.segment import (
    CLEANED_SUFFIX,
    SWAP_SUFFIX,
    Segment,
    create_segment,
)
from tidelog.storage.snapshot_files import SnapshotFiles

logger = logging.getLogger(__name__)


class LogOfflineError(KafkaError, StorageError):
    """The disk failed under the log: nothing more is written to it until a restart."""


class LogUpkeep(LogReader):
    """A log's files over time."""

    __slots__ = (
        "_context",
        "_flush",
        "_offline",
        "_pace",
        "_roll_ms",
        "_snapshots",
        "closed",
        "config",
        "directory",
        "first_dirty_offset",
        "last_flush_ms",
        "left_over",
        "producers",
        "recovered_bytes",
        "topic_id",
        "truncated_bytes",
        "truncated_offsets",
    )

    topic_id: UUID

    def __init__(self, opening: Opening, opened: Opened, config: TopicConfig) -> None:
        context = opening.context
        self.directory = opening.directory
        self.config = config
        self.segments = opened.segments
        self.bases = [segment.base_offset for segment in opened.segments]
        self.log_start_offset = opened.log_start_offset
        self.producers: ProducerStates = opened.producers
        self.epochs = opened.epochs
        self.recovered_bytes = opened.recovered_bytes
        self.truncated_bytes = opened.truncated_bytes
        self.truncated_offsets = opened.truncated_offsets
        # Until the data directory has written down where the log starts; see `recovery`.
        self.left_over = opened.left_over
        self.last_flush_ms = context.clock.wall_ms()
        self.producers.date(self.last_flush_ms)
        self.closed = False
        # What lies below was compacted; nothing is lost where this is too low.
        self.first_dirty_offset = 0
        self._context = context
        self._offline: OSError | None = None
        self._pace = RetentionPace()
        self._flush = FlushState(
            context.disk, opening.directory, opened.recovery_point, opened.epochs_written
        )
        self._snapshots = SnapshotFiles(context, opening.directory, self._flush)
        if not opened.untouched:
            self._flush.directory_changed(opening.directory)
        self._roll_ms = self._draw_roll_ms()

    # Rolling

    def _segment_for(self, headers: list[BatchHeader], size_bytes: int, now_ms: int) -> Segment:
        """The segment that stamped batches go to, after rolling where that is due."""
        active = self.segments[-1]
        config = self.config
        last_offset = headers[-1].base_offset + headers[-1].last_offset_delta
        if last_offset - active.base_offset > LARGEST_RELATIVE_OFFSET:
            self._roll(headers[0].base_offset)
        elif active.size_bytes and (
            active.size_bytes + size_bytes > config.segment_bytes
            or self._indexes_full(active)
            or self._waited_ms(active, headers[-1].max_timestamp, now_ms) > self._roll_ms
        ):
            self._roll(active.next_offset)
        return self.segments[-1]

    def _indexes_full(self, segment: Segment) -> bool:
        limit = self.config.segment_index_bytes
        return segment.offsets.size_bytes + 8 > limit or segment.times.size_bytes + 12 > limit

    def _waited_ms(self, segment: Segment, timestamp: int, now_ms: int) -> int:
        """How long a segment has been filling, by its records' clock where that is believed."""
        if 0 <= segment.first_timestamp <= now_ms + FUTURE_MS:
            return timestamp - segment.first_timestamp
        if segment.created_ms <= now_ms:
            return now_ms - segment.created_ms
        return self._context.running_clock.ages().age_ms(segment.created_ms)

    def roll_if_due(self, now_ms: int) -> bool:
        """Seal the active segment where `segment.ms` has passed without a batch to show it."""
        active = self.segments[-1]
        if not active.size_bytes or self.offline:
            return False
        if self._waited_ms(active, now_ms, now_ms) <= self._roll_ms:
            return False
        self._roll(active.next_offset)
        return True

    def _draw_roll_ms(self) -> int:
        config = self.config
        longest_ms = config.segment_ms
        if config.cleanup_compact:
            longest_ms = min(longest_ms, config.max_compaction_lag_ms)
        jitter = config.segment_jitter_ms
        return longest_ms - (self._context.random.below(jitter) if jitter > 0 else 0)

    def _roll(self, base_offset: int) -> None:
        """Seal the active segment and go on in a new one."""
        active = self.segments[-1]
        try:
            indexes = active.write_indexes()
            self._write_snapshot()
            segment = create_segment(self._context, self.directory, base_offset)
        except OSError as error:
            self._refuse_or_fail(error)
        self._flush.sealed(active, indexes)
        self._flush.directory_changed(self.directory)
        self._add_segment(segment)
        if not active.size_bytes:
            self._retire(active)
            self.segments.remove(active)
            self.bases.remove(active.base_offset)

    def _add_segment(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.bases.append(segment.base_offset)
        self._roll_ms = self._draw_roll_ms()

    def _write_snapshot(self) -> None:
        self.producers.end_offset = self.log_end_offset
        self._snapshots.write(self.log_end_offset, self.producers)

    # Faults

    @property
    def offline(self) -> bool:
        """True once the disk has failed under this log."""
        return self._offline is not None

    @property
    def offline_reason(self) -> str | None:
        return None if self._offline is None else str(self._offline)

    def _refuse_or_fail(self, error: OSError) -> NoReturn:
        """A passing fault is a refusal; any other takes the log offline."""
        if error.errno in PASSING:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._fail(error)

    def _fail(self, error: OSError) -> NoReturn:
        """The disk has failed: nothing that was not synced can be relied on any more."""
        if self._offline is None:
            self._offline = error
            logger.error("log offline directory=%s error=%s", self.directory, error)
            self._context.on_offline(self.directory, error)
        raise self._offline_error() from error

    def _offline_error(self) -> LogOfflineError:
        return LogOfflineError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory} is offline: {self._offline}"
        )

    # Flushing

    @property
    def flushed_offset(self) -> int:
        """Everything below is on disk for good; the recovery point."""
        return self._flush.flushed_offset

    @property
    def unflushed_messages(self) -> int:
        return self.segments[-1].next_offset - self._flush.flushed_offset

    def flush_plan(self) -> FlushPlan:
        """What to sync now: run it off the loop, then hand it to `flushed`, whatever came of it.

        KafkaError where the files cannot be opened; unless the log is offline, try again later.
        """
        if self._offline is not None:
            raise self._offline_error()
        try:
            return self._flush.plan(self.log_end_offset, self.epochs)
        except OSError as error:
            self._refuse_or_fail(error)

    def flushed(self, plan: FlushPlan) -> None:
        """Take the outcome of a plan; raises where it failed, and moves nothing then."""
        plan.release()
        if self.closed:
            return
        if plan.sync_error is not None:
            self._fail(plan.sync_error)
        if plan.refused is not None:
            self._refuse_or_fail(plan.refused)
        self._flush.done(plan)
        self.last_flush_ms = self._context.clock.wall_ms()

    # Leader epochs and transactions

    def assign_epoch_start(self, leader_epoch: int) -> None:
        """This broker leads from here on in a new epoch."""
        self.epochs.assign(leader_epoch, self.log_end_offset)

    @property
    def first_unstable_offset(self) -> LogPosition | None:
        """Where the first transaction begins that readers of committed data must not pass."""
        offset = self.producers.first_unstable_offset
        if offset < 0:
            return None
        known = self.producers.position_of(offset)
        if known is not None and offset >= self.log_start_offset:
            return known
        return self.position_after(max(offset, self.log_start_offset))

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Transactions whose markers are below the watermark are decided for readers."""
        self.producers.high_watermark_moved(high_watermark)

    # Retention

    def advance_log_start(self, offset: int) -> None:
        """Records below `offset` are gone for readers; their segments follow with retention."""
        if offset > self.log_end_offset:
            raise self._out_of_range(offset)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.producers.drop_transactions_before(offset)

    def apply_retention(self, now_ms: int, high_watermark: int) -> int:
        """Delete what age, size and the log's start let go of; how many segments went."""
        if self.offline:
            return 0
        try:
            return self._apply_retention(now_ms, high_watermark)
        except OSError as error:
            self._refuse_or_fail(error)

    def _apply_retention(self, now_ms: int, high_watermark: int) -> int:
        config = self.config
        ages = self._context.running_clock.ages()
        self.producers.expire(ages, config.producer_id_expiration_ms)
        rules = RetentionRules(config.retention_ms, config.retention_bytes, config.cleanup_delete)
        moment = Moment(now_ms, ages, high_watermark)
        expired = count_expired(self.segments, rules, moment, self._pace.allowed(ages))
        if expired:
            self._pace.deleted(ages)
            self._delete_first(expired, "age")
        oversize = count_oversize(self.segments, rules, high_watermark)
        self._delete_first(oversize, "size")
        below = count_below(self.segments, self.log_start_offset)
        self._delete_first(below, "log start offset")
        return expired + oversize + below

    def _delete_first(self, count: int, reason: str) -> None:
        if not count:
            return
        if count == len(self.segments):
            self._roll(self.log_end_offset)
        logger.info(
            "deleting segments partition=%s count=%d reason=%s log_start_offset=%d",
            self.topic_partition,
            count,
            reason,
            self.bases[count],
        )
        try:
            self._snapshots.keep(self.bases[count], self.producers)
        except OSError as error:
            self._refuse_or_fail(error)
        for _ in range(count):
            self.advance_log_start(self.bases[1])
            self._retire(self.segments[0])
            del self.segments[0]
            del self.bases[0]
        delay_s = self.config.file_delete_delay_ms / 1000
        try:
            self._snapshots.drop_later(self._snapshots.below(self.bases), delay_s)
        except OSError as error:
            # Without a descriptor they cannot be listed; they go with the next segment.
            if error.errno not in OUT_OF_DESCRIPTORS:
                self._fail(error)

    def _retire(self, segment: Segment) -> None:
        """Rename a segment's files, to be unlinked later; take it off the list after this."""
        try:
            segment.retire(self._context, self.config.file_delete_delay_ms / 1000)
        except OSError as error:
            self._refuse_or_fail(error)
        self._flush.forget(segment)
        self._flush.directory_changed(self.directory)

    # Truncation

    def lower_recovery_point(self, offset: int) -> None:
        """The log is about to be cut at `offset`: believe nothing of the segment that holds it."""
        place = max(bisect_right(self.bases, offset) - 1, 0)
        self._flush.truncated(min(offset, self.bases[place]))

    def truncate_to(self, offset: int) -> None:
        """Cut the log so that it ends at `offset`, or before the batch that holds it."""
        assert offset >= 0, offset
        if offset >= self.log_end_offset:
            return
        if offset <= self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        while len(self.segments) > 1 and self.bases[-1] > offset:
            self._retire(self.segments[-1])
            self.segments.pop()
            self.bases.pop()
        active = self.segments[-1]
        try:
            place = active.find(offset)
            end = offset
            for _, header in active.batches_from(place):
                end = min(offset, header.base_offset)
                break
            if end >= self.log_start_offset:
                active.truncate_to(place, end)
        except OSError as error:
            self._refuse_or_fail(error)
        if end < self.log_start_offset:
            # The batch that holds the log's start goes too; the start itself never falls.
            self.truncate_fully_and_start_at(self.log_start_offset)
            return
        self._flush.wrote(active)
        self._after_truncation(end)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is empty and begins at `offset`."""
        while len(self.segments) > 1:
            self._retire(self.segments[-1])
            self.segments.pop()
            self.bases.pop()
        last = self.segments[0]
        try:
            last.truncate_to(0, last.base_offset)
            if last.base_offset != offset:
                self._add_segment(create_segment(self._context, self.directory, offset))
                self._retire(last)
                del self.segments[0]
                del self.bases[0]
        except OSError as error:
            self._refuse_or_fail(error)
        self._flush.wrote(self.segments[0])
        self.log_start_offset = offset
        self._after_truncation(offset)

    def _after_truncation(self, end: int) -> None:
        self._flush.truncated(end)
        self.first_dirty_offset = min(self.first_dirty_offset, end)
        self.epochs.truncate_from_end(end)
        try:
            self._snapshots.drop_above(end)
            snapshots = Snapshots(self._context.disk, self.directory)
            reload_producers(snapshots, self.segments, self.producers)
            self.producers.date(self._context.clock.wall_ms())
        except OSError as error:
            self._fail(error)

    # Compaction

    @property
    def context(self) -> LogContext:
        return self._context

    def replace_segments(self, old: list[Segment], new: Segment) -> bool:
        """Put what the cleaner made into the place of what it was made from; see `swap`.

        False, and nothing changed, where the log is no longer as it was when that was begun.
        """
        place = bisect_left(self.bases, old[0].base_offset)
        if self.closed or self.offline or self.segments[place : place + len(old)] != old:
            return False
        try:
            new.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
        except OSError as error:
            # The log's own file is the last to be renamed: nothing is decided yet.
            self._refuse_or_fail(error)
        delay_s = self.config.file_delete_delay_ms / 1000
        try:
            for segment in old:
                segment.retire(self._context, delay_s)
            new.change_suffix(SWAP_SUFFIX, "")
        except OSError as error:
            # Decided, but not done: the next start goes on from here.
            self._fail(error)
        for segment in old:
            self._flush.forget(segment)
        self._flush.directory_changed(self.directory)
        self.segments[place : place + len(old)] = [new]
        self.bases[place : place + len(old)] = [new.base_offset]
        self._snapshots.drop_later([segment.base_offset for segment in old[1:]], delay_s)
        return True

    # The end

    def reconfigure(self, config: TopicConfig) -> None:
        self.config = config
        self._roll_ms = self._draw_roll_ms()

    def write_for_stop(self) -> bool:
        """Write the files that only a stop brings up to date; False where none had to be.

        Blocks; raises where something was not kept. What is written is not synced.
        """
        if self._offline is not None:
            raise self._offline_error()
        if self.closed or not self._flush.touched:
            # As it was found: a leader epoch without a record is not worth a write.
            return False
        self._flush.sealed(self.segments[-1], self.segments[-1].write_indexes())
        self._write_snapshot()
        return True

    def sync_for_stop(self) -> None:
        """Sync what is not; blocks, raises where that failed."""
        plan = self.flush_plan()
        plan.run()
        self.flushed(plan)

    def all_synced(self) -> None:
        """The file system was synced as a whole, after `write_for_stop`."""
        self._flush.all_synced(self.log_end_offset)

    def write_epochs(self) -> None:
        """Bring the leader epochs up to date for a sync of the whole file system. Blocks."""
        self._flush.write_epochs(self.epochs)

    def close(self) -> None:
        """Flush everything and let go of the files. Blocks; raises where something was not kept."""
        try:
            if not self.closed and self.write_for_stop():
                self.sync_for_stop()
        except OSError as error:
            raise StorageError(f"{self.directory} was not closed cleanly: {error}") from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the files as they are."""
        self.closed = True
        self._flush.close()
        for segment in self.segments:
            segment.close()
