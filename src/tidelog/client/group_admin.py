"""Groups as operations: list, describe, lag, commit for others, delete.

Works against any broker that speaks Kafka's protocol, on groups of both protocols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from tidelog.client.connection import Call
from tidelog.client.faults import UnsupportedApiError, raise_for
from tidelog.client.metadata import ANY, Cluster
from tidelog.client.offsets import log_bounds
from tidelog.client.operation import (
    Operation,
    answered,
    ask,
    by_topic,
    refresh,
    retried,
    retrying,
    topic_metadata,
)
from tidelog.errors import ErrorCode, KafkaError, ProtocolError, TidelogError
from tidelog.model import TopicPartition
from tidelog.protocol.batches import decode_records, iterate_batches
from tidelog.protocol.consumer_protocol import decode_assignment

# Up to these versions a request names one group, and topics by name.
_FIND_ONE_VERSION = 3
_FETCH_ONE_VERSION = 7
_COMMIT_BY_NAME_VERSION = 9
_DESCRIBE_VERSION = 5
_FETCH_BY_NAME_VERSION = 12
_DEAD = "Dead"
CLASSIC = "classic"
CONSUMER = "consumer"


class CoordinatorKind(IntEnum):
    """What a coordinator is asked for, by Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(slots=True)
class GroupMember:
    """A member of a group, and what it owns."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition] = field(default_factory=list)


@dataclass(slots=True)
class Group:
    """A group as its coordinator describes it; its type is `classic` or `consumer` (KIP-848)."""

    name: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: list[GroupMember]
    type: str = CLASSIC


class GroupListing(NamedTuple):
    """A group in a list; an old broker does not tell all of it."""

    name: str
    type: str
    state: str
    protocol_type: str


@dataclass(slots=True)
class Lag:
    """How far a group is behind in one partition; seconds are None where nobody can tell."""

    committed: int
    start: int
    end: int
    records: int
    seconds: float | None


def find_coordinator(
    cluster: Cluster, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP
) -> Operation[int]:
    """The broker that coordinates the group, or the transactions of an id."""
    from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest

    request = FindCoordinatorRequest(key=key, key_type=kind)
    response = yield from ask(Call(ANY, "FindCoordinator", request, _FIND_ONE_VERSION))
    raise_for(response.error_code, response.error_message)
    if response.node_id not in cluster.brokers:
        yield from refresh(cluster, [])
    node: int = response.node_id
    return node


@retried
def list_groups(cluster: Cluster) -> Operation[list[GroupListing]]:
    """Every group, by name."""
    from tidelog.protocol.messages.list_groups import ListGroupsRequest

    yield from refresh(cluster, [])
    outcomes = yield [Call(node, "ListGroups", ListGroupsRequest()) for node in cluster.brokers]
    found = []
    for response in outcomes:
        if isinstance(response, TidelogError):
            raise response
        raise_for(response.error_code)
        found += [
            GroupListing(
                each.group_id, each.group_type.lower(), each.group_state, each.protocol_type
            )
            for each in response.groups
        ]
    return sorted(found)


@retried
def describe_group(cluster: Cluster, name: str) -> Operation[Group | None]:
    """The group, or None where there is none."""
    node = yield from find_coordinator(cluster, name)
    found = yield from _describe_classic(node, name)
    if found is None:
        found = yield from _describe_consumer(node, name)
    return found


def _describe_classic(node: int, name: str) -> Operation[Group | None]:
    from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest

    request = DescribeGroupsRequest(groups=[name])
    response = yield from ask(Call(node, "DescribeGroups", request, _DESCRIBE_VERSION))
    found = response.groups[0]
    raise_for(found.error_code)
    if found.group_state == _DEAD:
        return None
    return Group(
        name, found.group_state, found.protocol_type, found.protocol_data, node,
        [_member(each) for each in found.members],
    )  # fmt: skip


def _describe_consumer(node: int, name: str) -> Operation[Group | None]:
    """The same for consumer groups, where the broker has it."""
    from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest

    request = ConsumerGroupDescribeRequest(group_ids=[name])
    try:
        response = yield from ask(Call(node, "ConsumerGroupDescribe", request))
    except UnsupportedApiError:
        return None
    found = response.groups[0]
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    raise_for(found.error_code, found.error_message)
    members = [
        GroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            [
                TopicPartition(topic.topic_name, partition)
                for topic in each.assignment.topic_partitions
                for partition in topic.partitions
            ],
        )
        for each in found.members
    ]
    return Group(
        name, found.group_state, CONSUMER, found.assignor_name, node, members, type=CONSUMER
    )


def _member(found: Any) -> GroupMember:
    try:
        owned = decode_assignment(found.member_assignment)
    except ProtocolError:
        # Not every group is one of consumers.
        owned = {}
    partitions = [TopicPartition(topic, each) for topic, list_ in owned.items() for each in list_]
    return GroupMember(
        found.member_id, found.group_instance_id, found.client_id, found.client_host, partitions
    )


@retried
def committed_offsets(
    cluster: Cluster, group: str, partitions: Sequence[TopicPartition] | None = None
) -> Operation[dict[TopicPartition, int]]:
    """The committed offsets of these partitions, or of all; those without one are left out."""
    from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopic(topic, [tp.partition for tp in each])
            for topic, each in by_topic(partitions).items()
        ]
    request = OffsetFetchRequest(group_id=group, topics=topics)
    node = yield from find_coordinator(cluster, group)
    response = yield from ask(Call(node, "OffsetFetch", request, _FETCH_ONE_VERSION))
    raise_for(response.error_code)
    return {
        tp: part.committed_offset for tp, part in answered(response) if part.committed_offset >= 0
    }


@dataclass(slots=True)
class CommittingMember:
    """In whose name offsets are committed; by default in nobody's, which needs an empty group."""

    member_id: str = ""
    generation: int = -1


@retried
def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, int],
    member: CommittingMember | None = None,
) -> Operation[None]:
    """Remember how far the group is."""
    from tidelog.protocol.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    who = member or CommittingMember()
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(tp.partition, offsets[tp], -1, "") for tp in each
            ],
        )
        for topic, each in by_topic(offsets).items()
    ]
    request = OffsetCommitRequest(group, who.generation, who.member_id, topics=topics)
    node = yield from find_coordinator(cluster, group)
    response = yield from ask(Call(node, "OffsetCommit", request, _COMMIT_BY_NAME_VERSION))
    for _ in answered(response):
        pass


@retried
def delete_group(cluster: Cluster, group: str) -> Operation[None]:
    """Forget a group and its offsets; NON_EMPTY_GROUP while it has members."""
    from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest

    node = yield from find_coordinator(cluster, group)
    response = yield from ask(Call(node, "DeleteGroups", DeleteGroupsRequest([group])))
    raise_for(response.results[0].error_code)


def group_lag(
    cluster: Cluster, committed: Mapping[TopicPartition, int]
) -> Operation[dict[TopicPartition, Lag]]:
    """How far behind these committed offsets are, in records and in seconds.

    Seconds are the age of the first record that was not consumed. Partitions of topics that are no
    more are left out.
    """
    yield from retrying(cluster, lambda: refresh(cluster, sorted({tp.topic for tp in committed})))
    alive = [tp for tp in committed if cluster.leader(*tp) >= 0]
    bounds = (yield from log_bounds(cluster, alive)) if alive else {}
    behind = {
        tp: max(committed[tp], start)
        for tp, (start, end) in bounds.items()
        if max(committed[tp], start) < end
    }
    times = yield from first_timestamps(cluster, behind)
    now_ms = cluster.clock.wall_ms()
    lags = {}
    for tp, (start, end) in bounds.items():
        records = max(0, end - max(committed[tp], start))
        seconds: float | None = 0.0
        if records:
            timestamp = times.get(tp)
            seconds = None if timestamp is None else max(0, now_ms - timestamp) / 1000
        lags[tp] = Lag(committed[tp], start, end, records, seconds)
    return lags


def first_timestamps(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> Operation[dict[TopicPartition, int]]:
    """The timestamp of the first record at or behind each offset, where there is one."""
    from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

    if not offsets:
        return {}
    yield from topic_metadata(cluster, sorted({tp.topic for tp in offsets}))
    calls = []
    for tp, offset in offsets.items():
        # One partition for each request: only the first is sure to get a batch whatever its size.
        part = FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=1)
        topic = FetchTopic(topic=tp.topic, partitions=[part])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[topic])
        calls.append(Call(cluster.leader(*tp), "Fetch", request, _FETCH_BY_NAME_VERSION))
    outcomes = yield calls
    found: dict[TopicPartition, int] = {}
    for (tp, offset), outcome in zip(offsets.items(), outcomes, strict=True):
        if isinstance(outcome, TidelogError):
            raise outcome
        records = outcome.responses[0].partitions[0].records
        timestamp = None if records is None else _first_timestamp(records, offset)
        if timestamp is not None:
            found[tp] = timestamp
    return found


def _first_timestamp(records: Any, offset: int) -> int | None:
    for position, header in iterate_batches(records):
        if header.is_control:
            continue
        if header.last_offset < offset:
            continue
        try:
            decoded = decode_records(records, position)
        except (KafkaError, ProtocolError):
            # A batch that cannot be read has a time all the same.
            return header.max_timestamp
        for record in decoded:
            if record.offset >= offset:
                return record.timestamp
    return None


def require_no_members(group: Group) -> None:
    """KafkaError that names the members of a group that is in use."""
    if group.members:
        names = ", ".join(f"{each.client_id} ({each.host})" for each in group.members)
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group '{group.name}' is in use by {names}")
