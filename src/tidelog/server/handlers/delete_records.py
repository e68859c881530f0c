"""DeleteRecords (key 21), versions 0 to 2.

Behaviour: moves the start of the log up to the given offset; -1 means the high watermark. Records
before it are never served again, even after a crash: the new start is durable before the answer.
Whole segments below it are deleted; the rest of a segment is deleted with it later. The answer
waits until every replica that is live or may lead has moved its start too, and contains the lowest
one; when the request times out, it is REQUEST_TIMED_OUT, and the others still follow.
"""

from __future__ import annotations

import asyncio

from tidelog.cluster.names import INTERNAL_TOPICS
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidelog.replication.partition import Partition
from tidelog.security.authorizer import Operation
from tidelog.server.handlers.asked import by_topic
from tidelog.server.tools import DataContext


async def delete_records(
    request: DeleteRecordsRequest, context: DataContext
) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    deadline = asyncio.get_running_loop().time() + request.timeout_ms / 1000
    deleted: list[tuple[DeleteRecordsPartitionResult, Partition]] = []
    pace = context.pace()
    topics = await context.complete(by_topic(request.topics, ("name",), "partition_index"))
    for topic, partitions in topics:
        results = []
        for asked in partitions.values():
            await pace.step()
            result = DeleteRecordsPartitionResult(asked.partition_index, low_watermark=-1)
            try:
                partition = _delete(topic.name, asked.partition_index, asked.offset, context)
                deleted.append((result, partition))
            except KafkaError as error:
                result.error_code = error.code
            results.append(result)
        response.topics.append(DeleteRecordsTopicResult(topic.name, results))
    if not deleted:
        return response
    try:
        await context.tools.replicas.checkpoints.write()
    except KafkaError as error:
        # Deleted for those who read now, but not for good: the client is to ask again.
        for topic_result in response.topics:
            for result in topic_result.partitions:
                result.error_code = result.error_code or error.code
        return response
    for result, partition in deleted:
        await pace.step()
        await _await_replicas(result, partition, deadline)
    return response


async def _await_replicas(
    result: DeleteRecordsPartitionResult, partition: Partition, deadline: float
) -> None:
    """Tell how far all replicas that count have deleted, once that is as far as this one has."""
    start = partition.log.log_start_offset
    try:
        partition.check_leader()
        if partition.leading.low_watermark < start:
            await partition.deleted_everywhere(start, deadline)
    except KafkaError as error:
        result.error_code = error.code
        if error.code is not ErrorCode.REQUEST_TIMED_OUT:
            return
    result.low_watermark = partition.leading.low_watermark


def _delete(topic: str, index: int, offset: int, context: DataContext) -> Partition:
    context.require_topic(Operation.DELETE, topic)
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
    partition = context.tools.replicas.find(topic, index)
    partition.check_leader()
    if not partition.config.cleanup_delete:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"records of {topic} cannot be deleted: its cleanup.policy has no delete",
        )
    partition.delete_records(offset)
    return partition
