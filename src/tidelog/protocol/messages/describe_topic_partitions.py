"""DescribeTopicPartitions: topics and their partitions, page by page. Its version is flexible."""

from __future__ import annotations

from uuid import UUID

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import (
    array_of,
    boolean,
    int16,
    int32,
    string,
    struct_of,
    structure,
    uuid,
)


@structure
class TopicRequest:
    """A topic to describe."""

    name: str = string()


@structure
class Cursor:
    """The first partition of a page."""

    topic_name: str = string()
    partition_index: int = int32()


@api_message
class DescribeTopicPartitionsRequest:
    """Which topics to describe, none for all, and from where on."""

    topics: list[TopicRequest] = array_of(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct_of(Cursor, nullable="0+")


@structure
class DescribeTopicPartitionsResponsePartition:
    """One partition."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = array_of("int32")
    isr_nodes: list[int] = array_of("int32")
    eligible_leader_replicas: list[int] | None = array_of("int32", nullable="0+", default=None)
    last_known_elr: list[int] | None = array_of("int32", nullable="0+", default=None)
    offline_replicas: list[int] = array_of("int32", ignorable=True)


@structure
class DescribeTopicPartitionsResponseTopic:
    """One topic, or as much of it as fits the page."""

    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: UUID = uuid(ignorable=True)
    is_internal: bool = boolean(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array_of(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-2147483648)


@api_message
class DescribeTopicPartitionsResponse:
    """One page, and where the next one begins."""

    throttle_time_ms: int = int32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array_of(
        DescribeTopicPartitionsResponseTopic
    )
    next_cursor: Cursor | None = struct_of(Cursor, nullable="0+")
