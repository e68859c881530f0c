"""OffsetForLeaderEpoch: where an epoch ends in the log of the leader (KIP-320).

Version notes: 3 names the replica that asks, 4 is flexible.
"""

from __future__ import annotations

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, int64, string, structure


@structure
class OffsetForLeaderPartition:
    """The epoch to look up in one partition."""

    partition: int = int32()
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32()


@structure
class OffsetForLeaderTopic:
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array_of(OffsetForLeaderPartition)


@api_message
class OffsetForLeaderEpochRequest:
    """Epochs to look up."""

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array_of(OffsetForLeaderTopic)


@structure
class EpochEndOffset:
    """The epoch that was found and the offset where it ends, or -1."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


@structure
class OffsetForLeaderTopicResult:
    """The ends of epochs in one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array_of(EpochEndOffset)


@api_message
class OffsetForLeaderEpochResponse:
    """The ends that were found."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array_of(OffsetForLeaderTopicResult)
