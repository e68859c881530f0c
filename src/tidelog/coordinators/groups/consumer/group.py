"""A consumer group (KIP-848) as data: its epochs, its members and what they own.

The group's epoch rises when a member comes, goes or changes its subscription, and when a topic that
is subscribed to changes. For each epoch an assignor computes a target; members are brought to it
one by one (`reconciliation`). All of this is kept in records; what is volatile is only which
metadata the group has been held against. A member is a value: it is replaced, never changed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import ClassVar, Final
from uuid import UUID

from tidelog.cluster.image import MetadataImage, TopicImage
from tidelog.coordinators.groups.consumer.assignors import AssignableMember, Assignor, Partitions
from tidelog.coordinators.groups.consumer.expressions import Found, ResolvedPattern
from tidelog.coordinators.groups.timers import Timer, TimerKind
from tidelog.errors import ErrorCode, KafkaError

# Partitions by topic, each with the epoch in which its owner got it.
Owned = Mapping[UUID, Mapping[int, int]]

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
# Of a static member that went and will be back.
STATIC_LEAVE_EPOCH: Final = -2
_NEVER_MS: Final = -(1 << 62)


class MemberState(IntEnum):
    """How far a member is on the way to its target; the numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class ConsumerGroupState(StrEnum):
    """The states of a group, under the names that clients are shown."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(slots=True)
class PatternMatching:
    """Which topics a group's patterns were last matched against, and when; then all of them.

    `pieces` is what is still to be matched, `found` what is still to be written; until all of it
    is, `matched` has the topics.
    """

    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    version: int = 0
    at_ms: int = _NEVER_MS
    in_full_ms: int = _NEVER_MS
    pieces: Generator[None, None, Found] | None = None
    found: Found | None = None
    matched: Mapping[str, TopicImage] = field(default_factory=dict)
    may_describe: Callable[[str], bool] = lambda _: True


@dataclass(slots=True, frozen=True)
class ClassicMetadata:
    """What a member of the classic protocol has besides: it says itself how often it is heard of.

    `protocols` are (name, metadata) in the order of the member's preference.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(slots=True, frozen=True)
class ConsumerMember:
    """One member: how it described itself, and what it owns."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    # Given to somebody else, and not given back yet.
    revoking: Owned = field(default_factory=dict)
    # Empty where the member names none.
    pattern: str = ""
    # None of a member that uses the consumer protocol.
    classic: ClassicMetadata | None = None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def held(self) -> dict[UUID, set[int]]:
        """What the member owns, with what it has yet to give back."""
        held = {topic_id: set(partitions) for topic_id, partitions in self.assigned.items()}
        for topic_id, partitions in self.revoking.items():
            held.setdefault(topic_id, set()).update(partitions)
        return held

    def assignment_epoch(self, topic_id: UUID, partition: int) -> int | None:
        """Since which epoch the member owns a partition; None where it does not."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


@dataclass(slots=True)
class ConsumerGroup:
    """One group."""

    kind: ClassVar[str] = "consumer"
    protocol_type: ClassVar[str] = "consumer"
    group_id: str
    # As in Kafka a group begins at 1, so its first member comes into epoch 2.
    epoch: int = 1
    metadata_hash: int = 0
    target_epoch: int = 0
    # When the target was computed; for an empty group, since when it is empty.
    target_timestamp_ms: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    # Who owns a partition or has yet to give it back.
    owners: dict[UUID, dict[int, str]] = field(default_factory=dict)
    # How many members name a topic; patterns that match it count as one each.
    subscribers: Counter[str] = field(default_factory=Counter)
    pattern_subscribers: Counter[str] = field(default_factory=Counter)
    resolved: dict[str, ResolvedPattern] = field(default_factory=dict)
    # How many members use the classic protocol, and how many of them know each assignor.
    classic_count: int = 0
    classic_protocols: Counter[str] = field(default_factory=Counter)
    # Volatile: the metadata that the hash was last held against.
    seen_image: MetadataImage | None = None
    # Volatile too.
    matching: PatternMatching = field(default_factory=PatternMatching, compare=False)

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(each.is_reconciled_to(self.target_epoch) for each in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        return subscription(member, self.resolved)

    def is_subscribed_to(self, topic: str) -> bool:
        return self.subscribers[topic] > 0

    def end(self, error: KafkaError) -> None:
        """The group is no more, or no longer here; nobody waits for one."""

    def timers(self) -> Iterator[Timer]:
        """All deadlines that the group may have."""
        yield Timer(TimerKind.CONSUMER_PATTERNS, self.group_id)
        for member_id in self.members:
            yield from member_timers(self.group_id, member_id)

    @property
    def knows_subscriptions(self) -> bool:
        return True

    @property
    def is_idle(self) -> bool:
        """Whether nothing but its offsets keeps the group."""
        return not self.members

    def offsets_unused_since_ms(self, topic: str) -> int | None:
        """Since when nobody consumes a topic, -1 for never; None while somebody does."""
        if not self.members:
            return self.target_timestamp_ms
        return None if self.is_subscribed_to(topic) else -1

    # Looking for members

    def require(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.instances.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def require_static(self, instance_id: str, member_id: str) -> ConsumerMember:
        """The member of an instance; KafkaError where another id has it, or none."""
        member = self.static_member(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by"
                f" member {member.member_id}.",
            )
        return member

    def require_classic(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member that a request of the classic protocol names."""
        if instance_id is None:
            member = self.require(member_id)
        else:
            member = self.require_static(instance_id, member_id)
        if member.classic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} does not use the classic protocol.",
            )
        return member

    def knows_protocol(self, names: Iterable[str]) -> bool:
        """Whether all members of the classic protocol know one of these assignors."""
        return any(self.classic_protocols[name] == self.classic_count for name in names)

    def is_waiting(self, member: ConsumerMember) -> bool:
        """Whether somebody else still has what the member is to own."""
        own = (member.member_id,)
        return any(
            not self.is_free(topic_id, partition, own)
            for topic_id, partitions in self.targets.get(member.member_id, {}).items()
            for partition in partitions
        )

    def is_free(self, topic_id: UUID, partition: int, member_ids: Iterable[str]) -> bool:
        """Whether nobody but these owns a partition."""
        owner = self.owners.get(topic_id, {}).get(partition)
        return owner is None or owner in member_ids

    # Replay

    def put(self, member: ConsumerMember) -> None:
        """The member is this from now on."""
        self._unlink(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self.subscribers.update(member.topics)
        if member.pattern:
            self.pattern_subscribers[member.pattern] += 1
        if member.classic is not None:
            self.classic_count += 1
            self.classic_protocols.update({name for name, _ in member.classic.protocols})
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                owners = self.owners.setdefault(topic_id, {})
                owners.update(dict.fromkeys(partitions, member.member_id))

    def remove(self, member_id: str) -> None:
        self._unlink(member_id)
        self.members.pop(member_id, None)
        self.targets.pop(member_id, None)

    def _unlink(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
            del self.instances[member.instance_id]
        _uncount(self.subscribers, member.topics)
        if member.pattern:
            _uncount(self.pattern_subscribers, (member.pattern,))
        if member.classic is not None:
            self.classic_count -= 1
            _uncount(self.classic_protocols, {name for name, _ in member.classic.protocols})
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                owners = self.owners.get(topic_id, {})
                for partition in partitions:
                    # A compacted log may tell of the new owner before the old one lets go.
                    if owners.get(partition) == member_id:
                        del owners[partition]
                if not owners:
                    self.owners.pop(topic_id, None)

    def resolve(self, pattern: str, resolved: ResolvedPattern | None) -> None:
        """The pattern matches this from now on; None where nobody names it any more."""
        before = self.resolved.pop(pattern, None)
        if before is not None:
            _uncount(self.subscribers, before.topics)
        if resolved is not None:
            self.resolved[pattern] = resolved
            self.subscribers.update(resolved.topics)


def _uncount(counts: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]


def subscription(member: ConsumerMember, resolved: Mapping[str, ResolvedPattern]) -> frozenset[str]:
    """The topics that a member names, and those that its pattern was found to match."""
    found = resolved.get(member.pattern) if member.pattern else None
    return member.topics if found is None else member.topics | found.topics


def member_timers(group_id: str, member_id: str) -> Iterator[Timer]:
    """All deadlines that a member may have."""
    yield Timer(TimerKind.CONSUMER_SESSION, group_id, member_id)
    yield Timer(TimerKind.CONSUMER_REVOCATION, group_id, member_id)
    yield Timer(TimerKind.CONSUMER_REJOIN, group_id, member_id)
    yield Timer(TimerKind.CONSUMER_SYNC, group_id, member_id)


def subscribed_ids(topics: Iterable[str], image: MetadataImage) -> frozenset[UUID]:
    """The ids of those topics that exist."""
    return frozenset(image.topics[name].topic_id for name in topics if name in image.topics)


def by_name(partitions: Mapping[UUID, Iterable[int]], image: MetadataImage) -> dict[str, list[int]]:
    """Partitions under the names of their topics; those of deleted topics are left out."""
    names = image.topic_names
    return {
        names[topic_id]: sorted(indexes)
        for topic_id, indexes in partitions.items()
        if topic_id in names
    }


def hash_topics(topics: Iterable[str], image: MetadataImage) -> int:
    """What an assignment of these topics depends on, as a number of 64 bits; 0 for none."""
    digest = None
    for name in sorted(topics):
        topic = image.topics.get(name)
        if topic is None:
            continue
        digest = digest or hashlib.blake2b(digest_size=8)
        digest.update(topic.topic_id.bytes)
        digest.update(len(topic.partitions).to_bytes(4))
    return 0 if digest is None else int.from_bytes(digest.digest(), signed=True)


def compute_target(
    members: Mapping[str, ConsumerMember],
    targets: Mapping[str, Partitions],
    resolved: Mapping[str, ResolvedPattern],
    image: MetadataImage,
    assignor: Assignor,
) -> dict[str, Partitions]:
    """What each member is to own, given what it was to own before."""
    # Most members have a subscription in common.
    subscriptions: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
    for each in members.values():
        if (each.topics, each.pattern) not in subscriptions:
            ids = subscribed_ids(subscription(each, resolved), image)
            subscriptions[each.topics, each.pattern] = ids
    assignable = {
        member_id: AssignableMember(
            each.instance_id,
            subscriptions[each.topics, each.pattern],
            targets.get(member_id, {}),
        )
        for member_id, each in members.items()
    }
    counts = {
        topic_id: len(image.topics[image.topic_names[topic_id]].partitions)
        for ids in subscriptions.values()
        for topic_id in ids
    }
    return assignor(assignable, counts)


def preferred_assignor(members: Iterable[ConsumerMember]) -> str | None:
    """The assignor that most members ask for, if any does."""
    votes = Counter(each.server_assignor for each in members if each.server_assignor)
    return min(votes, key=lambda each: (-votes[each], each)) if votes else None
