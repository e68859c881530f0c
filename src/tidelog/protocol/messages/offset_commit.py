"""OffsetCommit: a group remembers how far it has consumed.

Version notes: 5 drops the retention time, 6 brings leader epochs, 7 static members, 8 is flexible,
9 means a member epoch in a consumer group, 10 names topics by id.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, int16, int32, int64, string, structure, uuid


@structure
class OffsetCommitRequestPartition:
    """The next offset to consume in one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


@structure
class OffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str = string("0-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array_of(OffsetCommitRequestPartition)


@api_message
class OffsetCommitRequest:
    """Offsets to remember, and who says so."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", default=None, nullable="7+")
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array_of(OffsetCommitRequestTopic)


@structure
class OffsetCommitResponsePartition:
    """Whether one partition's offset is remembered."""

    partition_index: int = int32()
    error_code: int = int16()


@structure
class OffsetCommitResponseTopic:
    """The outcome for one topic."""

    name: str = string("0-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array_of(OffsetCommitResponsePartition)


@api_message
class OffsetCommitResponse:
    """The outcome for every partition."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array_of(OffsetCommitResponseTopic)
