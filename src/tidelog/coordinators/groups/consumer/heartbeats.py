"""ConsumerGroupHeartbeat: a member joins, stays or changes its mind. See `rebalancing`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from tidelog.cluster.image import MetadataImage
from tidelog.coordinators.groups.beats import ConsumerBeat
from tidelog.coordinators.groups.consumer.group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerMember,
)
from tidelog.coordinators.groups.consumer.rebalancing import Rebalancing, Step
from tidelog.coordinators.groups.settings import (
    LABEL_BYTES_MAX,
    REBALANCE_TIMEOUT_MIN_MS,
    Caller,
    GroupSettings,
    check_length,
    own_setting_ms,
)
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.random import Random
from tidelog.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_VERSION_WITH_OWN_IDS = 1
# All of them are looked up, hashed and written at a stretch, while everything else waits.
TOPIC_NAMES_MAX = 10_000


class ConsumerHeartbeats:
    """The heartbeats of one shard's groups."""

    def __init__(self, settings: GroupSettings, rebalancing: Rebalancing, random: Random) -> None:
        self._settings = settings
        self._rebalancing = rebalancing
        self._random = random

    # The request by itself

    def check(self, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        """KafkaError for a request that makes no sense, whatever the group."""
        epoch = request.member_epoch
        has_own_id = version >= _VERSION_WITH_OWN_IDS or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
        if has_own_id:
            _require(bool(request.member_id), "MemberId can't be empty.")
        _require(bool(request.group_id), "GroupId can't be empty.")
        _require(request.instance_id != "", "InstanceId can't be empty.")
        _require(request.rack_id != "", "RackId can't be empty.")
        check_length("RackId", request.rack_id, LABEL_BYTES_MAX)
        _require(epoch >= STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
        if epoch == JOIN_EPOCH:
            self._check_join(request)
        elif epoch == STATIC_LEAVE_EPOCH:
            _require(request.instance_id is not None, "InstanceId can't be null.")
        assignors = self._settings.consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in assignors:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. Supported"
                f" assignors: {', '.join(assignors)}.",
            )
        names = request.subscribed_topic_names or ()
        _require(
            len(names) <= TOPIC_NAMES_MAX,
            f"SubscribedTopicNames has {len(names)} names; at most {TOPIC_NAMES_MAX} are taken.",
        )
        limit = self._settings.member_metadata_bytes_max
        _require(
            sum(map(len, names)) <= limit, f"SubscribedTopicNames are longer than {limit} bytes."
        )

    def _check_join(self, request: ConsumerGroupHeartbeatRequest) -> None:
        check_length("GroupId", request.group_id)
        check_length("MemberId", request.member_id)
        check_length("InstanceId", request.instance_id, LABEL_BYTES_MAX)
        _require(
            request.rebalance_timeout_ms != -1,
            "RebalanceTimeoutMs must be provided in first request.",
        )
        _require(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
        _require(
            request.subscribed_topic_names is not None
            or request.subscribed_topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
            " (re-)joining.",
        )

    # The request and its group

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        group: ConsumerGroup,
        caller: Caller,
        now: Now,
    ) -> Outcome:
        """A checked request of a member that joins or stays."""
        self._rebalancing.check_room(group, request.member_id, request.instance_id)
        step = self._rebalancing.begin(group, caller, now)
        step.owned = _owned(request)
        before = self._find(step, request)
        described = _described(before, request, caller)
        after = self._rebalancing.advance(step, before, described)

        def appended() -> None:
            self._rebalancing.appended(step, described, after)
            if before.classic is not None:
                self._rebalancing.members.left_classic(group.group_id, after.member_id)

        return Outcome(self._answer(step, request, before, after), step.records, appended)

    def hear(self, group: ConsumerGroup, beat: ConsumerBeat, now: Now) -> bool:
        """As `heartbeat` for a request that tells nothing, of a member that is where it is to be.

        False where the answer may be another one: then nothing has changed.
        """
        member, image = group.members.get(beat.member_id), self._rebalancing.image()
        if (
            member is None
            or member.epoch != beat.generation
            or member.classic is not None
            or (member.client_id, member.client_host) != (beat.client_id, beat.client_host)
            or not member.is_reconciled_to(group.target_epoch)
            or group.epoch != group.target_epoch
            or group.seen_image is not image
            or group.pattern_subscribers
            or beat.instance_id not in (None, member.instance_id)
            or (
                beat.instance_id is not None
                and group.instances.get(beat.instance_id) != beat.member_id
            )
            or beat.interval_ms != self.interval_ms(image, group.group_id)
        ):
            return False
        self._rebalancing.members.renew_session(group.group_id, member, now)
        return True

    def interval_ms(self, image: MetadataImage, group_id: str) -> int:
        """How often members are to beat."""
        default_ms = self._settings.consumer_heartbeat_interval_ms
        return own_setting_ms(image, group_id, "consumer.heartbeat.interval.ms", default_ms)

    def _find(self, step: Step, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
        """The member as it is; one that joins as it begins."""
        group, member_id = step.group, request.member_id or str(self._random.uuid())
        if request.instance_id is not None:
            return self._find_static(step, request, member_id)
        if request.member_epoch == JOIN_EPOCH:
            return group.members.get(member_id) or ConsumerMember(member_id)
        member = group.require(member_id)
        _check_epoch(member, request)
        return member

    def _find_static(
        self, step: Step, request: ConsumerGroupHeartbeatRequest, member_id: str
    ) -> ConsumerMember:
        group, instance_id = step.group, request.instance_id
        assert instance_id is not None
        if request.member_epoch != JOIN_EPOCH:
            member = group.require_static(instance_id, member_id)
            _check_epoch(member, request)
            return member
        held = group.static_member(instance_id)
        if held is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        # One of the classic protocol does not say that it goes.
        if held.epoch != STATIC_LEAVE_EPOCH and held.classic is None:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group"
                f" because the instance id is owned by {held.member_id} member.",
            )
        return self._rebalancing.replace_static(step, held, member_id)

    def _answer(
        self,
        step: Step,
        request: ConsumerGroupHeartbeatRequest,
        before: ConsumerMember,
        after: ConsumerMember,
    ) -> ConsumerGroupHeartbeatResponse:
        response = ConsumerGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self.interval_ms(step.image, step.group.group_id),
        )
        is_join = request.member_epoch == JOIN_EPOCH
        if is_join or _is_full(request) or before.assigned != after.assigned:
            response.assignment = Assignment(
                [
                    TopicPartitions(topic_id, sorted(partitions))
                    for topic_id, partitions in after.assigned.items()
                ]
            )
        return response


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request tells all: a client that lost its connection wants all in return."""
    return (
        request.rebalance_timeout_ms != -1
        and request.topic_partitions is not None
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Mapping[UUID, frozenset[int]] | None:
    given = request.topic_partitions
    if given is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in given}


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """A member may be one epoch behind where it did not get our answer, and owns no more."""
    epoch = request.member_epoch
    if epoch == member.epoch:
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _owns_no_more(member, request):
        return
    than = "smaller" if epoch < member.epoch else "greater"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {than} member epoch ({epoch}) than the one known by the"
        f" group coordinator ({member.epoch}). The member must abandon all its partitions and"
        " rejoin.",
    )


def _owns_no_more(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> bool:
    if request.topic_partitions is None:
        return False
    return all(
        partition in member.assigned.get(each.topic_id, {})
        for each in request.topic_partitions
        for partition in each.partitions
    )


def _described(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerMember:
    """The member with what the request says of it; what it leaves out stays."""
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout = request.rebalance_timeout_ms
    if (
        names is None
        and pattern is None
        and timeout == -1
        and request.instance_id in (None, member.instance_id)
        and request.rack_id is None
        and request.server_assignor is None
        and member.classic is None
        and member.client_id == caller.client_id
        and member.client_host == caller.client_host
    ):
        # As nearly all heartbeats are.
        return member
    described = replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=member.topics if names is None else frozenset(names),
        pattern=member.pattern if pattern is None else pattern,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if timeout == -1 else max(timeout, REBALANCE_TIMEOUT_MIN_MS)
        ),
        server_assignor=request.server_assignor or member.server_assignor,
        classic=None,
    )
    return described
