"""The end of groups and offsets, as records."""

from __future__ import annotations

from tidelog.coordinators.groups.consumer.changes import group_tombstones
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.records import (
    CoordinatorRecord,
    GroupMetadataKey,
    OffsetCommitKey,
)
from tidelog.coordinators.groups.table import Group


def group_end(group: Group) -> list[CoordinatorRecord]:
    """The end of a group itself; its offsets stay."""
    if isinstance(group, ConsumerGroup):
        return group_tombstones(group)
    return [CoordinatorRecord(GroupMetadataKey(group.group_id), None)]


def offset_end(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group_id, topic, partition), None)
