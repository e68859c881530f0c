"""ListOffsets (key 2), versions 1 to 10.

Behaviour: latest (-1) is the high watermark, or the last stable offset for `read_committed`;
earliest (-2) and earliest local (-4) are the log start; max timestamp (-3) is the offset of the
record with the greatest one; latest tiered (-5) is -1, nothing is tiered; any other timestamp gives
the first record at or after it, exact also inside compressed batches.
Versions: 4 leader epochs, 7 max timestamp, 8 and 9 the tiered specials, 10 a timeout (not needed).
"""

from __future__ import annotations

from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_OFFSET, NO_TIMESTAMP
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.replication.partition import Partition
from tidelog.security.authorizer import Operation
from tidelog.server.context import RequestContext
from tidelog.server.dispatch import handles

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5


@handles(2)
def list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    for topic in request.topics:
        answers = [
            _answer(topic.name, asked, request.isolation_level, context)
            for asked in topic.partitions
        ]
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _answer(
    topic: str, asked: ListOffsetsPartition, isolation: int, context: RequestContext
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=NO_TIMESTAMP,
        offset=NO_OFFSET,
        leader_epoch=-1,
    )
    try:
        if not context.authorize_topic(Operation.DESCRIBE, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = context.services.replicas.find(topic, asked.partition_index)
        partition.check_leader(asked.current_leader_epoch)
        answer.offset, answer.timestamp, epoch = _look_up(partition, asked.timestamp, isolation)
        if context.version >= 4:
            answer.leader_epoch = epoch
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def _look_up(partition: Partition, timestamp: int, isolation: int) -> tuple[int, int, int]:
    """Offset, timestamp and leader epoch; -1 in each place where there is none."""
    end = partition.readable_end(isolation).offset
    if timestamp == LATEST:
        return end, NO_TIMESTAMP, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = partition.log.log_start_offset
        return start, NO_TIMESTAMP, partition.log.epochs.epoch_for(start)
    if timestamp == LATEST_TIERED:
        return NO_OFFSET, NO_TIMESTAMP, -1
    if timestamp == MAX_TIMESTAMP:
        found = partition.log.offset_of_max_timestamp()
    elif timestamp < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"timestamp {timestamp} means nothing")
    else:
        found = partition.log.offset_for_timestamp(timestamp)
    if found is None or found[0] >= end:
        return NO_OFFSET, NO_TIMESTAMP, -1
    return found
