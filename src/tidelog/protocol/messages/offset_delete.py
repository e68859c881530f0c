"""OffsetDelete: committed offsets of partitions that a group does not consume are forgotten."""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, string, structure


@structure
class OffsetDeleteRequestPartition:
    """One partition."""

    partition_index: int = int32()


@structure
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array_of(OffsetDeleteRequestPartition)


@api_message
class OffsetDeleteRequest:
    """The offsets to forget."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array_of(OffsetDeleteRequestTopic)


@structure
class OffsetDeleteResponsePartition:
    """Whether one partition's offset is gone."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class OffsetDeleteResponseTopic:
    """The outcome for one topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array_of(OffsetDeleteResponsePartition)


@api_message
class OffsetDeleteResponse:
    """The outcome, as a whole and for every partition."""

    error_code: int = int16()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array_of(OffsetDeleteResponseTopic)
