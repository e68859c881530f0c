"""One partition on one disk, as its leader and its followers use it.

Everything is synchronous and belongs to one owner; only syncing and unlinking are handed out, as a
`FlushPlan` and through `LogContext.run_later`. Promises:

- A batch is readable only when all its bytes were written. A full disk, or a process without free
  descriptors, refuses the batch with KAFKA_STORAGE_ERROR and leaves the log as it was; the log
  works again when that has passed. Any other fault of the disk takes the log offline for good: a
  failed sync is never tried again.
- Offsets rise and are not used twice for different content that anybody could have read.
- A retry of one of a producer's last five batches is answered with the offsets of the first try.
- `flushed_offset` moves only when all below it, the directory entries of its files, and the leader
  epochs are synced; it is the recovery point.
- Truncation drops whole segments from the end before it cuts one, and retention drops them from the
  start, so a crash at any step leaves a log without a hole.

Opening it is `recovery`, the list of segments `segments`; what goes is `retention`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.config.topic_config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.model import LogPosition, TimestampType
from tidelog.protocol.batches import (
    ATTRIBUTES_LOG_APPEND_TIME,
    LOG_OVERHEAD,
    BatchHeader,
    stamp,
)
from tidelog.storage.admission import Admitted
from tidelog.storage.faults import OUT_OF_DESCRIPTORS, LogFaults
from tidelog.storage.flush import FlushPlan, FlushState
from tidelog.storage.producers import EndMarker, ProducerBatch, read_marker
from tidelog.storage.recovery import Opened, Opening, load
from tidelog.storage.replay import assign_epochs, note_batch, note_run
from tidelog.storage.replicated import CheckedBatches, Continuation, check_replicated
from tidelog.storage.retention import Moment, Retention
from tidelog.storage.rolling import Rolling
from tidelog.storage.segment import DiskFullError, Segment
from tidelog.storage.segments import Segments
from tidelog.storage.slices import Slices
from tidelog.storage.snapshot_files import SnapshotFiles
from tidelog.storage.swap import replace_segments
from tidelog.storage.truncation import CutParts, Cuts
from tidelog.storage.verification import CLIENT, Origin


@dataclass(slots=True)
class AppendResult:
    """Where an appended batch lies."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class Log:
    """The records of one partition on this broker."""

    __slots__ = (
        "_faults", "_flush", "_retention", "_rolling", "_snapshots", "checkpointed_watermark",
        "closed", "config", "context", "cuts", "directory", "epochs", "first_dirty_offset",
        "last_flush_ms", "log_start_offset", "producers", "repairs", "segments", "topic_id",
        "topic_partition",
    )  # fmt: skip

    def __init__(self, opening: Opening, opened: Opened) -> None:
        context, directory = opening.context, opening.expected.directory
        self.topic_partition = opening.topic_partition
        self.topic_id, self.config = opening.new
        self.context = context
        self.directory = directory
        self.log_start_offset = opened.log_start_offset
        self.producers = opened.producers
        self.epochs = opened.epochs
        self.repairs = opened.repairs
        self.last_flush_ms = context.clock.wall_ms()
        self.producers.date(self.last_flush_ms)
        self.closed = False
        # What lies below was compacted; nothing is lost where this is too low.
        self.first_dirty_offset = 0
        self._faults = LogFaults(directory, context.on_offline)
        self._flush = FlushState(
            context.disk, directory, opened.recovery_point, opened.epochs_written
        )
        if not opened.untouched:
            self._flush.directory_changed()
        self.segments = Segments(context, directory, opened.segments, self._flush)
        self._snapshots = SnapshotFiles(context, directory, self._flush)
        self._retention = Retention(self.segments, self._snapshots)
        self._rolling = Rolling(context, self.config, self.segments, self._snapshots, self._flush)
        self.cuts = Cuts(
            self,
            CutParts(self.segments, self._flush, self._snapshots, self._rolling, self._faults),
        )
        # What was known to be committed when the log was opened, within its bounds: where its high
        # watermark starts. Whoever loads the log sets it from the checkpoint.
        self.checkpointed_watermark = opened.log_start_offset
        self.assert_in_order()

    @classmethod
    def open(cls, opening: Opening) -> Log:
        """Open a partition's directory, recovering what is in it unless the last stop was clean.

        PartitionDamagedError where it is not what was expected. Nothing is synced; see `recovery`.
        """
        return cls(opening, load(opening))

    # Appending

    def append(
        self, admitted: Admitted, leader_epoch: int, now_ms: int, origin: Origin = CLIENT
    ) -> AppendResult:
        """Append as the leader: check the producer, stamp offset and epoch, write."""
        header = admitted.header
        self._check_batch(header, leader_epoch)
        marker: EndMarker | None = None
        if header.producer_id >= 0:
            if header.is_control:
                marker = read_marker(admitted.buffer, header)
                if marker is not None:
                    self.producers.check_marker(marker, origin.transaction_version)
            else:
                duplicate = self.producers.check(header, from_client=origin.from_client)
                if duplicate is not None:
                    return self._repeated(duplicate)
                known = self.producers.states
                if len(known) >= self.config.producer_ids_max and origin.from_client:
                    self._check_known(header.producer_id)
        offset = self.segments.active.next_offset
        stamp(admitted.buffer, 0, offset, leader_epoch)
        header.base_offset = offset
        header.leader_epoch = leader_epoch
        last_offset = offset + header.last_offset_delta
        try:
            size_bytes = len(admitted.buffer)
            if not self._rolling.fits(last_offset, size_bytes, header.max_timestamp, now_ms):
                self._roll_for(offset, last_offset, size_bytes, header.max_timestamp, now_ms)
            segment = self._write(admitted.buffer, has_markers=marker is not None)
        except KafkaError:
            # The log is as it was; what the producer sent behind this batch hears the same.
            if header.producer_id >= 0 and marker is None:
                self.producers.refuse(header, ErrorCode.KAFKA_STORAGE_ERROR)
            raise
        assert segment.next_offset == offset, f"{self.directory} ends at {segment.next_offset}"
        self.producers.now_ms = now_ms
        self._note(segment, header, marker)
        if marker is not None:
            version = origin.transaction_version
            self.producers.void(header.producer_id, header.producer_epoch, version)
        time_ms = header.max_timestamp if header.attributes & ATTRIBUTES_LOG_APPEND_TIME else -1
        return AppendResult(offset, last_offset, time_ms, self.log_start_offset)

    def append_as_follower(self, records: memoryview, leader_epoch: int) -> None:
        """Append what a leader sent, unchanged; for a large chunk see `check_replicated`."""
        self.append_checked(check_replicated(records, self.continuation(leader_epoch)))

    def continuation(self, leader_epoch: int) -> Continuation:
        """What batches of a leader must go on from now, for `check_replicated`."""
        return Continuation(self.log_end_offset, self.epochs.latest, leader_epoch)

    def append_checked(self, checked: CheckedBatches) -> None:
        """Append batches of a leader that were checked against this log's end.

        They go over as many segments as they need. Where the disk refuses some of them, those
        before stay: the log ends behind a whole batch, and the next fetch goes on from there.
        """
        self._faults.check()
        checked.must_continue(self.log_end_offset, self.epochs.latest)
        now_ms, row = self.context.clock.wall_ms(), 0
        while row < checked.count:
            self._roll_for(*checked.batch(row), now_ms)
            run = checked.run(row, self.segments.active, self.config.segment_bytes)
            with self._faults.refusing():
                indexed_time = self.segments.active.last_indexed_time()
            segment = self._write(run.records, has_markers=run.has_markers)
            self.producers.now_ms = now_ms
            stretch = run.stretch(segment.size_bytes)
            assign_epochs(stretch, self.epochs)
            with self._faults.failing():
                segment.note_all(stretch, self.config.index_interval_bytes, indexed_time)
                note_run(self.producers, segment, stretch, run)
            row = run.end_row

    def _check_batch(self, header: BatchHeader, leader_epoch: int) -> None:
        self._faults.check()
        if header.size_bytes > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{header.size_bytes} bytes do not fit a segment of {self.config.segment_bytes}",
            )
        if leader_epoch < self.epochs.latest:
            # Recovery takes a falling epoch for the end of the log.
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"leader epoch {leader_epoch} is older than the log's {self.epochs.latest}",
            )

    def _check_known(self, producer_id: int) -> None:
        """KafkaError for a producer that would be one too many."""
        most = self.config.producer_ids_max
        if producer_id not in self.producers.states:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the partition has {most} producers already (producer.ids.max.per.partition);"
                " it forgets those that are idle for long",
            )

    def _repeated(self, batch: ProducerBatch) -> AppendResult:
        is_stamped = self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        first, last, time_ms = batch.first_offset, batch.last_offset, batch.timestamp
        start = self.log_start_offset
        return AppendResult(first, last, time_ms if is_stamped else -1, start, duplicate=True)

    def _write(self, buffer: memoryview, *, has_markers: bool) -> Segment:
        """Write batches behind the last; KafkaError, and the log as it was, where that failed."""
        assert not self.closed, f"{self.directory} is closed"
        assert self.cuts.under_way is None, f"{self.directory} is being cut"
        segment = self.segments.active
        try:
            if has_markers:
                # Noting the marker of an aborted transaction must not have to open a file.
                segment.aborted.load()
            segment.write(buffer)
        except (DiskFullError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in OUT_OF_DESCRIPTORS:
                self._faults.fail(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._flush.wrote(segment)
        return segment

    def _note(self, segment: Segment, header: BatchHeader, marker: EndMarker | None) -> None:
        """Take a batch that was written at the end of the log into account."""
        position = segment.size_bytes
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        try:
            size_bytes = header.batch_length + LOG_OVERHEAD
            segment.note(header, size_bytes, self.config.index_interval_bytes)
            if header.producer_id >= 0:
                note_batch(self.producers, segment, position, header, marker)
        except OSError as error:
            self._faults.fail(error)

    # Rolling

    def _roll_for(
        self, first_offset: int, last_offset: int, size_bytes: int, timestamp: int, now_ms: int
    ) -> None:
        """Seal the active segment where a batch belongs into a new one."""
        if self._rolling.too_far(last_offset):
            self._roll(first_offset)
        elif self._rolling.is_due(size_bytes, timestamp, now_ms):
            self._roll(self.log_end_offset)

    def roll_if_due(self, now_ms: int) -> bool:
        """Seal the active segment where `segment.ms` has passed without a batch to show it."""
        active = self.segments.active
        if not active.size_bytes or self.offline or self.cuts.under_way:
            return False
        if not self._rolling.is_old(active, now_ms, now_ms):
            return False
        self._roll(active.next_offset)
        return True

    def _roll(self, base_offset: int) -> None:
        with self._faults.refusing():
            self._rolling.roll(base_offset, self.producers)

    # Reading

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get."""
        return self.segments.active.next_offset

    @property
    def end_position(self) -> LogPosition:
        """The log's end, with its place on disk."""
        return self.segments.end_position

    def read(
        self, offset: int, max_bytes: int, limit: LogPosition, at_least_one: bool = True
    ) -> Slices:
        """Whole batches from `offset` up to `limit`, at most `max_bytes` of them.

        With `at_least_one` the first batch is given whatever its size. Release what is returned.
        """
        if not self.log_start_offset <= offset <= self.segments.active.next_offset:
            raise self._out_of_range(offset)
        if offset >= limit.offset:
            return Slices([], 0)
        return self.segments.slices(offset, max_bytes, limit, at_least_one)

    def locate(self, offset: int) -> LogPosition:
        """Where the batch begins that holds `offset` (or the first one behind it)."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset)
        return self.segments.position_after(offset)

    @property
    def first_unstable_offset(self) -> LogPosition | None:
        """Where the first transaction begins that readers of committed data must not pass."""
        offset = self.producers.first_unstable_offset
        if offset < 0:
            return None
        known = self.producers.position_of(offset)
        if known is not None and offset >= self.log_start_offset:
            return known
        return self.segments.position_after(max(offset, self.log_start_offset))

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {self.topic_partition} is not within"
            f" {self.log_start_offset} and {self.log_end_offset}",
        )

    # Flushing

    def give_up(self, reason: str) -> None:
        """Write nothing more, as after a fault of the disk; the next start recovers the log."""
        self._faults.note(OSError(reason))

    @property
    def offline(self) -> bool:
        """True once the disk has failed under this log, or it was given up."""
        return self._faults.fatal is not None

    @property
    def offline_reason(self) -> str | None:
        return None if self._faults.fatal is None else str(self._faults.fatal)

    @property
    def flushed_offset(self) -> int:
        """Everything below is on disk for good; the recovery point."""
        return self._flush.flushed_offset

    @property
    def unflushed_messages(self) -> int:
        return self.segments.active.next_offset - self._flush.flushed_offset

    def flush_plan(self) -> FlushPlan:
        """What to sync now: run it off the loop, then hand it to `flushed`, whatever came of it.

        KafkaError where the files cannot be opened; unless the log is offline, try again later.
        """
        self._check_idle()
        with self._faults.refusing():
            return self._flush.plan(self.log_end_offset, self.epochs)

    def flushed(self, plan: FlushPlan) -> bool:
        """Take the outcome of a plan; raises where it failed, and moves nothing then.

        False where it proves nothing, as after a cut that came while it ran.
        """
        plan.release()
        if self.closed:
            return False
        if plan.sync_error is not None:
            self._faults.fail(plan.sync_error)
        if plan.refused is not None:
            self._faults.refuse_or_fail(plan.refused)
        proves = self._flush.done(plan)
        self.last_flush_ms = self.context.clock.wall_ms()
        self.assert_in_order()
        return proves

    # What goes

    def advance_log_start(self, offset: int) -> None:
        """Records below `offset` are gone for readers; their segments follow with retention."""
        if offset > self.log_start_offset:
            if offset > self.log_end_offset:
                raise self._out_of_range(offset)
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.producers.drop_transactions_before(offset)
            self.assert_in_order()

    def apply_retention(self, now_ms: int, high_watermark: int) -> int:
        """Delete what age, size and the log's start let go of; how many segments went."""
        if self.closed or self.offline or self.cuts.under_way:
            return 0
        config, segments = self.config, self.segments
        moment = Moment(now_ms, self.context.running_clock.ages(), high_watermark)
        self.producers.expire(moment.ages, config.producer_id_expiration_ms)
        removed = 0
        with self._faults.refusing():
            for count, reason in self._retention.due(config, moment, self.log_start_offset):
                if count == len(segments):
                    self._roll(self.log_end_offset)
                start = segments.bases[count]
                assert start <= max(high_watermark, self.log_start_offset), (
                    f"{self.directory} would begin at {start}, committed is {high_watermark}"
                )
                self._snapshots.keep(start, self.producers)
                self.advance_log_start(start)
                self._retention.remove(count, reason, self.config.file_delete_delay_ms)
                removed += count
        return removed

    def replace_segments(self, old: list[Segment], new: Segment) -> bool:
        """Put what the cleaner made into the place of what it was made from; see `swap`.

        False, and nothing changed, where the log is no longer as it was when that was begun.
        """
        delay_ms = self.config.file_delete_delay_ms
        if self.closed or self.offline or self.cuts.under_way:
            return False
        if not replace_segments(self.segments, old, new, self._faults, delay_ms):
            return False
        self._snapshots.drop_later([segment.base_offset for segment in old[1:]], delay_ms)
        return True

    @property
    def start_on_disk(self) -> int:
        """The log's start as the next start may find it, for the checkpoint."""
        cut = self.cuts.under_way
        return self.log_start_offset if cut is None else max(self.log_start_offset, cut.lowest)

    @property
    def truncations(self) -> int:
        """How often the log was cut since it was opened."""
        return self._flush.truncations

    def _check_idle(self) -> None:
        self._faults.check()
        assert self.cuts.under_way is None, f"{self.directory} is being cut"

    def assert_in_order(self) -> None:
        """What the log begins with, is synced up to and ends at must be in this order."""
        start, end = self.log_start_offset, self.log_end_offset
        assert self.segments.bases[0] <= start <= end, (
            f"{self.directory} is from {start} to {end}, its files from {self.segments.bases[0]}"
        )
        assert 0 <= self.flushed_offset <= end, (
            f"{self.directory} ends at {end}, below its recovery point {self.flushed_offset}"
        )

    # The end

    def reconfigure(self, config: TopicConfig) -> None:
        self.config = config
        self._rolling.configure(config)

    def write_for_stop(self) -> bool:
        """Write the files that only a stop brings up to date; False where none had to be.

        Blocks; raises where something was not kept. What is written is not synced.
        """
        self._faults.check()
        if self.cuts.under_way:
            raise StorageError(f"{self.directory} is being cut; the next start recovers it")
        if self.closed or not self._flush.touched:
            # As it was found: a leader epoch without a record is not worth a write.
            return False
        active = self.segments.active
        self._flush.sealed(active, active.write_indexes())
        self._rolling.write_snapshot(self.producers)
        return True

    def sync(self) -> None:
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

    def abandon(self) -> None:
        """Let go of the files as they are."""
        self.closed = True
        self._flush.close()
        self.segments.close()
