"""OffsetsWithinBytes (key 20000), versions 0 to 0: Tidelog's own.

Behaviour: returns how far a number of bytes reaches from an offset, in whole batches and at least
one, up to what a consumer may read; positions are subtracted, no record is read. It is announced
only to clients that call themselves `tidelog` in ApiVersions. The Spark source limits its
micro-batches with it.
"""

from __future__ import annotations

from collections.abc import Generator

from tidelog.errors import KafkaError
from tidelog.protocol.messages.offsets_within_bytes import (
    OffsetsWithinBytesPartition,
    OffsetsWithinBytesPartitionResult,
    OffsetsWithinBytesRequest,
    OffsetsWithinBytesResponse,
    OffsetsWithinBytesTopicResult,
)
from tidelog.security.authorizer import Operation
from tidelog.server.handlers.asked import by_topic
from tidelog.server.tools import DataContext


def offsets_within_bytes(
    request: OffsetsWithinBytesRequest, context: DataContext
) -> Generator[int, None, OffsetsWithinBytesResponse]:
    response = OffsetsWithinBytesResponse()
    for topic, partitions in (yield from by_topic(request.topics, ("topic",), "partition")):
        answers = []
        for asked in partitions.values():
            answers.append(_answer(topic.topic, asked, request.isolation_level, context))
            yield 1
        response.topics.append(OffsetsWithinBytesTopicResult(topic.topic, answers))
    return response


def _answer(
    topic: str, asked: OffsetsWithinBytesPartition, isolation: int, context: DataContext
) -> OffsetsWithinBytesPartitionResult:
    answer = OffsetsWithinBytesPartitionResult(partition=asked.partition)
    try:
        context.require_topic(Operation.DESCRIBE, topic)
        partition = context.tools.replicas.find(topic, asked.partition)
        partition.check_leader()
        answer.end_offset, answer.size_bytes = partition.reach(
            asked.start_offset, asked.max_bytes, isolation
        )
    except KafkaError as error:
        answer.error_code = error.code
    return answer
