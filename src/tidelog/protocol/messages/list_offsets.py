"""ListOffsets: offsets by timestamp, and the ends of a log.

The timestamps -1 and -2 ask for the latest and the earliest offset, -3 for the one with the
largest timestamp, -4 to -6 for the bounds of tiered storage.
Version notes: 4 brings leader epochs, 6 is flexible, 10 takes a timeout.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int8, int16, int32, int64, string, structure


@structure
class ListOffsetsPartition:
    """The timestamp to look for in one partition."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()


@structure
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array_of(ListOffsetsPartition)


@api_message
class ListOffsetsRequest:
    """Timestamps to look up."""

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array_of(ListOffsetsTopic)
    timeout_ms: int = int32("10+", ignorable=True)


@structure
class ListOffsetsPartitionResponse:
    """The offset found in one partition, or -1."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


@structure
class ListOffsetsTopicResponse:
    """The offsets found in one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array_of(ListOffsetsPartitionResponse)


@api_message
class ListOffsetsResponse:
    """The offsets that were found."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array_of(ListOffsetsTopicResponse)
