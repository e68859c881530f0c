"""Look-up of offsets: the ends of a partition's log, and the first record at or after a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.client.admin import by_leader
from tidelog.client.faults import raise_for
from tidelog.client.metadata import Cluster
from tidelog.client.operation import Operation, answered, by_topic, retried
from tidelog.model import Isolation, ListedOffset, TopicPartition

LATEST: Final = ListedOffset.LATEST
EARLIEST: Final = ListedOffset.EARLIEST


@dataclass(slots=True)
class FoundOffset:
    """An offset, the timestamp of its record (-1 at the ends) and its leader epoch."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@retried
def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Operation[dict[TopicPartition, FoundOffset]]:
    """The offset for each partition's timestamp, EARLIEST or LATEST.

    A time after the last record gives offset -1, as on the wire.
    """
    from tidelog.protocol.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )

    def build(partitions: Sequence[TopicPartition]) -> object:
        topics = []
        for name, group in by_topic(partitions).items():
            asked = [
                ListOffsetsPartition(partition_index=tp.partition, timestamp=wanted[tp])
                for tp in group
            ]
            topics.append(ListOffsetsTopic(name, asked))
        return ListOffsetsRequest(replica_id=-1, isolation_level=int(isolation), topics=topics)

    responses = yield from by_leader(cluster, list(wanted), "ListOffsets", build)
    return {
        tp: FoundOffset(part.offset, part.timestamp, part.leader_epoch)
        for response in responses
        for tp, part in answered(response)
    }


@retried
def offsets_within(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, tuple[int, int]],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Operation[dict[TopicPartition, tuple[int, int]]]:
    """How far a number of bytes goes from an offset: the offset there, and the bytes up to it.

    `wanted` holds where from and how many bytes; at least one batch is gone over.
    UnsupportedApiError where the broker is not a Tidelog.
    """
    from tidelog.protocol.messages.offsets_within_bytes import (
        OffsetsWithinBytesPartition,
        OffsetsWithinBytesRequest,
        OffsetsWithinBytesTopic,
    )

    def build(partitions: Sequence[TopicPartition]) -> object:
        topics = [
            OffsetsWithinBytesTopic(
                name, [OffsetsWithinBytesPartition(tp.partition, *wanted[tp]) for tp in group]
            )
            for name, group in by_topic(partitions).items()
        ]
        return OffsetsWithinBytesRequest(int(isolation), topics)

    found = {}
    for response in (yield from by_leader(cluster, list(wanted), "OffsetsWithinBytes", build)):
        for topic in response.topics:
            for part in topic.partitions:
                raise_for(part.error_code)
                tp = TopicPartition(topic.topic, part.partition)
                found[tp] = (part.end_offset, part.size_bytes)
    return found


def log_bounds(
    cluster: Cluster, partitions: Sequence[TopicPartition]
) -> Operation[dict[TopicPartition, tuple[int, int]]]:
    """The first offset and the one after the last, per partition."""
    earliest = yield from list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    latest = yield from list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    return {tp: (earliest[tp].offset, latest[tp].offset) for tp in partitions}


def resolve_offsets(
    cluster: Cluster, starts: Mapping[TopicPartition, Start]
) -> Operation[dict[TopicPartition, int]]:
    """Where to begin reading each partition, as an offset to fetch."""
    resolved: dict[TopicPartition, int] = {}
    bounded = [tp for tp, start in starts.items() if start.kind != "offset"]
    bounds = (yield from log_bounds(cluster, bounded)) if bounded else {}
    timed = {tp: start.value for tp, start in starts.items() if start.kind == "time"}
    found = (yield from list_offsets(cluster, timed)) if timed else {}
    for tp, start in starts.items():
        if start.kind == "offset":
            resolved[tp] = start.value
            continue
        low, high = bounds[tp]
        if start.kind == "start":
            resolved[tp] = low
        elif start.kind == "end":
            resolved[tp] = high
        elif start.kind == "tail":
            resolved[tp] = max(low, high - start.value)
        else:
            offset = found[tp].offset
            resolved[tp] = offset if offset >= 0 else high
    return resolved


@dataclass(slots=True, frozen=True)
class Start:
    """A place to read from: `start`, `end`, an `offset`, the last n (`tail`), a `time` in ms."""

    kind: str
    value: int = 0
