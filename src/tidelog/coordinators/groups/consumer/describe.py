"""A consumer group as ConsumerGroupDescribe shows it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from tidelog.cluster.image import MetadataImage
from tidelog.coordinators.groups.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    preferred_assignor,
)
from tidelog.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def describe(group: ConsumerGroup, image: MetadataImage, default_assignor: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(group.members.values()) or default_assignor,
        members=[_member(group, each, image) for each in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, image: MetadataImage) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(member.held(), image),
        target_assignment=_assignment(group.targets.get(member.member_id, {}), image),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[UUID, Collection[int]], image: MetadataImage) -> Assignment:
    """Topics that were deleted have no name, and are left out."""
    return Assignment(
        [
            TopicPartitions(topic_id, image.topic_names[topic_id], sorted(indexes))
            for topic_id, indexes in partitions.items()
            if topic_id in image.topic_names
        ]
    )
