"""A group with members goes from the classic protocol to the newer one, and back.

The first member of the newer protocol makes a consumer group of a classic one: its members keep
their ids, their generation becomes the group's epoch, and what the leader assigned is what they
own. From then on they are served by `consumer.classic_members`. When the last member of the newer
protocol has gone, those who are left go on as a classic group. Both are changes of records: the end
of the one kind, and the other kind whole. So whoever loads the log finds one or the other.

`group.consumer.migration.policy` says what may be done. What could not be carried over is refused:
groups that are not of consumers, bytes that cannot be read, data of the members' own assignors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from tidelog.cluster.image import MetadataImage
from tidelog.coordinators.groups.classic.group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    GroupState,
    Member,
)
from tidelog.coordinators.groups.classic.rebalances import Rebalances
from tidelog.coordinators.groups.consumer.changes import (
    Records,
    current_record,
    group_record,
    group_tombstones,
    member_record,
    member_tombstones,
    target_epoch_record,
    target_record,
)
from tidelog.coordinators.groups.consumer.classic_members import Takeover
from tidelog.coordinators.groups.consumer.group import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    Owned,
    by_name,
    hash_topics,
)
from tidelog.coordinators.groups.consumer.members import Departure
from tidelog.coordinators.groups.records import CoordinatorRecord, GroupMetadataKey
from tidelog.coordinators.groups.settings import GroupSettings
from tidelog.coordinators.groups.table import GroupTable
from tidelog.coordinators.groups.tombstones import group_end
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.protocol.consumer_protocol import (
    Subscription,
    assignment_user_data,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)

_log = logging.getLogger(__name__)

# Their data are notes on the assignment itself, which librdkafka sends along with it. Kafka refuses
# such groups.
_STICKY: Final = frozenset({"sticky", "cooperative-sticky"})


@dataclass(slots=True, eq=False)
class Migration:
    """Moves one shard's groups between the protocols."""

    _groups: GroupTable
    _settings: GroupSettings
    _rebalances: Rebalances
    _image: Callable[[], MetadataImage]

    # From classic to consumer

    def upgrade(self, before: ClassicGroup) -> tuple[ConsumerGroup, Records]:
        """The consumer group that a classic one becomes, and the records that make it so."""
        self._check_upgrade(before)
        group = ConsumerGroup(
            before.group_id, epoch=before.generation, target_epoch=before.generation
        )
        told = [_told(before, each) for each in before.members.values()]
        shares = _Shares(self._image(), before.generation)
        # What the leader assigned counts. Besides, members keep what they have not given back: a
        # cooperative one consumes until its next join what the assignment took away.
        for each in told:
            shares.take(each.member.member_id, each.assignment)
        claims = [shares.take(each.member.member_id, each.subscription.owned) for each in told]
        for each in told:
            member = _upgraded(before, each, shares.of(each.member.member_id))
            group.put(member)
            group.targets[member.member_id] = {
                topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()
            }
        if before.state is GroupState.STABLE and not any(claims):
            # Otherwise nothing is settled, and any target must be a new one.
            group.metadata_hash = hash_topics(group.subscribers, self._image())
        group_id, members = group.group_id, group.members.values()
        records = [
            *group_end(before),
            *(member_record(group_id, each) for each in members),
            group_record(group_id, group.epoch, group.metadata_hash),
            *(target_record(group_id, *each) for each in group.targets.items()),
            target_epoch_record(group_id, group.target_epoch, 0),
            *(current_record(group_id, each) for each in members),
        ]
        _log.info("group becomes consumer group=%s members=%d", group_id, len(group.members))
        return group, records

    def _check_upgrade(self, group: ClassicGroup) -> None:
        if not self._settings.allows_upgrade:
            raise _not_upgraded(group, "online upgrade is disabled.")
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise _not_upgraded(group, "the group does not use the consumer embedded protocol.")
        if len(group.members) > self._settings.consumer_group_size_max:
            raise _not_upgraded(group, "the group size exceeds the consumer group maximum size.")

    # From consumer to classic

    def downgrade(self, departure: Departure) -> Outcome | None:
        """What becomes of the group where only members of the classic protocol are left."""
        group, leaving = departure.group, departure.leaving
        gone = {each.member_id for each in leaving}
        newer = sum(each.classic is None for each in leaving)
        if (
            not newer
            or len(gone) == len(group.members)
            or group.classic_count != len(group.members) - newer
            or not self._may_become_classic(group, len(group.members) - len(gone))
        ):
            return None
        remaining = [each for each in group.members.values() if each.member_id not in gone]
        made = self._classic_group(group, remaining)
        outcome = self._outcome(made, group_tombstones(group), departure.now, rebalances=True)
        outcome.answer = departure.response
        return outcome

    def may_take_over(self, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
        """Whether a classic member in the place of this one makes the group classic."""
        return (
            replaced.classic is None
            and group.classic_count == len(group.members) - 1
            and self._may_become_classic(group, len(group.members))
        )

    def take_over(self, takeover: Takeover) -> Outcome:
        """The static member that joined takes the place of the one before."""
        step, joined = takeover.step, takeover.joined
        group, replaced = step.group, step.replaced
        assert replaced is not None
        members = [each for each in group.members.values() if each is not replaced]
        made = self._classic_group(group, [*members, joined])
        records = [
            *step.records,
            *group_tombstones(group),
            *member_tombstones(group.group_id, joined.member_id),
        ]
        return self._outcome(made, records, step.now, rebalances=takeover.must_rebalance)

    def _may_become_classic(self, group: ConsumerGroup, size: int) -> bool:
        if not self._settings.allows_downgrade:
            _log.info("group stays a consumer group group=%s reason=policy", group.group_id)
            return False
        return size <= self._settings.group_size_max

    def _classic_group(
        self, group: ConsumerGroup, members: Collection[ConsumerMember]
    ) -> ClassicGroup:
        """These members as a classic group, each with what it has not given back yet.

        Kafka writes down what each was to own. Another member of the newer protocol may come
        before they have rebalanced, and would be given what somebody still consumes.
        """
        made = ClassicGroup(group.group_id, generation=group.epoch)
        for each in members:
            made.add(_classic_member(each))
        made.protocol = made.select_protocol()
        for each in members:
            held = by_name(each.held(), self._image())
            member = made.members[each.member_id]
            version = int.from_bytes(member.metadata_for(made.protocol)[:2])
            member.assignment = encode_assignment(held, version)
        return made

    def _outcome(self, made: ClassicGroup, ends: Records, now: Now, *, rebalances: bool) -> Outcome:
        assignments = {each.member_id: each.assignment for each in made.members.values()}
        value = made.record_value(now.wall_ms, assignments)
        if rebalances:
            # Whoever loads a group without a leader knows that it has yet to rebalance.
            value.leader = None
        key = GroupMetadataKey(made.group_id)
        _log.info("group becomes classic group=%s members=%d", made.group_id, len(made.members))

        def appended() -> None:
            group = self._groups.classic(made.group_id)
            assert group is not None, "its record was replayed"
            for member in group.members.values():
                # The record has the metadata of one protocol.
                group.change_protocols(member, made.members[member.member_id].protocols)
                self._rebalances.renew_session(group, member, now)
            if rebalances:
                records = self._rebalances.prepare(group, "no longer a consumer group", now)
                assert not records, "nobody has joined yet"

        return Outcome(None, [*ends, CoordinatorRecord(key, value)], appended)


class _Told(NamedTuple):
    """A member of a classic group, with what its bytes say."""

    member: Member
    subscription: Subscription
    assignment: dict[str, list[int]]


def _told(group: ClassicGroup, member: Member) -> _Told:
    # A member that is about to join may not know the protocol of the generation before.
    metadata = member.metadata_for(group.protocol) or member.protocols[0][1]
    try:
        told = _Told(member, decode_subscription(metadata), decode_assignment(member.assignment))
        user_data = assignment_user_data(member.assignment)
    except ProtocolError as error:
        _log.warning("group not upgraded group=%s reason=%s", group.group_id, error)
        raise _not_upgraded(group, "the embedded consumer protocol is malformed.") from error
    if user_data and group.protocol not in _STICKY:
        raise _not_upgraded(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or"
            " switch to a default assignor before re-attempting the upgrade.",
        )
    return told


class _Shares:
    """Who owns what of the topics that there are; the first to name a partition has it."""

    def __init__(self, image: MetadataImage, epoch: int) -> None:
        self._image = image
        self._epoch = epoch
        # What nobody has named yet, by topic.
        self._free: dict[str, set[int]] = {}
        self._shares: dict[str, dict[UUID, dict[int, int]]] = {}

    def take(self, member_id: str, named: Mapping[str, Iterable[int]]) -> bool:
        """Whether the member got anything."""
        got = False
        for name, partitions in named.items():
            topic = self._image.topics.get(name)
            if topic is None:
                continue
            if name not in self._free:
                self._free[name] = set(range(len(topic.partitions)))
            # A client may name any number: what there is comes first, then the work.
            taken = self._free[name].intersection(partitions)
            if taken:
                self._free[name] -= taken
                share = self._shares.setdefault(member_id, {}).setdefault(topic.topic_id, {})
                share.update(dict.fromkeys(sorted(taken), self._epoch))
                got = True
        return got

    def of(self, member_id: str) -> Owned:
        return self._shares.get(member_id, {})


def _upgraded(group: ClassicGroup, told: _Told, owned: Owned) -> ConsumerMember:
    member, subscription = told.member, told.subscription
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=owned,
        classic=ClassicMetadata(member.session_timeout_ms, tuple(member.protocols)),
    )


def _classic_member(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        CONSUMER_PROTOCOL_TYPE,
        list(member.classic.protocols),
    )


def _not_upgraded(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}",
    )
