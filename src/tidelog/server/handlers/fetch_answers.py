"""What a fetch tells of one partition, and what it remembers to have told."""

from __future__ import annotations

from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.replication.reading import PartitionRead
from tidelog.server.fetch_sessions import FetchTarget

_VERSION_WITH_ERROR = 7


class DivergingEpochError(KafkaError):
    """Not an error on the wire: the answer tells the reader where to step back to."""

    def __init__(self, leader_epoch: int, end_offset: int) -> None:
        super().__init__(ErrorCode.NONE)
        self.leader_epoch = leader_epoch
        self.end_offset = end_offset


def refused(request: FetchRequest, code: ErrorCode, version: int) -> FetchResponse:
    """A refusal of the whole request; the first versions can tell it of each partition alone."""
    answer = FetchResponse(error_code=code)
    for topic in request.topics if version < _VERSION_WITH_ERROR else ():
        partitions = [
            PartitionData(each.partition, code, -1, -1, -1, records=b"")
            for each in topic.partitions
        ]
        answer.responses.append(FetchableTopicResponse(topic.topic, partitions=partitions))
    return answer


def partition_data(target: FetchTarget, read: PartitionRead | KafkaError) -> PartitionData:
    data = PartitionData(partition_index=target.key[2], records=b"")
    if isinstance(read, DivergingEpochError):
        data.diverging_epoch = EpochEndOffset(read.leader_epoch, read.end_offset)
        data.aborted_transactions = None
        return data
    if isinstance(read, KafkaError):
        data.error_code = read.code
        if not target.is_missing or read.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            data.aborted_transactions = None
        data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
        return data
    data.high_watermark = read.high_watermark
    data.last_stable_offset = read.last_stable_offset
    data.log_start_offset = read.log_start_offset
    data.preferred_read_replica = read.preferred_replica
    if read.aborted is None:
        data.aborted_transactions = None
    else:
        data.aborted_transactions = [
            AbortedTransaction(producer_id, first) for producer_id, first in read.aborted
        ]
    if read.slices is not None:
        data.records = read.slices
    return data


def has_changed(target: FetchTarget, read: PartitionRead) -> bool:
    """Whether a partition without records has something to tell all the same."""
    return (
        target.told_error
        or target.told_high_watermark != read.high_watermark
        or target.told_last_stable != read.last_stable_offset
        or target.told_log_start != read.log_start_offset
    )


def remember(target: FetchTarget, data: PartitionData) -> None:
    target.told_high_watermark = data.high_watermark
    target.told_last_stable = data.last_stable_offset
    target.told_log_start = data.log_start_offset
    target.told_error = data.error_code != 0
