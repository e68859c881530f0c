"""AlterPartitionReassignments: moves partitions to other replicas, or stops that.

All versions are flexible. Version notes: 1 can insist on the replication factor as it is.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, int16, int32, string, structure


@structure
class ReassignablePartition:
    """The replicas that a partition shall have; null stops what is moved."""

    partition_index: int = int32()
    replicas: list[int] | None = array_of("int32", nullable="0+", default=None)


@structure
class ReassignableTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array_of(ReassignablePartition)


@api_message
class AlterPartitionReassignmentsRequest:
    """What to move."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array_of(ReassignableTopic)


@structure
class ReassignablePartitionResponse:
    """What became of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@structure
class ReassignableTopicResponse:
    """What became of the partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array_of(ReassignablePartitionResponse)


@api_message
class AlterPartitionReassignmentsResponse:
    """What became of every partition."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array_of(ReassignableTopicResponse)
