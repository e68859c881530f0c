"""Cutting a log: at once in memory, and then on disk, off the event loop.

A log is cut in four steps, so that many cuts can share the second one:

1. `Cuts.truncation` or `Cuts.start_over`, on the loop: the log ends earlier for all who read it;
   slices of what is gone are refused; its recovery point falls to what is surely left. From here on
   nothing may be written to the log, nor flushed, cleaned or deleted.
2. A checkpoint of the data directory makes that recovery point durable. Only then may a file
   change: whatever lies on disk after a crash, the next start walks it again.
3. `Truncation.run`, on a thread: files are renamed and cut, from the end to the start, so that a
   crash leaves no hole; snapshots of later states are unlinked; producers are read again; all is
   synced. It keeps its faults and can be run again after one that passes.
4. `Cuts.done`, on the loop: the log goes on, and all of it is on disk.

A crash in between leaves the old log, the new one, or a prefix of the old one that is not shorter
than the new one. Whoever asked for the cut asks again after the next start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import KafkaError, StorageError
from tidelog.storage.faults import LogFaults
from tidelog.storage.flush import FlushPlan, FlushState
from tidelog.storage.producer_loading import Snapshots, reload_producers
from tidelog.storage.producers import ProducerStates
from tidelog.storage.rolling import Rolling
from tidelog.storage.segment import Segment
from tidelog.storage.segments import Segments
from tidelog.storage.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from tidelog.storage.log import Log


class CutParts(NamedTuple):
    """What of a log a cut works on; nobody else does meanwhile."""

    segments: Segments
    flush: FlushState
    snapshots: SnapshotFiles
    rolling: Rolling
    faults: LogFaults


class Truncation:
    """The disk's part of one cut, whose part in memory is done."""

    __slots__ = (
        "_log", "_parts", "dropped", "fault", "flush_plan", "lowest", "producers", "starts_over",
    )  # fmt: skip

    def __init__(
        self, log: Log, parts: CutParts, dropped: list[Segment], *, starts_over: bool
    ) -> None:
        self._log = log
        self._parts = parts
        self.dropped = dropped
        self.starts_over = starts_over
        # Until the files are cut nothing on disk reaches down to a lower start than there was.
        self.lowest = 0
        self.producers = ProducerStates()
        self.flush_plan: FlushPlan | None = None
        self.fault: OSError | StorageError | None = None

    def run(self) -> None:
        """Cut the files and sync them. Blocks, raises nothing: `Cuts.done` tells of faults."""
        self.fault = self.flush_plan = None
        try:
            self._cut()
            self._reload()
            self.flush_plan = self._parts.flush.plan(self._log.log_end_offset, self._log.epochs)
        except (OSError, StorageError) as error:
            self.fault = error
            return
        self.flush_plan.run()

    def _cut(self) -> None:
        active = self._parts.segments.active
        if self.starts_over:
            # There before the others go: a directory without a segment is one that lost them.
            active.cut_files()
        behind = [each for each in self.dropped if each.base_offset > active.base_offset]
        before = [each for each in self.dropped if each.base_offset < active.base_offset]
        for segment in reversed(behind):
            segment.rename_as_deleted()
        active.cut_files()
        for segment in reversed(before):
            segment.rename_as_deleted()

    def _reload(self) -> None:
        segments, end_offset = self._parts.segments, self._log.log_end_offset
        # Those of an earlier life of the log say nothing of what comes where it starts over.
        self._parts.snapshots.drop_above(-1 if self.starts_over else end_offset)
        if self.starts_over:
            self.producers.clear(end_offset)
            return
        snapshots = Snapshots(self._log.context.disk, self._log.directory)
        reload_producers(snapshots, list(segments), self.producers)


class Cuts:
    """Begins and ends the cuts of one log, one at a time."""

    __slots__ = ("_log", "_parts", "under_way")

    def __init__(self, log: Log, parts: CutParts) -> None:
        self._log = log
        self._parts = parts
        # Until the disk has done its part nothing may be written to the log.
        self.under_way: Truncation | None = None

    def truncation(self, offset: int) -> Truncation | None:
        """Have the log end at `offset`, or before the batch that holds it: what the disk must do.

        None where nothing lies there. Raises, and nothing is changed, where it cannot be read.
        """
        log, parts = self._log, self._parts
        assert offset >= 0, f"{log.directory} cannot end at {offset}"
        self._check_idle()
        if offset >= log.log_end_offset:
            # An epoch that this broker led in, without a record, is not the new leader's.
            log.epochs.truncate_from_end(log.log_end_offset)
            return None
        if offset <= log.log_start_offset:
            return self.start_over(offset)
        with parts.faults.refusing():
            segment, place, end = parts.segments.place_of_cut(offset)
            if end >= log.log_start_offset:
                segment.forget_from(place, end)
        if end < log.log_start_offset:
            # The batch that holds the log's start goes too; the start itself never falls.
            return self.start_over(log.log_start_offset)
        dropped = parts.segments.keep_up_to(segment)
        return self._begin(min(end, segment.base_offset), dropped, starts_over=False)

    def start_over(self, offset: int) -> Truncation:
        """Drop everything; the log is empty and begins at `offset`: what the disk must do."""
        self._check_idle()
        with self._parts.faults.refusing():
            dropped = self._parts.segments.start_over(offset)
        before, self._log.log_start_offset = self._log.log_start_offset, offset
        cut = self._begin(0, dropped, starts_over=True)
        cut.lowest = before
        return cut

    def _begin(self, synced: int, dropped: list[Segment], *, starts_over: bool) -> Truncation:
        log, parts = self._log, self._parts
        parts.rolling.begun()
        parts.flush.truncated(synced)
        parts.flush.wrote(parts.segments.active)
        log.first_dirty_offset = min(log.first_dirty_offset, log.log_end_offset)
        log.epochs.truncate_from_end(log.log_end_offset)
        self.under_way = Truncation(log, parts, dropped, starts_over=starts_over)
        log.assert_in_order()
        return self.under_way

    def done(self, cut: Truncation) -> None:
        """Take the outcome of a cut; KafkaError where the disk refused it: run it again then."""
        log = self._log
        assert self.under_way is cut, f"{log.directory} is being cut by another"
        plan = cut.flush_plan
        if log.closed:
            # Dropped meanwhile, perhaps with its directory: no fault of the disk.
            if plan is not None:
                plan.release()
            return
        if isinstance(cut.fault, OSError):
            self._parts.faults.refuse_or_fail(cut.fault)
        if cut.fault is not None:
            self._parts.faults.fail(OSError(str(cut.fault)))
        assert plan is not None, f"{log.directory} was not cut"
        self.under_way = None
        try:
            log.flushed(plan)
        except KafkaError:
            self.under_way = cut
            raise
        log.producers = cut.producers
        log.producers.date(log.context.clock.wall_ms())
        for segment in cut.dropped:
            segment.delete_when_unread(log.context, log.config.file_delete_delay_ms)

    def _check_idle(self) -> None:
        self._parts.faults.check()
        assert self.under_way is None, f"{self._log.directory} is being cut"
