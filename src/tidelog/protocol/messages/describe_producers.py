"""DescribeProducers: what partitions know of their idempotent and transactional producers."""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, int64, string, structure


@structure
class TopicRequest:
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array_of("int32")


@api_message
class DescribeProducersRequest:
    """Which partitions are asked."""

    topics: list[TopicRequest] = array_of(TopicRequest)


@structure
class ProducerState:
    """One producer as a partition knows it."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@structure
class PartitionResponse:
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable="0+")
    active_producers: list[ProducerState] = array_of(ProducerState)


@structure
class TopicResponse:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[PartitionResponse] = array_of(PartitionResponse)


@api_message
class DescribeProducersResponse:
    """The producers of every partition."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array_of(TopicResponse)
