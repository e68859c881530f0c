"""ConsumerGroupHeartbeat: a member joins a group, stays in it, and is told what it owns (KIP-848).

Fields that did not change since the last heartbeat may be left out as null or -1. The member epoch
says what is meant: 0 joins, -1 leaves, -2 is a static member that will be back.
Version notes: 1 brings the regular expression, and member ids that the client draws itself.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, string, struct_of, structure, uuid


@structure
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[int] = array_of("int32")


@api_message
class ConsumerGroupHeartbeatRequest:
    """A member, what it wants, and what it owns."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable="0+")
    rack_id: str | None = string(default=None, nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array_of("string", default=None, nullable="0+")
    subscribed_topic_regex: str | None = string("1+", default=None, nullable="1+")
    server_assignor: str | None = string(default=None, nullable="0+")
    topic_partitions: list[TopicPartitions] | None = array_of(
        TopicPartitions, default=None, nullable="0+"
    )


@structure
class Assignment:
    """What a member may consume from now on."""

    topic_partitions: list[TopicPartitions] = array_of(TopicPartitions)


@api_message
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its assignment where that changed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    member_id: str | None = string(default=None, nullable="0+")
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct_of(Assignment, nullable="0+")
