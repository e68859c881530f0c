"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup and Heartbeat.

Such a member has an epoch, which it takes for its generation, and a target, as every member has. It
learns by its heartbeats that it must join again (REBALANCE_IN_PROGRESS); in doing so it says what
it owns, and gets what it may own by the sync that follows. There is no leader and nobody waits:
what the member has to give back it leaves out at its next join. A member that does not join again,
or does not sync, within its rebalance time-out is fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import UUID

from tidelog.cluster.image import MetadataImage
from tidelog.coordinators.groups.classic.group import CONSUMER_PROTOCOL_TYPE
from tidelog.coordinators.groups.classic.joins import VERSION_WITH_PROMISED_IDS, Join
from tidelog.coordinators.groups.consumer.group import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    by_name,
)
from tidelog.coordinators.groups.consumer.heartbeats import TOPIC_NAMES_MAX
from tidelog.coordinators.groups.consumer.rebalancing import Rebalancing, Step
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.host.random import Random
from tidelog.protocol.consumer_protocol import (
    Subscription,
    decode_subscription,
    encode_assignment,
)
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@dataclass(slots=True)
class Takeover:
    """A static member of the classic protocol takes the place of the last one of the newer."""

    step: Step
    joined: ConsumerMember
    must_rebalance: bool


class Downgrades(Protocol):
    """Makes a classic group of a consumer group."""

    def may_take_over(self, group: ConsumerGroup, replaced: ConsumerMember) -> bool: ...

    def take_over(self, takeover: Takeover) -> Outcome: ...


@dataclass(slots=True, eq=False)
class ClassicMembers:
    """Members of the classic protocol in one shard's consumer groups."""

    _rebalancing: Rebalancing
    _random: Random
    _image: Callable[[], MetadataImage]
    _downgrades: Downgrades

    # JoinGroup

    def join(self, group: ConsumerGroup, join: Join) -> Outcome:
        """A checked request."""
        request = join.request
        is_new = not request.member_id
        member_id = request.member_id or str(self._random.uuid())
        self._rebalancing.check_room(group, member_id, request.group_instance_id)
        self._check_protocols(group, join)
        if (
            is_new
            and request.group_instance_id is None
            and join.version >= VERSION_WITH_PROMISED_IDS
        ):
            return Outcome(
                JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            )
        subscription = _subscription(join)
        step = self._rebalancing.begin(group, join.caller, join.now)
        step.owned = self._by_id(subscription.owned)
        before = self._find(step, join, member_id)
        described = _described(before, join, subscription)
        replaced = step.replaced
        if replaced is not None and self._downgrades.may_take_over(group, replaced):
            return self._join_as_last(step, before, described)
        after = self._rebalancing.advance(step, before, described)

        def appended() -> None:
            self._rebalancing.appended(step, described, after)
            self._rebalancing.members.await_sync(group.group_id, after, join.now)

        return Outcome(_joined(after), step.records, appended)

    def _check_protocols(self, group: ConsumerGroup, join: Join) -> None:
        names = [name for name, _ in join.protocols]
        if join.request.protocol_type != CONSUMER_PROTOCOL_TYPE or not group.knows_protocol(names):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Member {join.request.member_id}'s protocols are not supported.",
            )

    def _find(self, step: Step, join: Join, member_id: str) -> ConsumerMember:
        group, instance_id = step.group, join.request.group_instance_id
        if instance_id is None:
            if step.owned and member_id not in group.members:
                # It was fenced and does not know it: what it owned may be somebody else's.
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            return group.members.get(member_id) or ConsumerMember(member_id)
        if join.request.member_id:
            return group.require_static(instance_id, member_id)
        held = group.static_member(instance_id)
        if held is None:
            return ConsumerMember(member_id)
        return self._rebalancing.replace_static(step, held, member_id)

    def _join_as_last(
        self, step: Step, before: ConsumerMember, described: ConsumerMember
    ) -> Outcome:
        """With this member the group becomes classic, and has the target for its assignment."""
        group, replaced = step.group, step.replaced
        assert replaced is not None
        epoch = self._rebalancing.describe(step, before, described)
        is_stale = epoch > group.target_epoch
        # Whoever does not own its target yet would not hear of it in a classic group at rest.
        must_rebalance = is_stale or not all(
            each.is_reconciled_to(group.target_epoch)
            for each in group.members.values()
            if each is not replaced
        )
        after = described
        if not is_stale:
            target = group.targets.get(replaced.member_id, {})
            after = self._rebalancing.reconcile(
                step, before, described, (group.target_epoch, target)
            )
        outcome = self._downgrades.take_over(Takeover(step, after, must_rebalance))
        outcome.answer = _joined(after)
        return outcome

    def _by_id(self, owned: Mapping[str, list[int]]) -> dict[UUID, frozenset[int]]:
        topics = self._image().topics
        return {
            topics[name].topic_id: frozenset(partitions)
            for name, partitions in owned.items()
            if name in topics
        }

    # SyncGroup

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, now: Now) -> Outcome:
        member = group.require_classic(request.member_id, request.group_instance_id)
        assert member.classic is not None
        _check_generation(member, request.generation_id)
        protocol, metadata = member.classic.protocols[0]
        for given, known in (
            (request.protocol_type, CONSUMER_PROTOCOL_TYPE),
            (request.protocol_name, protocol),
        ):
            if given is not None and given != known:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The member uses {known}, not {given}."
                )
        members = self._rebalancing.members
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            members.await_rejoin(group.group_id, member, now)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "The member must join again.")
        members.synced(group.group_id, member.member_id)
        members.renew_session(group.group_id, member, now)
        assigned = by_name(member.assigned, self._image())
        return Outcome(
            SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=encode_assignment(assigned, int.from_bytes(metadata[:2])),
            )
        )

    # Heartbeat

    def heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest, now: Now
    ) -> HeartbeatResponse:
        member = group.require_classic(request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        members = self._rebalancing.members
        members.renew_session(group.group_id, member, now)
        must_rejoin = (
            member.epoch < group.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting(member))
        )
        if not must_rejoin:
            return HeartbeatResponse()
        members.await_rejoin(group.group_id, member, now)
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation} is not equal to the member epoch"
            f" {member.epoch} of member {member.member_id}.",
        )


def _subscription(join: Join) -> Subscription:
    """All protocols of a member have the same."""
    try:
        subscription = decode_subscription(join.protocols[0][1])
    except ProtocolError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
    if len(subscription.topics) > TOPIC_NAMES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"The subscription has {len(subscription.topics)} topics; at most {TOPIC_NAMES_MAX}"
            " are taken.",
        )
    return subscription


def _described(member: ConsumerMember, join: Join, subscription: Subscription) -> ConsumerMember:
    request = join.request
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack or member.rack_id,
        client_id=join.caller.client_id,
        client_host=join.caller.client_host,
        topics=frozenset(subscription.topics),
        pattern="",
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        classic=ClassicMetadata(request.session_timeout_ms, tuple(join.protocols)),
    )


def _joined(member: ConsumerMember) -> JoinGroupResponse:
    assert member.classic is not None
    return JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.protocols[0][0],
        member_id=member.member_id,
    )
