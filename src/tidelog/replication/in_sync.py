"""What a leader knows of its followers, and what follows from it: the high watermark and the ISR.

Pure: no clock, no log, no network. One object lives for one leader epoch; in the next epoch nothing
that was heard in this one counts. The rules, each of which has lost somebody's records where it was
missing:

- The watermark is the least end among the *maximal* ISR, which has those in it whose admission was
  proposed and not yet answered; and it waits for caught-up replicas that will be proposed next. It
  does not move while the ISR is smaller than the minimum, here or at the controller, and it never
  falls.
- A replica may join when it has fetched, in this epoch and in its current life (broker epoch), from
  the watermark or above and from the epoch's first offset or above, and is not fenced.
- One proposal is under way at a time, and an answer to any other is ignored. Until it is answered a
  proposed removal changes nothing and a proposed admission already counts: whichever way it was
  decided, what is committed is on every possible leader.
- An answer that says only "your state is old" decides nothing: the proposal may have been done by
  an earlier try whose answer was lost. It stays under way until the metadata tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from tidelog.cluster.commands import Member, Proposal
from tidelog.cluster.image import PartitionState

UNKNOWN: Final = -1


class Asks(Protocol):
    """A follower's fetches, which name a partition only where its place has changed."""

    @property
    def asked_at(self) -> float:
        """When the last one came that was about the partition, named or not; 0 for never."""
        ...


@dataclass(slots=True)
class Follower:
    """What one follower has shown in this leader epoch."""

    broker_epoch: int = UNKNOWN
    # The end of its log: what it asked for last. On a topic that syncs, what it has synced.
    end: int = UNKNOWN
    log_start: int = UNKNOWN
    # When it last had all that the leader had then.
    caught_up_at: float = 0.0
    # The leader's end and the time of its last fetch, which its next one may reach.
    _leader_end_then: int = UNKNOWN
    _fetched_at: float = 0.0
    # The fetches by which it goes on to ask.
    asks: Asks | None = None
    # How often in a row it has asked for what it could have been given the time before.
    repeats: int = 0

    @property
    def heard_at(self) -> float:
        """When it last asked for what comes next, in this epoch; 0 where it has not."""
        return self._fetched_at if self.asks is None else max(self._fetched_at, self.asks.asked_at)

    def fetched(self, broker_epoch: int, offset: int, leader_end: int, now: float) -> None:
        if broker_epoch != self.broker_epoch:
            # Another life, or the first fetch in this epoch: what was shown before counts no more.
            # Only the time stays, by which a member has to catch up: it has as long as any other.
            self.broker_epoch = broker_epoch
            self._leader_end_then, self._fetched_at, self.asks = UNKNOWN, 0.0, None
        if offset >= leader_end:
            self.caught_up_at = max(self.caught_up_at, now)
        elif self._leader_end_then != UNKNOWN and offset >= self._leader_end_then:
            self.caught_up_at = max(self.caught_up_at, self._fetched_at)
        self.repeats = self.repeats + 1 if offset == self.end < self._leader_end_then else 0
        self.end = offset
        self._leader_end_then, self._fetched_at = leader_end, now


class Look(NamedTuple):
    """What holds at the moment of a decision: the leader's end, the time, who may join at all."""

    leader_end: int
    now: float
    lag_s: float
    # The current broker epochs of those who are alive, not fenced and not shutting down.
    eligible: Mapping[int, int]

    def lags(self, follower: Follower) -> bool:
        """Whether a follower has been behind for too long."""
        return follower.end < self.leader_end and self.now - follower.caught_up_at > self.lag_s


class InSyncReplicas:
    """The leader's view of one partition in one leader epoch."""

    def __init__(
        self,
        local_id: int,
        state: PartitionState,
        epoch_start: int,
        high_watermark: int,
        now: float,
    ) -> None:
        assert state.leader == local_id, f"{local_id} does not lead {state}"
        assert local_id in state.isr, "a leader is in its own ISR"
        self._local_id = local_id
        self._state = state
        self._epoch_start = epoch_start
        self._high_watermark = high_watermark
        self._pending: Proposal | None = None
        # The start of the log that clients were told: who joins must have it.
        self.log_start_min = UNKNOWN
        # Those in the ISR are given the lag time from now on to show themselves.
        self.followers: dict[int, Follower] = {
            replica: Follower(caught_up_at=now) for replica in state.replicas if replica != local_id
        }

    @property
    def state(self) -> PartitionState:
        return self._state

    @property
    def isr(self) -> tuple[int, ...]:
        """What the controller has decided, as far as it is known here."""
        return self._state.isr

    @property
    def pending(self) -> Proposal | None:
        return self._pending

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Every replica that may be in the ISR, whatever becomes of the proposal under way."""
        members = frozenset(self._state.isr)
        return members if self._pending is None else members | self._pending.broker_ids

    # -- what is heard ----------------------------------------------------------------------------

    def fetched(
        self, follower_id: int, broker_epoch: int, offset: int, leader_end: int, now: float
    ) -> bool:
        """A follower asks for `offset`, so it has all before it; False where that is void."""
        follower = self.followers.get(follower_id)
        if follower is None or broker_epoch < follower.broker_epoch:
            # Not a replica, or a request of an earlier life that comes late.
            return False
        assert offset <= leader_end, "a follower beyond the leader's end is not in its range"
        follower.fetched(broker_epoch, offset, leader_end, now)
        return True

    def appended(self, end_before: int, now: float) -> None:
        """The leader's log grew: who had all of it until now is behind from now on only."""
        for follower in self.followers.values():
            if follower.end >= end_before:
                follower.caught_up_at = now

    def updated(self, state: PartitionState, now: float) -> None:
        """The metadata says something newer of the partition, in the same leader epoch."""
        assert state.leader_epoch == self._state.leader_epoch, "another epoch, another object"
        if state.partition_epoch <= self._state.partition_epoch:
            return
        for removed in {*self._state.isr} - {*state.isr, self._local_id}:
            # What it fetched before does not get it in again: it may have lost its disk.
            self.followers[removed] = Follower(caught_up_at=now)
        # It may be the proposal's own outcome or somebody else's doing: the proposal is void.
        self._state, self._pending = state, None
        for replica in state.replicas:
            if replica != self._local_id and replica not in self.followers:
                self.followers[replica] = Follower(caught_up_at=now)
        for gone in [each for each in self.followers if each not in state.replicas]:
            # If it comes back, it must show itself again.
            del self.followers[gone]

    def answered(self, proposal: Proposal, decided: PartitionState | None, now: float) -> None:
        """The controller's answer: the new state, or None where nothing was done for certain."""
        if proposal is not self._pending:
            return
        if decided is None:
            self._pending = None
        elif decided.leader_epoch == self._state.leader_epoch:
            self.updated(decided, now)
        # Else it was done and a new epoch has begun with it: this one ends with the metadata, and
        # until then those count who may lead in the next.

    # -- what follows -----------------------------------------------------------------------------

    def advance(self, own_end: int, min_isr: int, look: Look) -> bool:
        """Move the watermark as far as it may go; whether it moved. `own_end` is what this broker
        itself may count: on a topic that syncs, what it has synced."""
        # Where others are eligible to lead, the controller goes by a minimum that is not reached:
        # this broker may have yet to hear of it, and those must not lack what is committed.
        if len(self._state.isr) < min_isr or self._state.elr:
            return False
        end = own_end
        counted = self.maximal_isr if self.followers else ()
        for replica, follower in self.followers.items():
            if replica in counted or (
                self._may_join(replica, follower, look) and not look.lags(follower)
            ):
                end = min(end, follower.end)
        if end <= self._high_watermark:
            return False
        self._high_watermark = end
        return True

    def propose(self, look: Look, own_epoch: int) -> Proposal | None:
        """The next change of the ISR, which is then under way until it is answered."""
        if self._pending is not None:
            return None
        members = [
            replica
            for replica in self._state.isr
            if replica == self._local_id or not look.lags(self.followers[replica])
        ]
        for replica, follower in self.followers.items():
            joins = replica not in self._state.isr and self._may_join(replica, follower, look)
            # Who is behind for too long would be proposed for removal next, and so on for ever.
            if joins and not look.lags(follower):
                members.append(replica)
        if set(members) == set(self._state.isr):
            return None
        self._pending = Proposal(
            self._state.leader_epoch,
            self._state.partition_epoch,
            tuple(Member(each, self._epoch_of(each, own_epoch, look)) for each in members),
        )
        return self._pending

    def _epoch_of(self, replica: int, own_epoch: int, look: Look) -> int:
        if replica == self._local_id:
            return own_epoch
        epoch = self.followers[replica].broker_epoch
        # A member that has yet to fetch stays one in the life that the metadata knows.
        return look.eligible.get(replica, UNKNOWN) if epoch == UNKNOWN else epoch

    def _may_join(self, replica: int, follower: Follower, look: Look) -> bool:
        return (
            follower.end >= self._high_watermark
            and follower.end >= self._epoch_start
            and follower.end != UNKNOWN
            and follower.log_start >= self.log_start_min
            and look.eligible.get(replica) == follower.broker_epoch
        )
