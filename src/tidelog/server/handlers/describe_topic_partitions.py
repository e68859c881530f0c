"""DescribeTopicPartitions (key 75), versions 0 to 0.

Behaviour: returns the requested topics, or all, ordered by name, starting at the cursor, up to a
number of partitions; the next cursor says where to continue. Includes eligible leaders (ELR) and
the last known ones. Topics that the client may not describe are left out of a list of all, and
refused by name. A cursor must be in one of the named topics. A partition without a leader is not an
error.
"""

from __future__ import annotations

from collections.abc import Generator

from tidelog.cluster.image import PartitionState, TopicImage
from tidelog.cluster.names import INTERNAL_TOPICS
from tidelog.errors import ErrorCode
from tidelog.model import NO_LEADER
from tidelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tidelog.security.authorizer import Operation, Resource, ResourceType
from tidelog.server.handlers.asked import distinct
from tidelog.server.tools import ClusterContext
from tidelog.topic_names import topic_name_fault

# Kafka's default of max.request.partition.size.limit.
_PARTITIONS_MAX = 2000


def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: ClusterContext
) -> Generator[int, None, DescribeTopicPartitionsResponse]:
    cursor = request.cursor
    response = DescribeTopicPartitionsResponse()
    names = yield from _names(request, context)
    if cursor is not None and (
        cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names)
    ):
        for name in (yield from distinct(each.name for each in request.topics)):
            response.topics.append(_refused(name, ErrorCode.INVALID_REQUEST))
        return response
    left = max(1, min(request.response_partition_limit, _PARTITIONS_MAX))
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    for position, name in enumerate(names):
        yield 1
        topic = context.image.topics.get(name)
        if not context.authorize_topic(Operation.DESCRIBE, name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            denied.append(DescribeTopicPartitionsResponseTopic(code, name))
            continue
        if topic is None:
            is_invalid = topic_name_fault(name) is not None
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused = _refused(name, ErrorCode.INVALID_TOPIC_EXCEPTION if is_invalid else unknown)
            refused.topic_authorized_operations = _allowed(name, context)
            response.topics.append(refused)
            continue
        first = 0
        if cursor is not None and cursor.topic_name == name:
            first = cursor.partition_index
        states = topic.partitions[first : first + left]
        response.topics.append(_described(topic, states, context))
        yield len(states)
        left -= len(states)
        if first + len(states) < len(topic.partitions):
            response.next_cursor = Cursor(name, first + len(states))
            break
        if left == 0 and position + 1 < len(names):
            response.next_cursor = Cursor(names[position + 1], 0)
            break
    response.topics += denied
    return response


def _names(
    request: DescribeTopicPartitionsRequest, context: ClusterContext
) -> Generator[int, None, list[str]]:
    """The topics in order, from the cursor's on."""
    if request.topics:
        names = yield from distinct(each.name for each in request.topics)
    else:
        names = []
        for name in context.image.topics:
            if context.authorize_topic(Operation.DESCRIBE, name):
                names.append(name)
            yield 1
    start = "" if request.cursor is None else request.cursor.topic_name
    return sorted(name for name in names if name >= start)


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(code, name, is_internal=name in INTERNAL_TOPICS)


def _described(
    topic: TopicImage, states: tuple[PartitionState, ...], context: ClusterContext
) -> DescribeTopicPartitionsResponseTopic:
    alive = context.image.brokers

    def partition(state: PartitionState) -> DescribeTopicPartitionsResponsePartition:
        is_led = state.leader in alive
        return DescribeTopicPartitionsResponsePartition(
            partition_index=state.partition,
            leader_id=state.leader if is_led else NO_LEADER,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            eligible_leader_replicas=list(state.elr),
            last_known_elr=list(state.last_known_elr),
            offline_replicas=[each for each in state.replicas if each not in alive],
        )

    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[partition(state) for state in states],
        topic_authorized_operations=_allowed(topic.name, context),
    )


def _allowed(name: str, context: ClusterContext) -> int:
    return context.allowed_operations(Resource(ResourceType.TOPIC, name))
