"""DeleteRecords: moves the log start offset of partitions forward.

Version notes: 2 is flexible.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, int64, string, structure


@structure
class DeleteRecordsPartition:
    """The first offset to keep in one partition, or -1 for its high watermark."""

    partition_index: int = int32()
    offset: int = int64()


@structure
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array_of(DeleteRecordsPartition)


@api_message
class DeleteRecordsRequest:
    """The offsets below which records are deleted."""

    topics: list[DeleteRecordsTopic] = array_of(DeleteRecordsTopic)
    timeout_ms: int = int32()


@structure
class DeleteRecordsPartitionResult:
    """The low watermark of one partition."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@structure
class DeleteRecordsTopicResult:
    """The low watermarks of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array_of(DeleteRecordsPartitionResult)


@api_message
class DeleteRecordsResponse:
    """The low watermarks after the deletion."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array_of(DeleteRecordsTopicResult)
