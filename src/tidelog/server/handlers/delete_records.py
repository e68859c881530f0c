"""DeleteRecords (key 21), versions 0 to 2.

Behaviour: moves the start of the log up to the offset given, -1 meaning the high watermark. What
lies before it is never served again, also after a crash: the new start is durable before the
answer. Whole segments below it are deleted; the rest of a segment goes with it later.
"""

from __future__ import annotations

from tidelog.cluster.names import INTERNAL_TOPICS
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidelog.security.authorizer import Operation
from tidelog.server.handlers.asked import by_topic
from tidelog.server.tools import DataContext


async def delete_records(
    request: DeleteRecordsRequest, context: DataContext
) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    pace = context.pace()
    topics = await context.complete(by_topic(request.topics, ("name",), "partition_index"))
    for topic, partitions in topics:
        results = []
        for asked in partitions.values():
            await pace.step()
            result = DeleteRecordsPartitionResult(asked.partition_index, low_watermark=-1)
            try:
                result.low_watermark = _delete(
                    topic.name, asked.partition_index, asked.offset, context
                )
            except KafkaError as error:
                result.error_code = error.code
            results.append(result)
        response.topics.append(DeleteRecordsTopicResult(topic.name, results))
    try:
        await context.tools.replicas.checkpoint()
    except KafkaError as error:
        # Deleted for those who read now, but not for good: the client is to ask again.
        for topic_result in response.topics:
            for result in topic_result.partitions:
                result.error_code = result.error_code or error.code
    return response


def _delete(topic: str, index: int, offset: int, context: DataContext) -> int:
    if not context.authorize_topic(Operation.DELETE, topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
    partition = context.tools.replicas.find(topic, index)
    partition.check_leader()
    if not partition.config.cleanup_delete:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"records of {topic} cannot be deleted: its cleanup.policy has no delete",
        )
    return partition.delete_records(offset)
