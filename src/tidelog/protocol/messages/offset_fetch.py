"""OffsetFetch: how far groups have consumed.

Version notes: 2 asks for all partitions with a null list, 6 is flexible, 7 can insist on offsets
that no transaction is about to change, 8 asks for several groups at once, 9 carries the member
epoch of a consumer group, 10 names topics by id.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.protocol.apis import api_message
from tidelog.protocol.schema import array_of, boolean, int16, int32, int64, string, structure, uuid


@structure
class OffsetFetchRequestTopic:
    """Partitions of one topic."""

    name: str = string("0-7")
    partition_indexes: list[int] = array_of("int32", "0-7")


@structure
class OffsetFetchRequestTopics:
    """Partitions of one topic, for one of several groups."""

    name: str = string("8-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partition_indexes: list[int] = array_of("int32", "8+")


@structure
class OffsetFetchRequestGroup:
    """What is asked about one of several groups."""

    group_id: str = string("8+")
    member_id: str | None = string("9+", default=None, nullable="9+", ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array_of(
        OffsetFetchRequestTopics, "8+", nullable="8+"
    )


@api_message
class OffsetFetchRequest:
    """Whose offsets are asked for."""

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array_of(
        OffsetFetchRequestTopic, "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array_of(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@structure
class OffsetFetchResponsePartition:
    """The committed offset of one partition, or -1."""

    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


@structure
class OffsetFetchResponseTopic:
    """The committed offsets of one topic."""

    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array_of(OffsetFetchResponsePartition, "0-7")


@structure
class OffsetFetchResponsePartitions:
    """The committed offset of one partition, or -1, in one of several groups."""

    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


@structure
class OffsetFetchResponseTopics:
    """The committed offsets of one topic in one of several groups."""

    name: str = string("8-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array_of(OffsetFetchResponsePartitions, "8+")


@structure
class OffsetFetchResponseGroup:
    """The committed offsets of one of several groups."""

    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array_of(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


@api_message
class OffsetFetchResponse:
    """Committed offsets, from version 8 on by group."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array_of(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array_of(OffsetFetchResponseGroup, "8+")
