"""OffsetForLeaderEpoch (key 23), versions 2 to 4.

Behaviour: returns where the log of a leader epoch ends, so that a client can see whether records
that it has read were truncated (KIP-320). An unknown epoch answers -1, -1. Brokers need no access
to the topic.
"""

from __future__ import annotations

from collections.abc import Generator

from tidelog.errors import KafkaError
from tidelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.handlers.asked import by_topic
from tidelog.server.tools import DataContext


def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: DataContext
) -> Generator[int, None, OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    for topic, partitions in (yield from by_topic(request.topics, ("topic",), "partition")):
        answers = []
        for asked in partitions.values():
            answers.append(_answer(topic.topic, asked, context))
            yield 1
        response.topics.append(OffsetForLeaderTopicResult(topic.topic, answers))
    return response


def _answer(topic: str, asked: OffsetForLeaderPartition, context: DataContext) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    try:
        if not context.may(Operation.CLUSTER_ACTION, CLUSTER):
            context.require_topic(Operation.DESCRIBE, topic)
        partition = context.tools.replicas.find(topic, asked.partition)
        partition.check_leader(asked.current_leader_epoch)
        answer.leader_epoch, answer.end_offset = partition.epoch_end(asked.leader_epoch)
    except KafkaError as error:
        answer.error_code = error.code
    return answer
