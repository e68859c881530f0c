"""A leader's part beside writing: what its followers have, what is committed, who is in sync."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.cluster.commands import Proposal
from tidelog.cluster.image import PartitionState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import LogPosition
from tidelog.replication.in_sync import UNKNOWN, Asks, InSyncReplicas, Look
from tidelog.replication.kept_start import KeptStart
from tidelog.replication.standing import Standing
from tidelog.replication.waiters import CommitWaiters
from tidelog.replication.watermark import Watermark
from tidelog.storage.log import Log

# What a leader without followers sees; looking costs a sole replica more than the rest.
_NOBODY: Final = Look(0, 0.0, 0.0, {})

# A follower asks at least twice a second, also where there is nothing new.
_HEARD_SECONDS: Final = 2.0
# A follower may have to ask again for what did not fit into an answer, or its disk has no room for.
_REPEATS_SUSPECT: Final = 4


class Leading:
    """The view of one replica while it leads: `in_sync` is None where it does not."""

    def __init__(
        self,
        log: Log,
        start: KeptStart,
        watermark: Watermark,
        standing: Standing,
        committable: Callable[[], LogPosition],
    ) -> None:
        self._log = log
        self._start = start
        self._watermark = watermark
        self._standing = standing
        # How far this broker's own copy counts: on a topic that syncs, what is on the disk.
        self._committable = committable
        self.in_sync: InSyncReplicas | None = None
        # Those who wait for every live replica to have deleted up to an offset.
        self.deletion_waiters = CommitWaiters()
        start.on_kept.append(self.deletions_moved)
        self.min_isr = 1
        self.epoch_start = 0
        # The highest start of the log that all had who may be elected after this leader.
        self.safe_start = UNKNOWN

    def begin(self, state: PartitionState) -> None:
        """Lead in a new epoch, in which nothing is known of the followers yet."""
        self.epoch_start = self._log.log_end_offset
        # What the others have is not known yet. No log starts before 0.
        self.safe_start = 0
        self._log.epochs.assign(state.leader_epoch, self.epoch_start)
        self._log.producers.void_all()
        self.in_sync = InSyncReplicas(
            self._standing.broker_id,
            state,
            self.epoch_start,
            self._watermark.offset,
            self._standing.clock.monotonic(),
        )

    def updated(self, state: PartitionState) -> None:
        """The metadata says something newer, in the same leader epoch."""
        assert self.in_sync is not None, "only a leader has followers"
        before = len(self.in_sync.isr)
        self.in_sync.updated(state, self._standing.clock.monotonic())
        self._isr_changed(before, len(self.in_sync.isr))
        self.deletions_moved()
        self.advance()

    def end(self) -> None:
        self.in_sync, self.safe_start = None, UNKNOWN

    def check_acks(self, required_acks: int) -> KafkaError | None:
        """Why these acks cannot be promised now; None where they can.

        acks=all needs enough replicas in sync that still follow. What only the leader would have is
        refused where another may be the leader by now.
        """
        assert self.in_sync is not None, "only a leader is asked"
        if required_acks == -1:
            if self.may_be_deposed:
                return KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker may lead by now"
                )
            count = len(self.in_sync.isr)
            if count < self.min_isr:
                return KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{count} in-sync replicas, min.insync.replicas is {self.min_isr}",
                )
        elif self.in_sync.followers and self._standing.entry.out_of_touch:
            return KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                "the broker has lost touch with the metadata store and takes acks=all only",
            )
        return None

    @property
    def may_be_deposed(self) -> bool:
        """Whether another may lead by now: the store is out of reach, and not all who could be
        elected have lately asked this broker for more. Who asks here leads nowhere else."""
        in_sync, standing = self.in_sync, self._standing
        if in_sync is None or not in_sync.followers or not standing.entry.out_of_touch:
            return False
        heard_since = standing.clock.monotonic() - _HEARD_SECONDS
        return any(
            in_sync.followers[each].heard_at < heard_since
            for each in {*in_sync.maximal_isr, *in_sync.state.elr}
            if each in in_sync.followers
        )

    def appended(self, end_before: int) -> None:
        """The log grew: followers want to hear of it, and some of it may be committed already."""
        if self.in_sync is None:
            return  # A write-out that began with the append has taken the partition offline.
        if self.in_sync.followers:
            self.in_sync.appended(end_before, self._standing.clock.monotonic())
            self._watermark.replica_watchers.notify()
        self.advance()

    def advance(self) -> None:
        """Move the watermark as far as it may go; the one place where a leader's moves."""
        in_sync = self.in_sync
        if in_sync is not None:
            end = self._committable()
            look = self._look() if in_sync.followers else _NOBODY
            if in_sync.advance(end.offset, self.min_isr, look):
                committed = in_sync.high_watermark
                self._watermark.raise_to(committed, end if committed == end.offset else None)

    def _look(self) -> Look:
        standing = self._standing
        return Look(
            self._log.log_end_offset, standing.clock.monotonic(), standing.lag_s, standing.eligible
        )

    # -- followers --------------------------------------------------------------------------------

    def replica_fetches(
        self, replica_id: int, broker_epoch: int, offset: int, log_start: int, asks: Asks | None
    ) -> bool:
        """A follower in this log's range asks for `offset`, so it has all before it.

        True where it may join the ISR by that. KafkaError where it is no replica, or the request
        is of an earlier life of that broker.
        """
        in_sync = self.in_sync
        assert in_sync is not None, "only a leader has followers"
        now, end = self._standing.clock.monotonic(), self._log.log_end_offset
        if not in_sync.fetched(replica_id, broker_epoch, offset, end, now):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} in epoch {broker_epoch} is no replica of"
                f" {self._log.topic_partition}",
            )
        follower = in_sync.followers[replica_id]
        follower.log_start, follower.asks = log_start, asks
        if follower.repeats >= _REPEATS_SUSPECT:
            # What it is given it does not take: perhaps that is not what was written here.
            follower.repeats = 0
            self._standing.suspect(self._log.topic_partition, offset)
        self.deletions_moved()
        self.advance()
        return replica_id not in in_sync.isr and in_sync.pending is None

    @property
    def low_watermark(self) -> int:
        """What no replica has any more that lives, or may lead when it is back."""
        lowest = self._start.offset
        if self.in_sync is not None:
            counted = {*self._standing.eligible, *self.in_sync.isr, *self.in_sync.state.elr}
            for replica, follower in self.in_sync.followers.items():
                if replica in counted:
                    lowest = min(lowest, follower.log_start)
        return lowest

    def start_to_tell(self) -> int:
        """The log's start, for clients; UNKNOWN while the next leader might tell an earlier one,
        and where this broker does not lead."""
        start, in_sync = self._log.log_start_offset, self.in_sync
        if start > self.safe_start and in_sync is not None:
            followers = [in_sync.followers.get(each) for each in in_sync.maximal_isr]
            have_it = all(each is None or each.log_start >= start for each in followers)
            if self._start.offset == start and have_it:
                # From now on nobody joins who does not have it.
                self.safe_start = in_sync.log_start_min = start
        return start if start <= self.safe_start else UNKNOWN

    def deletions_moved(self) -> None:
        """A log's start has moved, or who lives: wake those who waited for no more than that."""
        if len(self.deletion_waiters):
            self.deletion_waiters.advance(self.low_watermark + 1)

    # -- who is in sync ---------------------------------------------------------------------------

    @property
    def lacks_followers(self) -> bool:
        """Whether some follower is not in the ISR, and might join it."""
        in_sync = self.in_sync
        return in_sync is not None and len(in_sync.isr) <= len(in_sync.followers)

    def propose(self) -> Proposal | None:
        """The change of the ISR to ask the controller for; None where there is none to ask."""
        if self.in_sync is None:
            return None
        return self.in_sync.propose(self._look(), self._standing.entry.broker_epoch)

    def awaits(self, proposal: Proposal) -> bool:
        """Whether an answer to the proposal still means something."""
        return self.in_sync is not None and self.in_sync.pending is proposal

    def decided(self, proposal: Proposal, decided: PartitionState | None) -> None:
        """The controller's answer: the new state, or None where nothing was done for certain."""
        if self.in_sync is not None:
            before = len(self.in_sync.isr)
            self.in_sync.answered(proposal, decided, self._standing.clock.monotonic())
            self._isr_changed(before, len(self.in_sync.isr))
            self.advance()

    def _isr_changed(self, before: int, after: int) -> None:
        """The answer and the metadata both tell of a change: the first of them counts."""
        self._standing.isr_shrinks += after < before
        self._standing.isr_expansions += after > before
        if after < before:
            # Who was removed has to show itself again, though it may have nothing new to say.
            self._watermark.replica_watchers.notify()

    def has_heard(self, replica_id: int) -> bool:
        """Whether a follower has shown itself since it was last removed from the ISR."""
        follower = None if self.in_sync is None else self.in_sync.followers.get(replica_id)
        return follower is None or follower.end != UNKNOWN
