"""One partition as this broker sees it: its log, who leads it, what is committed.

The two data paths meet here. `append` is the leader's write, `append_from_leader` a follower's;
`read` is everybody's read: consumers see up to the high watermark, replicas up to the log's end.

A leader's watermark moves by the rules of `in_sync`; what counts of its own log is, on a topic with
`durability=fsync`, what has reached the disk. A follower's is what its leader tells. A produce
waits in `committed` for it; a fetch watches it.

`follow_image` is the one transition: to lead, to follow, to go on in a newer epoch. Only truncation
awaits, and while it runs the partition does nothing else; whatever else was checked at the top of a
method still holds at its bottom.
"""

from __future__ import annotations

import logging
from typing import NoReturn

from tidelog.cluster.image import PartitionState
from tidelog.config.topic_config import TopicConfig
from tidelog.errors import (
    ErrorCode,
    KafkaError,
    PartitionBrokenError,
    StorageError,
    TidelogError,
)
from tidelog.model import Isolation, LogPosition
from tidelog.replication.containment import Containment
from tidelog.replication.disk_space import Room
from tidelog.replication.flushing import Flushing
from tidelog.replication.following import Copy, EpochEnd, Following
from tidelog.replication.in_sync import Asks
from tidelog.replication.kept_start import KeptStart
from tidelog.replication.leading import Leading
from tidelog.replication.losses import elected_without_records, report_unclean_leader
from tidelog.replication.reading import PartitionRead, Reader, refusal
from tidelog.replication.standing import Standing
from tidelog.replication.truncations import DiskWork
from tidelog.replication.waiters import CommitWait, CommitWaiters
from tidelog.replication.watermark import Watermark
from tidelog.storage.admission import Admitted, config_on_loop
from tidelog.storage.log import AppendResult, Log
from tidelog.storage.verification import CLIENT, Origin

_log = logging.getLogger(__name__)


class Partition:
    """A replica on this broker.

    Made whole from a log and its topic's settings, it serves nothing until the metadata says what
    it is. It leads, it follows, it has stopped, or it is offline for good: `_refusal` says what
    those are told who want it to lead.
    """

    def __init__(
        self, log: Log, config: TopicConfig, work: DiskWork, room: Room, standing: Standing
    ) -> None:
        self.topic_partition = log.topic_partition
        self.topic_id = log.topic_id
        self.log = log
        self.leader_epoch = -1
        self.contained = Containment(self)
        self.watermark = Watermark(log)
        self._standing = standing
        self._room = room
        # Those who wait for this broker's own disk.
        self._disk_waiters = CommitWaiters()
        self._flushing = Flushing(log, work.offload, self._flushed, self._write_out_failed)
        self._start = KeptStart(log, work.truncations.checkpoints)
        self.leading = Leading(log, self._start, self.watermark, standing, self._committable)
        copy = Copy(log, self._start, self.watermark, self._flushing, room, self.contained)
        self.following = Following(copy, work.truncations, standing, self._was_cut)
        # What those are told who want this broker to lead; None while it does.
        self._refusal: KafkaError | None = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._offline: KafkaError | None = None
        # What the metadata says.
        self.state: PartitionState | None = None
        self.reconfigure(config)

    def reconfigure(self, config: TopicConfig) -> None:
        """Take the topic's settings, which have changed."""
        self.config = config
        self.config_on_loop = config_on_loop(config)
        self.log.reconfigure(config)
        self._flushing.configure(config)
        self.following.reconfigure(config)

    # -- who leads --------------------------------------------------------------------------------

    @property
    def isr(self) -> tuple[int, ...]:
        """The in-sync replicas, as far as it is known here."""
        if self.leading.in_sync is not None:
            return self.leading.in_sync.isr
        return () if self.state is None else self.state.isr

    @property
    def replicas(self) -> tuple[int, ...]:
        return () if self.state is None else self.state.replicas

    @property
    def leads(self) -> bool:
        return self._refusal is None

    @property
    def role(self) -> tuple[int, bool, int]:
        """What changes when it leads, follows somebody else, or neither."""
        return self.leader_epoch, self.leads, self.following.leader_id

    def follow_image(self, state: PartitionState, min_isr: int) -> None:
        """Become what the metadata says: the leader, a follower, or the same in a newer epoch."""
        if self._offline is not None:
            return
        if self.state is not None and state.partition_epoch < self.state.partition_epoch:
            return
        before, self.state, self.leading.min_isr = self.state, state, min_isr
        if not self.following.is_cutting:
            with self.contained:
                self._take_role(state)
        if self.leading.lacks_followers:
            self._standing.reconsider(self)
        if before is not None and elected_without_records(before, state, self._standing.broker_id):
            end = self.log.log_end_offset, self.watermark.offset
            report_unclean_leader(self.topic_partition, before, state, end)

    def _was_cut(self) -> None:
        """A truncation has ended: become what the metadata has said meanwhile."""
        before = self.role
        try:
            if self.state is not None:
                self.follow_image(self.state, self.leading.min_isr)
        except PartitionBrokenError:
            pass  # It is offline and has said why.
        except TidelogError as error:
            self.go_offline(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        if self.role != before:
            self._standing.role_changed(self)

    def _take_role(self, state: PartitionState) -> None:
        assert set(state.isr) <= set(state.replicas), "an in-sync replica that is not a replica"
        assert state.leader_epoch >= self.leader_epoch, "leader epochs do not fall"
        if state.leader != self._standing.broker_id:
            if state.leader_epoch != self.leader_epoch or state.leader != self.following.leader_id:
                self._follow(state)
        elif state.leader_epoch != self.leader_epoch or not self.leads:
            self._lead(state)
        else:
            self.leading.updated(state)

    def _lead(self, state: PartitionState) -> None:
        if state.leader_epoch < self.log.epochs.latest:
            raise StorageError(
                f"the metadata gives {self.topic_partition} leader epoch {state.leader_epoch}, its"
                f" log has {self.log.epochs.latest}: put the newer metadata back and restart"
            )
        self.following.end()
        self.leader_epoch = state.leader_epoch
        self.leading.begin(state)
        self._refusal = None
        # Whoever reads in the epoch before is to hear of this one.
        self.watermark.notify()
        if self.config.durability_fsync and self.log.unflushed_messages:
            # What a crash left may be in the page cache only; until it is on the disk it cannot
            # be shown, and what was shown before must not be missing: see `settle`.
            self._flushing.start()
        self.leading.advance()

    def _follow(self, state: PartitionState) -> None:
        self.leader_epoch = state.leader_epoch
        self._serve_no_more(
            KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads now"),
        )
        self.following.begin(state.leader, state.leader_epoch)

    def stop(self, code: ErrorCode, reason: str) -> None:
        """Lead and serve no more: deleted, moved or shut down. Those who wait are told."""
        self.state = None  # A cut that is under way must not bring back what it was.
        self._flushing.stop()
        refusal = self._offline or KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._serve_no_more(refusal, KafkaError(code, reason))

    def go_offline(self, error: KafkaError) -> None:
        """Serve nothing until a restart, as where a write-out failed: the kernel may have dropped
        pages, so this log is not used again."""
        _log.error("partition offline partition=%s reason=%s", self.topic_partition, error)
        self._offline = error
        self._serve_no_more(error, error)

    def broke(self, error: Exception) -> None:
        """What must be true is not: use neither the log nor this partition any more."""
        reason = f"{type(error).__name__}: {error}"
        if self._offline is None:
            _log.error("partition broken partition=%s", self.topic_partition, exc_info=error)
            self.log.give_up(reason)
        self.go_offline(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason))

    def _write_out_failed(self, error: Exception) -> None:
        if isinstance(error, KafkaError):
            self.go_offline(error)
        else:
            self.broke(error)

    def _serve_no_more(self, refusal: KafkaError, told: KafkaError) -> None:
        self._refusal = refusal
        self.leading.end()
        self.following.end()
        self.watermark.waiters.fail(told)
        self._disk_waiters.fail(told)
        self.leading.deletion_waiters.fail(told)
        self.watermark.notify()

    def check_leader(self, known_epoch: int = -1) -> None:
        """KafkaError unless this broker leads, in the epoch that the client knows (-1: any)."""
        if self._refusal is not None:
            raise self._refusal.again()
        if known_epoch >= 0 and known_epoch != self.leader_epoch:
            self._refuse_epoch(known_epoch)

    def check_reader(self, known_epoch: int, reader: Reader) -> None:
        """As `check_leader`, for a reader that may read from a follower as well.

        A broker that has lost touch with the others would not see that they went on without it: a
        follower is not read from then, and a leader while all who may lead instead follow it.
        """
        if self._refusal is None:
            if reader is not Reader.REPLICA and self.leading.may_be_deposed:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker may lead by now")
        elif (
            reader is not Reader.ANYWHERE
            or not self.following.is_active
            or self._standing.entry.out_of_touch
        ):
            raise self._refusal.again()
        if known_epoch >= 0 and known_epoch != self.leader_epoch:
            self._refuse_epoch(known_epoch)

    def _refuse_epoch(self, known_epoch: int) -> NoReturn:
        is_older = known_epoch < self.leader_epoch
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"leader epoch {known_epoch} is not the current one, {self.leader_epoch}",
        )

    @property
    def offline_reason(self) -> str | None:
        """Why nothing is written here any more: the disk failed. None where it did not."""
        return self.log.offline_reason if self._offline is None else self._offline.message

    # -- writing ----------------------------------------------------------------------------------

    def append(
        self, admitted: Admitted, required_acks: int, now_ms: int, origin: Origin = CLIENT
    ) -> AppendResult:
        """Append what `admit` let through; KafkaError where it cannot be."""
        self.check_leader()
        if self._room.refusal is not None:
            self.refuse(admitted, self._room.refusal.again())
        refusal = self.leading.check_acks(required_acks)
        if refusal is not None:
            self.refuse(admitted, refusal)
        header = admitted.header
        if header.is_transactional and not header.is_control:
            self.log.producers.check_verified(header, origin.verification)
        try:
            result = self.log.append(admitted, self.leader_epoch, now_ms, origin)
            if not result.duplicate:
                self._flushing.appended()
                self.leading.appended(result.base_offset)
        except AssertionError as error:
            self.contained.broke(error)
        if result.log_start_offset > self.leading.safe_start:
            result.log_start_offset = self.leading.start_to_tell()
        return result

    def refuse(self, admitted: Admitted, error: KafkaError) -> NoReturn:
        """Refuse a batch for now; those that its producer sent behind it hear the same.

        Any other error would make clients believe that records were lost and send them again.
        """
        header = admitted.header
        if header.producer_id >= 0 and not header.is_control:
            self.log.producers.refuse(header, error.code)
        raise error

    def is_committed(self, offset: int) -> bool:
        return offset < self.watermark.offset

    def is_on_disk(self, offset: int) -> bool:
        """Whether this broker's own disk has it: what acks=1 means on a topic that syncs."""
        return offset < self._flushing.committed_end().offset

    def committed(self, offset: int, deadline: float) -> CommitWait:
        """Wait until `offset` is committed; where `is_committed` says so already, do without.

        KafkaError where it cannot be, REQUEST_TIMED_OUT at the loop's time `deadline`. However the
        wait ends, by its cancellation too, nothing of it stays here.
        """
        return self._wait(self.watermark.waiters, offset, deadline, self.watermark.offset)

    def doubt(self) -> None:
        """Where another may lead by now, let nobody wait here for what cannot be committed."""
        if self.watermark.waiters and self.leading.may_be_deposed:
            code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            self.watermark.waiters.fail(KafkaError(code, "another broker may lead by now"))

    def on_disk(self, offset: int, deadline: float) -> CommitWait:
        """As `committed`, for this broker's own disk alone."""
        end = self._flushing.committed_end().offset
        return self._wait(self._disk_waiters, offset, deadline, end)

    def _wait(self, waiters: CommitWaiters, offset: int, deadline: float, end: int) -> CommitWait:
        wait = waiters.wait_beyond(offset, deadline)
        if self._refusal is not None:
            waiters.fail(self._refusal)
        else:
            waiters.advance(end)
        return wait

    def flush(self) -> None:
        """Bring what is in the page cache to the disk, off the loop."""
        self._flushing.start()

    @property
    def awaits_background_flush(self) -> bool:
        """Dirty, and not on a topic whose own settings say when it becomes durable."""
        return not self.config.durability_fsync and self.log.unflushed_messages > 0

    async def flush_and_wait(self) -> None:
        """As `flush`, and return when what was there is durable."""
        self.flush()
        await self.settle()

    async def settle(self) -> None:
        """Return once no write-out runs."""
        await self._flushing.settle()

    # -- reading ----------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        return self.watermark.offset

    @property
    def latest_is_known(self) -> bool:
        """Whether all that earlier leaders committed is known to be: until then the end that
        consumers are told would fall."""
        return self.watermark.offset >= self.leading.epoch_start

    @property
    def last_stable_offset(self) -> int:
        return self.readable_end(Isolation.READ_COMMITTED).offset

    def readable_end(self, isolation: int) -> LogPosition:
        """How far a reader may read: a replica to the log's end, others to what is committed."""
        if isolation == Isolation.REPLICA:
            return self.log.end_position
        if isolation == Isolation.READ_COMMITTED:
            unstable = self.log.first_unstable_offset
            if unstable is not None and unstable.offset < self.watermark.offset:
                return unstable
        return self.watermark.position

    def readable_bytes(self, position: LogPosition, isolation: int) -> int:
        """Bytes from `position` to what a consumer may read: a sum of positions, no read."""
        end = self.readable_end(isolation)
        if end.offset <= position.offset:
            return 0
        return self.log.segments.bytes_between(position, end)

    def check_offset(self, offset: int) -> None:
        """OFFSET_OUT_OF_RANGE where a reader cannot stand at `offset`.

        Beyond the watermark it can: who has read what another leader had committed, or was sent to
        a follower that does not have it yet, has to wait, and must not start over.
        """
        start, end = self.log.log_start_offset, self.log.log_end_offset
        if offset > end and not self.leads:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"offset {offset} is not here yet")
        if not start <= offset <= end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is outside {start}..{end}"
            )

    def read(
        self, offset: int, max_bytes: int, isolation: int, at_least_one: bool
    ) -> PartitionRead:
        """Whole batches from the one that holds `offset` up to what the reader may see."""
        self.check_offset(offset)
        with self.contained:
            return self._read(offset, max_bytes, isolation, at_least_one)

    def _read(
        self, offset: int, max_bytes: int, isolation: int, at_least_one: bool
    ) -> PartitionRead:
        end = self.readable_end(isolation)
        slices = None
        if end.offset > offset and (max_bytes > 0 or at_least_one):
            try:
                slices = self.log.read(offset, max_bytes, end, at_least_one)
            except StorageError as error:
                self._standing.suspect(self.topic_partition, offset)
                raise refusal(error, is_sole=len(self.replicas) == 1) from error
            if slices.size_bytes == 0:
                slices.release()
                slices = None
        is_replica = isolation == Isolation.REPLICA
        start = self.log.log_start_offset if is_replica else self.leading.start_to_tell()
        read = PartitionRead(slices, self.watermark.offset, self.last_stable_offset, start)
        if isolation == Isolation.READ_COMMITTED:
            read.aborted = []
            if slices is not None:
                try:
                    read.aborted = self.log.segments.aborted_transactions(offset, end.offset)
                except BaseException:
                    slices.release()
                    raise
        return read

    def reach(self, offset: int, max_bytes: int, isolation: int) -> tuple[int, int]:
        """How far `max_bytes` go from `offset`, at least one batch: that offset, and the bytes."""
        self.check_offset(offset)
        end = self.readable_end(isolation)
        if end.offset <= offset:
            return offset, 0
        with self.contained:
            return self.log.segments.reach(self.log.locate(offset), max_bytes, end)

    def epoch_end(self, leader_epoch: int) -> EpochEnd:
        return EpochEnd(*self.log.epochs.end_offset_for(leader_epoch, self.log.log_end_offset))

    def replica_fetches(
        self, replica_id: int, broker_epoch: int, offset: int, log_start: int,
        asks: Asks | None = None,
    ) -> None:  # fmt: skip
        """A follower asks for `offset`; KafkaError where it cannot. It goes on to by `asks`."""
        self.check_offset(offset)
        known = (replica_id, broker_epoch, offset, log_start, asks)
        with self.contained:
            if self.leading.replica_fetches(*known):
                self._standing.reconsider(self)

    # -- deleting ---------------------------------------------------------------------------------

    def delete_records(self, before_offset: int) -> int:
        """Move the log's start up to `before_offset` (-1: the high watermark); the new start."""
        if before_offset == -1:
            before_offset = self.watermark.offset
        if before_offset > self.watermark.offset or before_offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete up to {before_offset}: the high watermark is"
                f" {self.watermark.offset}",
            )
        with self.contained:
            self.log.advance_log_start(before_offset)
            self.watermark.check_bounds()
        self.leading.start_to_tell()
        self.watermark.notify()
        return self.log.log_start_offset

    def deleted_everywhere(self, offset: int, deadline: float) -> CommitWait:
        """Wait until every live replica has deleted what lies before `offset`."""
        waiters = self.leading.deletion_waiters
        return self._wait(waiters, offset, deadline, self.leading.low_watermark + 1)

    def apply_retention(self, now_ms: int) -> int:
        """Delete what the topic no longer keeps; the number of segments that went."""
        with self.contained:
            removed = self.log.apply_retention(now_ms, self.watermark.offset)
            if removed:
                self.watermark.check_bounds()
        if removed:
            self.leading.start_to_tell()
            self.watermark.notify()
        return removed

    def segments_replaced(self) -> None:
        """The cleaner changed the log below the watermark: places in it are looked up again."""
        with self.contained:
            self._flushing.segments_replaced()
            self.watermark.look_up_again()

    # -- how the watermark moves ------------------------------------------------------------------

    def _committable(self) -> LogPosition:
        syncs = self.config.durability_fsync
        return self._flushing.committed_end() if syncs else self.log.end_position

    def _flushed(self) -> None:
        self._disk_waiters.advance(self._flushing.committed_end().offset)
        self.leading.advance()
        if not self.leads:
            # A follower that waited for its disk may ask for more.
            self.following.fetch_watchers.notify()
