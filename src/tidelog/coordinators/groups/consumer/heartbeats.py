"""ConsumerGroupHeartbeat: a member joins, stays, changes its mind, and is moved to its target.

One heartbeat goes through four steps, of which most do nothing: the member is found or made; it is
brought up to date with what the request says; where that or the metadata changes what the group
consumes, the group's epoch rises and a target is computed for it; and the member is taken one step
towards its target (`reconciliation`). Nothing is changed here: the outcome is records.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from tidelog.cluster.image import MetadataImage
from tidelog.coordinators.groups.consumer.assignors import ASSIGNORS, Partitions
from tidelog.coordinators.groups.consumer.changes import (
    Records,
    current_record,
    group_record,
    member_record,
    member_tombstones,
    pattern_tombstone,
    target_epoch_record,
    target_record,
)
from tidelog.coordinators.groups.consumer.group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    compute_target,
    hash_topics,
    preferred_assignor,
    subscribed_ids,
)
from tidelog.coordinators.groups.consumer.members import ConsumerMembers
from tidelog.coordinators.groups.consumer.patterns import Patterns, check_pattern
from tidelog.coordinators.groups.consumer.reconciliation import Goal, reconcile
from tidelog.coordinators.groups.settings import Caller, GroupSettings, own_setting_ms
from tidelog.coordinators.groups.table import GroupTable
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

_log = logging.getLogger(__name__)

_VERSION_WITH_OWN_IDS = 1
# All of them are looked up, hashed and written at a stretch, while everything else waits.
_TOPIC_NAMES_MAX = 10_000


@dataclass(slots=True)
class Beat:
    """One heartbeat in work. `replaced` is who had the instance id before, if anybody."""

    request: ConsumerGroupHeartbeatRequest
    group: ConsumerGroup
    image: MetadataImage
    caller: Caller
    now: Now
    replaced: ConsumerMember | None = None
    records: Records = field(default_factory=list)

    @property
    def is_join(self) -> bool:
        return self.request.member_epoch == JOIN_EPOCH

    @property
    def is_full(self) -> bool:
        """Whether the request tells all: a client that lost its connection wants all in return."""
        request = self.request
        return (
            request.rebalance_timeout_ms != -1
            and request.topic_partitions is not None
            and (
                request.subscribed_topic_names is not None
                or request.subscribed_topic_regex is not None
            )
        )

    def owned(self) -> Mapping[UUID, frozenset[int]] | None:
        given = self.request.topic_partitions
        if given is None:
            return None
        return {each.topic_id: frozenset(each.partitions) for each in given}


class ConsumerHeartbeats:
    """The heartbeats of one shard's groups."""

    def __init__(
        self,
        groups: GroupTable,
        settings: GroupSettings,
        members: ConsumerMembers,
        patterns: Patterns,
        random: Random,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._members = members
        self._patterns = patterns
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
            len(names) <= _TOPIC_NAMES_MAX,
            f"SubscribedTopicNames has {len(names)} names; at most {_TOPIC_NAMES_MAX} are taken.",
        )
        limit = self._settings.member_metadata_bytes_max
        _require(
            sum(map(len, names)) <= limit, f"SubscribedTopicNames are longer than {limit} bytes."
        )

    def _check_join(self, request: ConsumerGroupHeartbeatRequest) -> None:
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
        self._check_room(group, request)
        beat = Beat(request, group, self._patterns.image(), caller, now)
        before = self._find(beat, request.member_id or str(self._random.uuid()))
        described = _described(before, request, caller)
        if described != before:
            beat.records.append(member_record(group.group_id, described))
        has_changed = described.topics != before.topics or described.pattern != before.pattern
        epoch = self._group_epoch(beat, before, described)
        target_epoch, target = self._target(beat, described, epoch)
        after = described
        if has_changed or not described.is_reconciled_to(target_epoch):
            goal = self._goal(beat, described, target_epoch, target)
            goal.has_subscription_changed = has_changed
            after = reconcile(described, goal)
        if after != described:
            beat.records.append(current_record(group.group_id, after))
        return self._outcome(beat, before, described, after)

    def _check_room(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> None:
        limit = self._settings.consumer_group_size_max
        is_known = request.member_id in group.members or request.instance_id in group.instances
        if len(group.members) >= limit and not is_known:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _find(self, beat: Beat, member_id: str) -> ConsumerMember:
        """The member as it is; one that joins as it begins."""
        group, request = beat.group, beat.request
        if request.instance_id is not None:
            return self._find_static(beat, member_id, request.instance_id)
        if beat.is_join:
            return group.members.get(member_id) or ConsumerMember(member_id)
        member = group.require(member_id)
        _check_epoch(member, request)
        return member

    def _find_static(self, beat: Beat, member_id: str, instance_id: str) -> ConsumerMember:
        group = beat.group
        if not beat.is_join:
            member = group.require_static(instance_id, member_id)
            _check_epoch(member, beat.request)
            return member
        held = group.static_member(instance_id)
        if held is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if held.epoch != STATIC_LEAVE_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group"
                f" because the instance id is owned by {held.member_id} member.",
            )
        # It takes over what its predecessor was and owned; nobody else is disturbed.
        member = replace(held, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        beat.replaced = held
        target = group.targets.get(held.member_id, {})
        beat.records += member_tombstones(group.group_id, held.member_id)
        beat.records.append(member_record(group.group_id, member))
        beat.records.append(target_record(group.group_id, member_id, target))
        beat.records.append(current_record(group.group_id, member))
        return member

    # The group's epoch and target

    def _group_epoch(self, beat: Beat, before: ConsumerMember, described: ConsumerMember) -> int:
        """The epoch that the group has after this heartbeat."""
        group = beat.group
        has_changed = before.topics != described.topics
        released: str | None = None
        if before.pattern != described.pattern:
            has_changed |= self._moves_members(group, before.pattern, described.pattern)
            released = self._release(beat, before)
        if not has_changed and group.seen_image is beat.image:
            return group.epoch
        topics = group.subscribers.copy()
        if before.member_id in group.members or beat.replaced is not None:
            topics.subtract(before.topics)
        if released in group.resolved:
            topics.subtract(group.resolved[released].topics)
        topics.update(described.topics)
        metadata_hash = hash_topics((name for name in topics if topics[name] > 0), beat.image)
        if not has_changed and metadata_hash == group.metadata_hash:
            if not group.target_epoch:
                beat.records.append(group_record(group.group_id, group.epoch, metadata_hash))
            return group.epoch
        epoch = group.epoch + 1
        beat.records.append(group_record(group.group_id, epoch, metadata_hash))
        _log.info(
            "rebalance begins group=%s epoch=%d member=%s reason=%s", group.group_id, epoch,
            described.member_id, "subscription" if has_changed else "metadata",
        )  # fmt: skip
        return epoch

    def _moves_members(self, group: ConsumerGroup, old: str | None, new: str | None) -> bool:
        """Whether a change of pattern tells at once what the member consumes from now on."""
        if not new:
            return bool(old)
        if new not in group.pattern_subscribers:
            check_pattern(new, group)
            return False
        return new in group.resolved

    def _release(self, beat: Beat, before: ConsumerMember) -> str | None:
        """The pattern that nobody names any more, now that this member does not."""
        group, pattern = beat.group, before.pattern
        if not pattern or group.pattern_subscribers[pattern] > 1:
            return None
        if pattern in group.resolved:
            beat.records.append(pattern_tombstone(group.group_id, pattern))
        return pattern

    def _target(self, beat: Beat, described: ConsumerMember, epoch: int) -> tuple[int, Partitions]:
        """The epoch of the target, and this member's part of it."""
        group, member_id = beat.group, described.member_id
        targets = group.targets
        if beat.replaced is not None:
            targets = dict(targets)
            targets[member_id] = targets.pop(beat.replaced.member_id, {})
        if epoch <= group.target_epoch:
            return group.target_epoch, targets.get(member_id, {})
        members = dict(group.members)
        if beat.replaced is not None:
            del members[beat.replaced.member_id]
        members[member_id] = described
        name = preferred_assignor(members.values()) or self._settings.consumer_assignors[0]
        computed = compute_target(members, targets, group.resolved, beat.image, ASSIGNORS[name])
        for each, target in computed.items():
            if targets.get(each) != target:
                beat.records.append(target_record(group.group_id, each, target))
        beat.records.append(target_epoch_record(group.group_id, epoch, beat.now.wall_ms))
        return epoch, computed[member_id]

    def _goal(self, beat: Beat, member: ConsumerMember, epoch: int, target: Partitions) -> Goal:
        own = {member.member_id}
        if beat.replaced is not None:
            own.add(beat.replaced.member_id)

        def is_free(topic_id: UUID, partition: int) -> bool:
            return beat.group.is_free(topic_id, partition, own)

        return Goal(
            epoch,
            target,
            subscribed_ids(beat.group.topics_of(member), beat.image),
            is_free,
            beat.owned(),
        )

    # The answer

    def _outcome(
        self, beat: Beat, before: ConsumerMember, described: ConsumerMember, after: ConsumerMember
    ) -> Outcome:
        group_id, member_id = beat.group.group_id, after.member_id
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=own_setting_ms(
                beat.image,
                group_id,
                "consumer.heartbeat.interval.ms",
                self._settings.consumer_heartbeat_interval_ms,
            ),
        )
        if beat.is_join or beat.is_full or before.assigned != after.assigned:
            response.assignment = Assignment(
                [
                    TopicPartitions(topic_id, sorted(partitions))
                    for topic_id, partitions in after.assigned.items()
                ]
            )

        def appended() -> None:
            # A group that this heartbeat made is there now, and another object.
            group = self._groups.consumer(group_id)
            assert group is not None, "its records were replayed"
            group.seen_image = beat.image
            if group.pattern_subscribers:
                self._patterns.refresh(group, beat.caller, beat.now)
            self._members.renew_session(group_id, member_id, beat.now)
            if after != described:
                self._members.watch_revocation(group_id, after, beat.now)

        return Outcome(response, beat.records, appended)


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
    described = replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=member.topics if names is None else frozenset(names),
        pattern=member.pattern if pattern is None else pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout == -1 else timeout,
        server_assignor=request.server_assignor or member.server_assignor,
    )
    return described
