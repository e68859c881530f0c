"""ListOffsets (key 2), versions 1 to 11.

Behaviour: latest (-1) is the high watermark, or the last stable offset for `read_committed`;
earliest (-2) and earliest local (-4) are the log start; max timestamp (-3) is the offset of the
record with the greatest one; latest tiered (-5) and earliest pending upload (-6) are -1, because
nothing is tiered; a time returns the first record at or after it, exact even inside compressed
batches. Times and -3 read and decompress: a thread looks them up before the answer is built. A
partition that is named twice is refused, as in Kafka. While a new leader does not know everything
that was committed before it led, latest, and what a time would find beyond, is
OFFSET_NOT_AVAILABLE: the answer would be below earlier answers. So is earliest while an in-sync
replica, or this broker's disk, has an earlier log start, which the next leader would report. A
replica id changes nothing.
Versions: 4 leader epochs, 5 OFFSET_NOT_AVAILABLE (before it LEADER_NOT_AVAILABLE), 7 max timestamp,
8, 9 and 11 the tiered specials, 10 a timeout (not needed). A special in an older version, and any
other negative number, is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.host.offload import Offload
from tidelog.model import NO_OFFSET, NO_TIMESTAMP, ListedOffset
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.schema import VERSION_MAX
from tidelog.replication.partition import Partition
from tidelog.replication.reading import Reader
from tidelog.security.authorizer import Operation
from tidelog.server.handlers.asked import by_topic
from tidelog.server.tools import DataContext
from tidelog.storage.timestamp_search import (
    FoundRecord,
    newest_timestamp,
    timestamp_searches,
)

# In which a timestamp got its meaning.
_FIRST_VERSION: dict[int, int] = {
    ListedOffset.LATEST: 1,
    ListedOffset.EARLIEST: 1,
    ListedOffset.MAX_TIMESTAMP: 7,
    ListedOffset.EARLIEST_LOCAL: 8,
    ListedOffset.LATEST_TIERED: 9,
    ListedOffset.EARLIEST_PENDING_UPLOAD: 11,
}

_STARTS = (ListedOffset.EARLIEST, ListedOffset.EARLIEST_LOCAL)
# How long to wait for a log's start to be on all disks where it must be.
_START_WAIT_S = 0.5
# In which OFFSET_NOT_AVAILABLE came.
_NOT_AVAILABLE_VERSION = 5

# What was found by topic, partition and timestamp; what went wrong is kept, not raised.
Key = tuple[str, int, int]
Found = dict[Key, FoundRecord | KafkaError | None]
Searched = dict[Key, Partition]


@dataclass(slots=True)
class Asked:
    """The partitions of a request, each once."""

    topics: list[tuple[ListOffsetsTopic, dict[int, ListOffsetsPartition]]]
    repeated: set[tuple[str, int]]
    isolation: int


async def _look_up_all(searched: Searched, offload: Offload) -> Found:
    found: Found = {}
    for key, partition in searched.items():
        try:
            with partition.contained:
                found[key] = await _search(partition, key[2], offload)
        except KafkaError as error:
            found[key] = error
        except StorageError as error:
            found[key] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return found


async def _search(partition: Partition, timestamp: int, offload: Offload) -> FoundRecord | None:
    log = partition.log
    if timestamp in _STARTS:
        deadline = asyncio.get_running_loop().time() + _START_WAIT_S
        with suppress(KafkaError):
            await partition.deleted_everywhere(log.log_start_offset, deadline)
        return None
    if timestamp == ListedOffset.MAX_TIMESTAMP:
        timestamp = newest_timestamp(log)
        if timestamp < 0:
            return None
    for search in timestamp_searches(log, timestamp):
        try:
            found = await offload.run(search.run)
        except OSError as error:
            raise log.segments.unreadable(error) from error
        finally:
            search.release()
        if found is not None:
            return found
    return None


def list_offsets(
    request: ListOffsetsRequest, context: DataContext
) -> Generator[int, None, ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]]:
    repeated: set[tuple[str, int]] = set()
    topics = yield from by_topic(request.topics, ("name",), "partition_index", repeated)
    asked = Asked(topics, repeated, request.isolation_level)
    searched = yield from _to_search(asked, context)
    if searched:
        return _search_and_answer(asked, searched, context)
    return (yield from _answers(asked, {}, context))


def _to_search(asked: Asked, context: DataContext) -> Generator[int, None, Searched]:
    """The timestamps that take a search, each once, and the starts that take a moment."""
    searched: Searched = {}
    for topic, partitions in asked.topics:
        for index, part in partitions.items():
            yield 1
            timestamp = part.timestamp
            is_search = timestamp >= 0 or timestamp == ListedOffset.MAX_TIMESTAMP
            if not (is_search or timestamp in _STARTS) or (topic.name, index) in asked.repeated:
                continue
            try:
                partition = _find(topic.name, part, context)
            except KafkaError:
                continue  # The answer says so.
            if is_search or partition.leading.start_to_tell() < 0:
                searched[topic.name, index, timestamp] = partition
    return searched


async def _search_and_answer(
    asked: Asked, searched: Searched, context: DataContext
) -> ListOffsetsResponse:
    found = await _look_up_all(searched, context.tools.offload)
    return await context.complete(_answers(asked, found, context))


def _answers(
    asked: Asked, found: Found, context: DataContext
) -> Generator[int, None, ListOffsetsResponse]:
    response = ListOffsetsResponse()
    for topic, partitions in asked.topics:
        answers = []
        for index, part in partitions.items():
            answer = ListOffsetsPartitionResponse(
                partition_index=index, timestamp=NO_TIMESTAMP, offset=NO_OFFSET, leader_epoch=-1
            )
            answers.append(answer)
            try:
                if (topic.name, index) in asked.repeated:
                    context.require_topic(Operation.DESCRIBE, topic.name)
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is named twice")
                partition = _find(topic.name, part, context)
                answer.offset, answer.timestamp, epoch = _look_up(
                    partition, part, asked.isolation, found
                )
                if context.version >= 4:
                    answer.leader_epoch = epoch
            except KafkaError as error:
                answer.error_code = _told(error.code, context.version)
            yield 1
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _find(topic: str, asked: ListOffsetsPartition, context: DataContext) -> Partition:
    context.require_topic(Operation.DESCRIBE, topic)
    if asked.timestamp < 0 and context.version < _FIRST_VERSION.get(asked.timestamp, VERSION_MAX):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition = context.tools.replicas.find(topic, asked.partition_index)
    partition.check_reader(asked.current_leader_epoch, Reader.AT_LEADERS)
    return partition


def _look_up(
    partition: Partition, asked: ListOffsetsPartition, isolation: int, found: Found
) -> tuple[int, int, int]:
    """Offset, timestamp and leader epoch; -1 in each place where there is none."""
    end = partition.readable_end(isolation).offset
    timestamp = asked.timestamp
    if timestamp == ListedOffset.LATEST:
        _check_latest(partition)
        return end, NO_TIMESTAMP, partition.leader_epoch
    if timestamp in _STARTS:
        start = partition.leading.start_to_tell()
        if start < 0:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                "not all replicas that may lead next have deleted as much as this one",
            )
        return start, NO_TIMESTAMP, partition.log.epochs.epoch_for(start)
    if timestamp in (ListedOffset.LATEST_TIERED, ListedOffset.EARLIEST_PENDING_UPLOAD):
        return NO_OFFSET, NO_TIMESTAMP, -1
    record = found.get((partition.topic_partition.topic, asked.partition_index, timestamp))
    if isinstance(record, KafkaError):
        raise record
    if record is None or record[0] >= end:
        _check_latest(partition)
        return NO_OFFSET, NO_TIMESTAMP, -1
    return record


def _check_latest(partition: Partition) -> None:
    if not partition.latest_is_known:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            "the leader does not know yet how much earlier leaders had committed",
        )


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """The code in a version that may be older than it."""
    is_new = code is ErrorCode.OFFSET_NOT_AVAILABLE and version < _NOT_AVAILABLE_VERSION
    return ErrorCode.LEADER_NOT_AVAILABLE if is_new else code
