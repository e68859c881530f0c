"""Produce: appends record batches to partitions.

Version notes: 9 is flexible, 10 names the current leader in the answer, 13 names topics by id.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.protocol.apis import api_message
from tidelog.protocol.primitives import Buffer
from tidelog.protocol.schema import (
    array_of,
    int16,
    int32,
    int64,
    record_batches,
    string,
    struct_of,
    structure,
    uuid,
)


@structure
class PartitionProduceData:
    """The batches for one partition."""

    index: int = int32()
    records: Buffer | None = record_batches(nullable="0+")


@structure
class TopicProduceData:
    """The batches for one topic."""

    name: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array_of(PartitionProduceData)


@api_message
class ProduceRequest:
    """Record batches to append; `acks` is 0, 1 or -1 for all in-sync replicas."""

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array_of(TopicProduceData)


@structure
class BatchIndexAndErrorMessage:
    """One record that made its batch be refused (KIP-467)."""

    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


@structure
class LeaderIdAndEpoch:
    """Who leads the partition now."""

    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


@structure
class PartitionProduceResponse:
    """What became of the batches for one partition."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array_of(
        BatchIndexAndErrorMessage, "8+", ignorable=True
    )
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = struct_of(LeaderIdAndEpoch, "10+", tag=0)


@structure
class TopicProduceResponse:
    """What became of the batches for one topic."""

    name: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array_of(PartitionProduceResponse)


@structure
class NodeEndpoint:
    """Where a leader named in the answer can be reached."""

    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


@api_message
class ProduceResponse:
    """The base offset or the error of every partition."""

    responses: list[TopicProduceResponse] = array_of(TopicProduceResponse)
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array_of(NodeEndpoint, "10+", tag=0)
