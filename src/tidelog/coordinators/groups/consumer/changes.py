"""Changes of consumer groups: as records, and from records back into groups.

Records of one group may come in any order that a compacted log has left, so whatever is told of a
group or a member that is not known yet makes it known, and the end of an unknown one is nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from uuid import UUID

from tidelog.coordinators.groups.consumer.assignors import Partitions
from tidelog.coordinators.groups.consumer.expressions import ResolvedPattern
from tidelog.coordinators.groups.consumer.group import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Owned,
    member_timers,
)
from tidelog.coordinators.groups.consumer.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerKey,
    OwnedTopicPartitions,
    TargetTopicPartitions,
)
from tidelog.coordinators.groups.records import CoordinatorRecord, Value
from tidelog.coordinators.groups.table import GroupTable
from tidelog.coordinators.groups.timers import Timers

Records = list[CoordinatorRecord]

# A state that a newer broker has written: the member is reconciled anew.
_KNOWN_STATES: Final = frozenset(MemberState)


# Into records


def group_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = ConsumerGroupMetadataValue(epoch, metadata_hash)
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id), value)


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
    )
    if member.classic is not None:
        value.classic_member_metadata = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(*each) for each in member.classic.protocols],
        )
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id, member.member_id), value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    value = ConsumerGroupTargetAssignmentMetadataValue(epoch, timestamp_ms)
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id), value)


def target_record(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    value = ConsumerGroupTargetAssignmentMemberValue(
        [
            TargetTopicPartitions(topic_id, sorted(partitions))
            for topic_id, partitions in target.items()
        ]
    )
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), value)


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member.epoch,
        member.previous_epoch,
        member.state,
        _recorded(member.assigned),
        _recorded(member.revoking),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id)
    return CoordinatorRecord(key, value)


def _recorded(owned: Owned) -> list[OwnedTopicPartitions]:
    return [
        OwnedTopicPartitions(topic_id, list(partitions), list(partitions.values()))
        for topic_id, partitions in owned.items()
    ]


def pattern_record(group_id: str, pattern: str, resolved: ResolvedPattern) -> CoordinatorRecord:
    value = ConsumerGroupRegularExpressionValue(
        sorted(resolved.topics), resolved.version, resolved.timestamp_ms
    )
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id, pattern), value)


def pattern_tombstone(group_id: str, pattern: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id, pattern), None)


def member_tombstones(group_id: str, member_id: str) -> Records:
    """The end of a member."""
    return [
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]


def group_tombstones(group: ConsumerGroup) -> Records:
    """The end of a group."""
    records: Records = []
    for member_id in group.members:
        records += member_tombstones(group.group_id, member_id)
    records += [pattern_tombstone(group.group_id, each) for each in group.resolved]
    key = ConsumerGroupTargetAssignmentMetadataKey(group.group_id)
    records.append(CoordinatorRecord(key, None))
    records.append(CoordinatorRecord(ConsumerGroupMetadataKey(group.group_id), None))
    return records


# And back


class ConsumerReplay:
    """Applies records to the groups of one shard; a member that goes takes its timers with it."""

    def __init__(self, groups: GroupTable, timers: Timers) -> None:
        self._groups = groups
        self._timers = timers

    def replay(self, key: ConsumerKey, value: Value | None) -> None:
        if value is None:
            self._end(key)
            return
        group = self._groups.consumer(key.group)
        if group is None:
            group = self._groups.put(ConsumerGroup(key.group))
        if isinstance(value, ConsumerGroupMetadataValue):
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        elif isinstance(value, ConsumerGroupTargetAssignmentMetadataValue):
            group.target_epoch = value.assignment_epoch
            group.target_timestamp_ms = value.assignment_timestamp
        elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
            assert isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
            group.targets[key.member_id] = {
                each.topic_id: frozenset(each.partitions) for each in value.topic_partitions
            }
        elif isinstance(key, ConsumerGroupMemberMetadataKey):
            assert isinstance(value, ConsumerGroupMemberMetadataValue)
            group.put(_described(_member(group, key.member_id), value))
        elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
            group.put(_owning(_member(group, key.member_id), value))
        elif isinstance(key, ConsumerGroupRegularExpressionKey):
            assert isinstance(value, ConsumerGroupRegularExpressionValue)
            resolved = ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)
            group.resolve(key.regular_expression, resolved)

    def _end(self, key: ConsumerKey) -> None:
        group = self._groups.consumer(key.group)
        if group is None:
            return
        if isinstance(key, ConsumerGroupMetadataKey):
            self._groups.remove(key.group)
        elif isinstance(key, ConsumerGroupTargetAssignmentMetadataKey):
            group.target_epoch = 0
        elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
            group.targets.pop(key.member_id, None)
        elif isinstance(key, ConsumerGroupRegularExpressionKey):
            group.resolve(key.regular_expression, None)
        elif isinstance(key, ConsumerGroupMemberMetadataKey):
            group.remove(key.member_id)
            for timer in member_timers(key.group, key.member_id):
                self._timers.cancel(timer)
        elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            member = group.members.get(key.member_id)
            if member is not None:
                group.put(replace(member, epoch=-1, previous_epoch=-1, assigned={}, revoking={}))


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    return group.members.get(member_id) or ConsumerMember(member_id)


def _described(member: ConsumerMember, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    classic = None
    if value.classic_member_metadata is not None:
        protocols = value.classic_member_metadata.supported_protocols
        classic = ClassicMetadata(
            value.classic_member_metadata.session_timeout_ms,
            tuple((each.name, each.metadata) for each in protocols),
        )
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        pattern=value.subscribed_topic_regex or "",
        classic=classic,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
    )


def _owning(
    member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerMember:
    known = value.state in _KNOWN_STATES
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if known else MemberState.UNRELEASED_PARTITIONS,
        assigned=_owned(value.assigned_partitions, value.member_epoch),
        revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
    )


def _owned(
    recorded: Iterable[OwnedTopicPartitions], member_epoch: int
) -> dict[UUID, dict[int, int]]:
    """Before 4.3 no epochs were written; then the member's own is the latest that it can be."""
    owned: dict[UUID, dict[int, int]] = {}
    for each in recorded:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = [member_epoch] * len(each.partitions)
        owned[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return owned
