"""TxnOffsetCommit: offsets that count once their transaction is committed.

Version notes: 2 brings leader epochs, 3 the member and its generation (KIP-447), 4 and 5 the codes
and the protocol of KIP-890.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, int64, string, structure


@structure
class TxnOffsetCommitRequestPartition:
    """The next offset to consume in one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


@structure
class TxnOffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array_of(TxnOffsetCommitRequestPartition)


@api_message
class TxnOffsetCommitRequest:
    """Offsets of a group, and the producer in whose transaction they are."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = array_of(TxnOffsetCommitRequestTopic)


@structure
class TxnOffsetCommitResponsePartition:
    """Whether one partition's offset is kept until the transaction ends."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class TxnOffsetCommitResponseTopic:
    """The outcome for one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array_of(TxnOffsetCommitResponsePartition)


@api_message
class TxnOffsetCommitResponse:
    """The outcome for every partition."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array_of(TxnOffsetCommitResponseTopic)
