"""A classic group as data: members, generation, state, and how a protocol is chosen.

States and their successors are Kafka's. What is here only looks at the group or changes one thing
about it; what a request means is in `joins` and `members`. Persisted are generation, protocol,
leader and, for each member, identity, subscription and assignment; all else is volatile and starts
anew when the group is loaded: who waits for a join or a sync, who was promised a member id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final

from tidelog.coordinators.groups.records import GroupMetadataValue, MemberMetadata
from tidelog.coordinators.groups.timers import Timer, TimerKind
from tidelog.coordinators.outcome import Reply
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.consumer_protocol import subscribed_topics
from tidelog.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tidelog.protocol.messages.sync_group import SyncGroupResponse

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_GENERATION_MAX: Final = 2**31 - 1
_HISTORY_MAX: Final = 8


class GroupState(StrEnum):
    """The states of a classic group, under the names that clients are shown."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_S = GroupState
# Which states may follow a state. A consumer group that becomes a classic one goes from Empty to
# Stable; a static member that comes back under a new id goes from Stable to Stable.
SUCCESSORS: Final[dict[GroupState, set[GroupState]]] = {
    _S.EMPTY: {_S.PREPARING_REBALANCE, _S.STABLE, _S.DEAD},
    _S.PREPARING_REBALANCE: {_S.COMPLETING_REBALANCE, _S.EMPTY, _S.DEAD},
    _S.COMPLETING_REBALANCE: {_S.STABLE, _S.PREPARING_REBALANCE, _S.DEAD},
    _S.STABLE: {_S.PREPARING_REBALANCE, _S.STABLE, _S.DEAD},
    _S.DEAD: set(),
}
# Besides, while a group is loaded: rebalances are not written down, only what came of them.
LOADED_SUCCESSORS: Final = {_S.EMPTY: {_S.EMPTY}, _S.STABLE: {_S.EMPTY}}


@dataclass(slots=True)
class Member:
    """One member. `protocols` are (name, metadata) in the order of the member's preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    # Not yet part of any generation: the session of such a member runs while it waits to join.
    is_new: bool = False
    join_reply: Reply[JoinGroupResponse] | None = None
    sync_reply: Reply[SyncGroupResponse] | None = None
    # Kept, since every heartbeat wants it.
    session_timer: Timer | None = None

    def metadata_for(self, protocol: str | None) -> bytes:
        """The subscription under a protocol; empty where the member does not know it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def fail_waits(self, error: KafkaError) -> None:
        """Tell whoever waits on the member's behalf."""
        for reply in (self.join_reply, self.sync_reply):
            if reply is not None:
                reply.fail(error)

    def recorded(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        """The member as it is written down."""
        return MemberMetadata(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata_for(protocol),
            assignment,
        )


@dataclass(slots=True)
class ClassicGroup:
    """One group; without a protocol type it only keeps offsets."""

    kind: ClassVar[str] = "classic"
    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str | None = None
    # Wall-clock time of the last change of state; -1 where no record told it.
    state_timestamp_ms: int = -1
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    # Volatile: ids that were handed out and not used yet, and who has not fetched its assignment.
    promised_ids: set[str] = field(default_factory=set)
    awaited_syncs: set[str] = field(default_factory=set)
    is_first_rebalance: bool = False
    # How much longer the first rebalance may wait for more members, and whether any came.
    delay_left_ms: int = 0
    joined_in_delay: bool = False
    # How many members wait for their join to end, and how many know each protocol: kept up to
    # date, since counting at each of n joins would take n² steps.
    joining_count: int = 0
    protocol_counts: Counter[str] = field(default_factory=Counter)
    # Topics of the generation's subscriptions; None where they are not known.
    topics: frozenset[str] | None = None
    _history: list[str] = field(default_factory=list)

    # State

    def enter(self, state: GroupState, reason: str, *, is_loading: bool = False) -> None:
        """Change state; one that may not follow is a fault of ours, not of a client."""
        may_follow = state in SUCCESSORS[self.state] or (
            is_loading and state in LOADED_SUCCESSORS.get(self.state, ())
        )
        assert may_follow, (
            f"group {self.group_id!r} cannot go from {self.state} to {state} ({reason});"
            f" before: {'; '.join(self._history)}"
        )
        self._history.append(f"{self.state}->{state} {reason}")
        del self._history[:-_HISTORY_MAX]
        self.state = state

    def end(self, error: KafkaError) -> None:
        """The group is no more, or no longer here: tell whoever waits."""
        for member in self.members.values():
            member.fail_waits(error)
        self.enter(GroupState.DEAD, error.code.name)

    def dismiss(self, error: KafkaError) -> None:
        """Whoever waits for a join or a sync is told to come again; the group stays."""
        for member in self.members.values():
            sync, member.sync_reply = member.sync_reply, None
            for reply in (self.end_join(member), sync):
                if reply is not None:
                    reply.fail(error)

    def timers(self) -> Iterator[Timer]:
        """All deadlines that the group may have."""
        yield Timer(TimerKind.CLASSIC_JOIN, self.group_id)
        yield Timer(TimerKind.CLASSIC_SYNC, self.group_id)
        for member_id in (*self.members, *self.promised_ids):
            yield Timer(TimerKind.CLASSIC_SESSION, self.group_id, member_id)

    @property
    def knows_subscriptions(self) -> bool:
        """Whether the members are consumers, whose metadata tell their topics."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the members consume the topic, as far as anybody but they can tell."""
        if not self.knows_subscriptions or self.state is GroupState.EMPTY:
            return False
        return self.topics is None or topic in self.topics

    @property
    def is_idle(self) -> bool:
        """Whether nothing but its offsets keeps the group."""
        return self.state is GroupState.EMPTY and not self.promised_ids

    def offsets_unused_since_ms(self, topic: str) -> int | None:
        """Since when nobody consumes a topic, -1 for never; None while somebody may do so."""
        if self.protocol_type is None:
            return -1
        if self.state is GroupState.EMPTY:
            return self.state_timestamp_ms
        stable = self.state is GroupState.STABLE and self.knows_subscriptions
        return -1 if stable and not self.is_subscribed_to(topic) else None

    # Members

    def add(self, member: Member) -> None:
        assert member.member_id not in self.members, member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self.protocol_counts.update({name for name, _ in member.protocols})
        self.promised_ids.discard(member.member_id)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member | None:
        member = self.members.pop(member_id, None)
        self.promised_ids.discard(member_id)
        self.awaited_syncs.discard(member_id)
        if member is None:
            return None
        if member.join_reply is not None:
            self.joining_count -= 1
        self.protocol_counts.subtract({name for name, _ in member.protocols})
        if member.instance_id is not None:
            self.instances.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        assert 0 <= self.joining_count <= len(self.members), self.joining_count
        return member

    def change_protocols(self, member: Member, protocols: list[tuple[str, bytes]]) -> None:
        self.protocol_counts.subtract({name for name, _ in member.protocols})
        member.protocols = protocols
        self.protocol_counts.update({name for name, _ in protocols})

    def await_join(self, member: Member, reply: Reply[JoinGroupResponse]) -> None:
        """The member waits for the rebalance to end; a wait of before is told to give up."""
        if member.join_reply is None:
            self.joining_count += 1
        else:
            member.join_reply.fail(KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "joined again"))
        member.join_reply = reply

    def end_join(self, member: Member) -> Reply[JoinGroupResponse] | None:
        """Who is to be told that the member's join has ended, if anybody waits."""
        reply, member.join_reply = member.join_reply, None
        if reply is not None:
            self.joining_count -= 1
        assert self.joining_count >= 0
        return reply

    def require(self, member_id: str, instance_id: str | None) -> Member:
        """The member that a request names; KafkaError where it is none, or was replaced."""
        if instance_id is not None:
            current = self.instances.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"instance {instance_id} is member {current} now",
                )
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def require_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION,
                f"generation {generation} is not the current one, {self.generation}",
            )

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    @property
    def has_everybody_joined(self) -> bool:
        return not self.promised_ids and self.joining_count == len(self.members)

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader takes part in the rebalance; False where nobody does."""
        leader = None if self.leader_id is None else self.members.get(self.leader_id)
        if leader is not None and leader.join_reply is not None:
            return True
        for member in self.members.values():
            if member.join_reply is not None:
                self.leader_id = member.member_id
                return True
        return False

    # Protocols

    def accepts(self, protocol_type: str, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Whether a member that knows these protocols can be part of the group."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        if protocol_type != self.protocol_type:
            return False
        return any(self._is_common(name) for name, _ in protocols)

    def _is_common(self, protocol: str) -> bool:
        return self.protocol_counts[protocol] == len(self.members)

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that every member knows."""
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if self._is_common(name))] += 1
        return votes.most_common(1)[0][0]

    @property
    def next_generation(self) -> int:
        return 1 if self.generation == _GENERATION_MAX else self.generation + 1

    def begin_generation(self) -> None:
        """Everybody who stays has joined: number the generation and choose its protocol."""
        assert self.leader_id in self.members, self.leader_id
        self.generation = self.next_generation
        self.protocol = self.select_protocol()
        self.note_subscriptions()
        self.awaited_syncs = set(self.members)
        self.is_first_rebalance = False
        self.enter(GroupState.COMPLETING_REBALANCE, f"generation {self.generation}")

    def note_subscriptions(self) -> None:
        self.topics = None
        if self.knows_subscriptions:
            self.topics = subscribed_topics(
                each.metadata_for(self.protocol) for each in self.members.values()
            )

    # Answers and records

    def join_response(self, member: Member) -> JoinGroupResponse:
        """The current generation as one member is told of it."""
        leads = member.member_id == self.leader_id
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol or "",
            leader=self.leader_id or "",
            member_id=member.member_id,
            members=self.members_for_leader() if leads else [],
        )

    def members_for_leader(self) -> list[JoinGroupResponseMember]:
        return [
            JoinGroupResponseMember(
                each.member_id, each.instance_id, each.metadata_for(self.protocol)
            )
            for each in self.members.values()
        ]

    def sync_response(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )

    def record_value(self, now_wall_ms: int, assignments: dict[str, bytes]) -> GroupMetadataValue:
        """This generation with the given assignments, as it is written down."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader_id,
            current_state_timestamp=now_wall_ms,
            members=[
                each.recorded(self.protocol, assignments.get(each.member_id, b""))
                for each in self.members.values()
            ],
        )
