"""One partition as this broker sees it: its log, who leads it, what is committed.

The two data paths meet here. `append` is the leader's write; `read` is everybody's read. The high
watermark moves in one place, `_advance`: it is the least of the in-sync replicas' ends and, on a
topic with `durability=fsync`, of what has reached the disk. A produce waits in `committed` for it;
a fetch watches it. No method awaits, so what was checked at the top still holds at the bottom.

Left out until there are followers: their positions, ISR changes, truncation.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from tidelog.cluster.image import PartitionState
from tidelog.config.topic_config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError, PartitionBrokenError, StorageError
from tidelog.host.offload import Offload
from tidelog.model import Isolation, LogPosition
from tidelog.replication.disk_space import Room
from tidelog.replication.flushing import Flushing
from tidelog.replication.waiters import CommitWait, CommitWaiters, Watchers
from tidelog.storage.admission import Admitted, config_on_loop
from tidelog.storage.log import AppendResult, Log
from tidelog.storage.slices import Slices

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PartitionRead:
    """What a fetch of one partition came to."""

    slices: Slices | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None = None


class EpochEnd(NamedTuple):
    """Where the log of a leader epoch ends, or (-1, -1) where it is not known."""

    leader_epoch: int
    end_offset: int


class Containment:
    """Takes a partition offline where an assertion fails in the block: no other one suffers.

    The error that comes out is answered by nobody, so it closes the request that led here.
    """

    __slots__ = ("_partition",)

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, AssertionError):
            self._partition.broke(error)
            raise PartitionBrokenError(f"{self._partition.topic_partition}: {error}") from error


class Partition:
    """A replica on this broker; the leader, as long as there is one broker.

    Made whole from a log and its topic's settings, it serves nothing until it is told to lead. It
    leads, it has stopped, or it is offline for good: `_refusal` says which, in one place.
    """

    def __init__(self, log: Log, config: TopicConfig, offload: Offload, room: Room) -> None:
        self.topic_partition = log.topic_partition
        self.topic_id = log.topic_id
        self.log = log
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.watchers = Watchers()
        self.contained = Containment(self)
        self._room = room
        self._waiters = CommitWaiters()
        self._flushing = Flushing(log, offload, self._advance, self._write_out_failed)
        # What those are told who want this broker to lead; None while it does.
        self._refusal: KafkaError | None = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._offline: KafkaError | None = None
        self._high_watermark = log.segments.position_after(log.log_start_offset)
        self.reconfigure(config)

    def reconfigure(self, config: TopicConfig) -> None:
        """Take the topic's settings, which have changed."""
        self.config = config
        self.config_on_loop = config_on_loop(config)
        self.log.reconfigure(config)
        self._flushing.configure(config)

    # -- who leads --------------------------------------------------------------------------------

    def lead(self, state: PartitionState) -> None:
        """Become the leader in the epoch that the controller chose, or go on in a newer one."""
        if self._offline is not None:
            return
        with self.contained:
            self._lead(state)

    def _lead(self, state: PartitionState) -> None:
        assert set(state.isr) <= set(state.replicas), "an in-sync replica that is not a replica"
        assert state.leader_epoch >= self.leader_epoch, "leader epochs do not fall"
        if state.leader_epoch < self.log.epochs.latest:
            raise StorageError(
                f"the metadata gives {self.topic_partition} leader epoch {state.leader_epoch}, its"
                f" log has {self.log.epochs.latest}: put the newer metadata back and restart"
            )
        self.isr = state.isr
        if state.leader_epoch != self.leader_epoch:
            self.leader_epoch = state.leader_epoch
            self.log.epochs.assign(state.leader_epoch, self.log.log_end_offset)
            # Whoever reads in the epoch before is to hear of this one.
            self.watchers.notify()
        self._refusal = None
        if self.config.durability_fsync and self.log.unflushed_messages:
            # What a crash left may be in the page cache only; until it is on the disk it cannot
            # be shown, and what was shown before must not be missing: see `settle`.
            self._flushing.start()
        self._advance()

    def stop(self, code: ErrorCode, reason: str) -> None:
        """Lead and serve no more: deleted, moved or shut down. Those who wait are told."""
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
        self._waiters.fail(told)
        self.watchers.notify()

    def check_leader(self, known_epoch: int = -1) -> None:
        """KafkaError unless this broker leads, in the epoch that the client knows (-1: any)."""
        if self._refusal is not None:
            raise self._refusal.again()
        if known_epoch >= 0 and known_epoch != self.leader_epoch:
            older = known_epoch < self.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise KafkaError(
                code, f"leader epoch {known_epoch} is not the current one, {self.leader_epoch}"
            )

    @property
    def offline_reason(self) -> str | None:
        """Why nothing is written here any more: the disk failed. None where it did not."""
        return self.log.offline_reason if self._offline is None else self._offline.message

    # -- writing ----------------------------------------------------------------------------------

    def append(self, admitted: Admitted, required_acks: int, now_ms: int) -> AppendResult:
        """Append what `admit` let through; KafkaError where it cannot be."""
        self.check_leader()
        if self._room.refusal is not None:
            self._refuse(admitted, self._room.refusal.again())
        if required_acks == -1 and len(self.isr) < self.config.min_insync_replicas:
            self._refuse(
                admitted,
                KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{len(self.isr)} in-sync replicas, min.insync.replicas is"
                    f" {self.config.min_insync_replicas}",
                ),
            )
        with self.contained:
            result = self.log.append(admitted, self.leader_epoch, now_ms)
            if not result.duplicate:
                self._flushing.appended()
                self._advance()
        return result

    def _refuse(self, admitted: Admitted, error: KafkaError) -> NoReturn:
        """Refuse a batch for now; those that its producer sent behind it hear the same.

        Any other error would make clients believe that records were lost and send them again.
        """
        header = admitted.header
        if header.producer_id >= 0:
            self.log.producers.refuse(header, error.code)
        raise error

    def is_committed(self, offset: int) -> bool:
        return offset < self._high_watermark.offset

    def committed(self, offset: int, deadline: float) -> CommitWait:
        """Wait until `offset` is committed; where `is_committed` says so already, do without.

        KafkaError where it cannot be, REQUEST_TIMED_OUT at the loop's time `deadline`. However the
        wait ends, by its cancellation too, nothing of it stays here.
        """
        wait = self._waiters.wait_beyond(offset, deadline)
        if self._refusal is not None:
            self._waiters.fail(self._refusal)
        else:
            self._waiters.advance(self._high_watermark.offset)
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
        self._flushing.start()
        await self.settle()

    async def settle(self) -> None:
        """Return once no write-out runs."""
        await self._flushing.settle()

    # -- reading ----------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        return self._high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        return self.readable_end(Isolation.READ_COMMITTED).offset

    def readable_end(self, isolation: int) -> LogPosition:
        """How far a consumer may read."""
        if isolation == Isolation.READ_COMMITTED:
            unstable = self.log.first_unstable_offset
            if unstable is not None and unstable.offset < self._high_watermark.offset:
                return unstable
        return self._high_watermark

    def readable_bytes(self, position: LogPosition, isolation: int) -> int:
        """Bytes from `position` to what a consumer may read: a sum of positions, no read."""
        end = self.readable_end(isolation)
        if end.offset <= position.offset:
            return 0
        return self.log.segments.bytes_between(position, end)

    def check_offset(self, offset: int) -> None:
        """OFFSET_OUT_OF_RANGE where a consumer cannot stand at `offset`."""
        if not self.log.log_start_offset <= offset <= self._high_watermark.offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside {self.log.log_start_offset}.."
                f"{self._high_watermark.offset}",
            )

    def read(
        self, offset: int, max_bytes: int, isolation: int, at_least_one: bool
    ) -> PartitionRead:
        """Whole batches from the one that holds `offset` up to what a consumer may see."""
        self.check_offset(offset)
        with self.contained:
            return self._read(offset, max_bytes, isolation, at_least_one)

    def _read(
        self, offset: int, max_bytes: int, isolation: int, at_least_one: bool
    ) -> PartitionRead:
        end = self.readable_end(isolation)
        slices = None
        if end.offset > offset and (max_bytes > 0 or at_least_one):
            slices = self.log.read(offset, max_bytes, end, at_least_one)
            if slices.size_bytes == 0:
                slices.release()
                slices = None
        read = PartitionRead(
            slices,
            self._high_watermark.offset,
            self.last_stable_offset,
            self.log.log_start_offset,
        )
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

    # -- deleting ---------------------------------------------------------------------------------

    def delete_records(self, before_offset: int) -> int:
        """Move the log's start up to `before_offset` (-1: the high watermark); the new start."""
        if before_offset == -1:
            before_offset = self._high_watermark.offset
        if before_offset > self._high_watermark.offset or before_offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete up to {before_offset}: the high watermark is"
                f" {self._high_watermark.offset}",
            )
        with self.contained:
            self.log.advance_log_start(before_offset)
            self._check_bounds()
        self.watchers.notify()
        return self.log.log_start_offset

    def apply_retention(self, now_ms: int) -> int:
        """Delete what the topic no longer keeps; the number of segments that went."""
        with self.contained:
            removed = self.log.apply_retention(now_ms, self._high_watermark.offset)
            if removed:
                self._advance()
                self._check_bounds()
        if removed:
            self.watchers.notify()
        return removed

    def segments_replaced(self) -> None:
        """The cleaner changed the log below the watermark: places in it are looked up again."""
        with self.contained:
            self._high_watermark = self.log.segments.position_after(self._high_watermark.offset)
            self._flushing.segments_replaced()
            self._check_bounds()
        self.watchers.notify()

    # -- how the watermark moves ------------------------------------------------------------------

    def _advance(self) -> None:
        fsync = self.config.durability_fsync
        end = self._flushing.committed_end() if fsync else self.log.end_position
        if end.offset > self._high_watermark.offset:
            self._high_watermark = end
            self._check_bounds()
            self.log.producers.high_watermark_moved(end.offset)
            self._waiters.advance(end.offset)
            self.watchers.notify()

    def _check_bounds(self) -> None:
        log, watermark = self.log, self._high_watermark.offset
        assert log.log_start_offset <= watermark, "the log starts above its high watermark"
        assert watermark <= log.log_end_offset, "the log ends below its high watermark"
