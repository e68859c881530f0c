"""ListPartitionReassignments: which partitions are being moved. Its one version is flexible."""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, string, structure


@structure
class ListPartitionReassignmentsTopics:
    """The partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array_of("int32")


@api_message
class ListPartitionReassignmentsRequest:
    """Where to look; null stands for everywhere."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array_of(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


@structure
class OngoingPartitionReassignment:
    """A partition that is being moved."""

    partition_index: int = int32()
    replicas: list[int] = array_of("int32")
    adding_replicas: list[int] = array_of("int32")
    removing_replicas: list[int] = array_of("int32")


@structure
class OngoingTopicReassignment:
    """The partitions of one topic that are being moved."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array_of(OngoingPartitionReassignment)


@api_message
class ListPartitionReassignmentsResponse:
    """All that is being moved, of what was asked for."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array_of(OngoingTopicReassignment)
