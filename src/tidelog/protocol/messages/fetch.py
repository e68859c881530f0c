"""Fetch: reads record batches, for consumers and for followers.

Version notes: 7 brings fetch sessions, 9 leader epochs, 11 racks, 12 is flexible and detects
divergence, 13 names topics by id, 15 moves the replica id into `replica_state`, 16 names the
endpoints of new leaders. Versions 17 and 18 are spoken among KRaft replicas only and left out.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.protocol.apis import api_message
from tidelog.protocol.primitives import Part
from tidelog.protocol.schema import (
    array_of,
    int8,
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
class ReplicaState:
    """The follower that asks, and its broker epoch."""

    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


@structure
class FetchPartition:
    """From where to read one partition, and how much."""

    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: UUID = uuid("17+", tag=0, ignorable=True)
    # The follower's; the largest number where it does not say.
    high_watermark: int = int64("18+", default=2**63 - 1, tag=1, ignorable=True)


@structure
class FetchTopic:
    """The partitions of one topic to read."""

    topic: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array_of(FetchPartition)


@structure
class ForgottenTopic:
    """Partitions to drop from a fetch session."""

    topic: str = string("7-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[int] = array_of("int32", "7+")


@api_message
class FetchRequest:
    """Where to read, how long to wait and for how much."""

    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = struct_of(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array_of(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array_of(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


@structure
class EpochEndOffset:
    """The largest epoch that both logs share; the reader's log differs from its end on."""

    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


@structure
class LeaderIdAndEpoch:
    """Who leads the partition now."""

    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


@structure
class SnapshotId:
    """The snapshot to load instead, for replicas of the metadata log."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@structure
class AbortedTransaction:
    """A transaction whose records a `read_committed` reader must skip."""

    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


@structure
class PartitionData:
    """The batches of one partition, with its watermarks."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = struct_of(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = struct_of(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = struct_of(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array_of(
        AbortedTransaction, "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: Part | None = record_batches(nullable="0+")


@structure
class FetchableTopicResponse:
    """The batches of one topic."""

    topic: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array_of(PartitionData)


@structure
class NodeEndpoint:
    """Where a leader named in the answer can be reached."""

    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


@api_message
class FetchResponse:
    """The batches that were found, per partition."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array_of(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array_of(NodeEndpoint, "16+", tag=0)
