"""OffsetsWithinBytes: how far a number of bytes goes from an offset. Tidelog's own; Kafka has none.

It lets a reader plan by bytes without reading any.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int8, int16, int32, int64, string, structure


@structure
class OffsetsWithinBytesPartition:
    """From where, and how many bytes at most."""

    partition: int = int32()
    start_offset: int = int64()
    max_bytes: int = int64()


@structure
class OffsetsWithinBytesTopic:
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetsWithinBytesPartition] = array_of(OffsetsWithinBytesPartition)


@api_message
class OffsetsWithinBytesRequest:
    """The places to measure from."""

    isolation_level: int = int8()
    topics: list[OffsetsWithinBytesTopic] = array_of(OffsetsWithinBytesTopic)


@structure
class OffsetsWithinBytesPartitionResult:
    """Where the last whole batch ends that fits, and the bytes up to there."""

    error_code: int = int16()
    partition: int = int32()
    end_offset: int = int64(default=-1)
    size_bytes: int = int64()


@structure
class OffsetsWithinBytesTopicResult:
    """The answers for one topic."""

    topic: str = string()
    partitions: list[OffsetsWithinBytesPartitionResult] = array_of(
        OffsetsWithinBytesPartitionResult
    )


@api_message
class OffsetsWithinBytesResponse:
    """The ends that were found."""

    throttle_time_ms: int = int32()
    topics: list[OffsetsWithinBytesTopicResult] = array_of(OffsetsWithinBytesTopicResult)
