"""ConsumerGroupDescribe: epochs, members and assignments of consumer groups (KIP-848).

Version notes: 1 tells by which protocol a member speaks (KIP-1099).
"""

from __future__ import annotations

from uuid import UUID

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import (
    array_of,
    boolean,
    int8,
    int16,
    int32,
    string,
    struct_of,
    structure,
    uuid,
)


@api_message
class ConsumerGroupDescribeRequest:
    """The groups asked for."""

    group_ids: list[str] = array_of("string")
    include_authorized_operations: bool = boolean()


@structure
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array_of("int32")


@structure
class Assignment:
    """What a member owns, or is to own."""

    topic_partitions: list[TopicPartitions] = array_of(TopicPartitions)


@structure
class Member:
    """One member; its type is 0 for the classic protocol, 1 for the newer one."""

    member_id: str = string()
    instance_id: str | None = string(default=None, nullable="0+")
    rack_id: str | None = string(default=None, nullable="0+")
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array_of("string")
    subscribed_topic_regex: str | None = string(default=None, nullable="0+")
    assignment: Assignment = struct_of(Assignment)
    target_assignment: Assignment = struct_of(Assignment)
    member_type: int = int8("1+", default=-1, ignorable=True)


@structure
class DescribedGroup:
    """One group."""

    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array_of(Member)
    authorized_operations: int = int32(default=-2147483648)


@api_message
class ConsumerGroupDescribeResponse:
    """The groups."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array_of(DescribedGroup)
