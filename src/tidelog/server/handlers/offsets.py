"""OffsetCommit (8, versions 2 to 10), OffsetFetch (9, 1 to 10), OffsetDelete (47, 0 to 0).

Behaviour: Kafka's. A commit is answered when it is durable; a commit from an older generation or a
replaced member is refused. A group or partition without an offset is answered -1 without an error,
but never while the coordinator loads. The offset of a deleted topic is not returned for a new topic
with the same name. An answer to OffsetFetch contains only durable offsets. With the new consumer
protocol, a commit in an older member epoch is accepted if the member has owned all of its
partitions since then, and is stale otherwise (KIP-1251).
Versions: OffsetFetch 2 asks for all partitions, 8 for several groups; 9 of both carries a member
epoch; 10 of both names topics by id. With `require_stable` (OffsetFetch 7) a partition whose offset
an open transaction may yet change is answered with UNSTABLE_OFFSET_COMMIT.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from itertools import islice
from typing import Any
from uuid import UUID

from tidelog.coordinators.groups.commits import Commit, Committer
from tidelog.coordinators.groups.records import OffsetCommitValue
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_TOPIC_ID
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tidelog.security.authorizer import Operation
from tidelog.server.handlers.asked import by_topic, distinct_by
from tidelog.server.handlers.commit_again import CommitShortcut
from tidelog.server.handlers.groups import ask
from tidelog.server.pieces import first_piece
from tidelog.server.routes import served
from tidelog.server.tools import GroupContext

_VERSION_WITH_TOPIC_IDS = 10
_VERSION_WITH_GROUPS = 8
# Of the group as a whole; before, each partition has it.
_VERSION_WITH_ERROR = 2
_INDEX = "partition_index"
# How many offsets a shard deals with at a stretch, while everything else waits.
_OFFSETS_AT_ONCE = 500


# OffsetCommit


@served(waits=True, is_brief=True, shortcut=CommitShortcut)
def offset_commit(request: OffsetCommitRequest, context: GroupContext) -> Any:
    steps = by_topic(request.topics, ("name", "topic_id"), _INDEX)
    _, asked = first_piece(steps)
    if not isinstance(asked, list):
        return _commit_many(request, steps, context)
    commits = _Commits(request, context)
    for topic, parts in asked:
        commits.begin(topic)
        for index, part in parts.items():
            commits.add(index, part)
    return commits.gather()


async def _commit_many(
    request: OffsetCommitRequest, steps: Generator[int, None, Any], context: GroupContext
) -> OffsetCommitResponse:
    """The same with a pause now and then, and some offsets at a time."""
    commits, pace = _Commits(request, context), context.pace()
    for topic, parts in await context.complete(steps):
        commits.begin(topic)
        for index, part in parts.items():
            if commits.add(index, part) == _OFFSETS_AT_ONCE:
                await commits.settle()
            await pace.step()
    await commits.settle()
    return commits.response


class _Commits:
    """The offsets of a request on their way to the group's shard, and the answer to it."""

    __slots__ = (
        "_answers", "_commits", "_committer", "_context", "_may_commit", "_request", "_topic",
        "response",
    )  # fmt: skip

    def __init__(self, request: OffsetCommitRequest, context: GroupContext) -> None:
        self.response = OffsetCommitResponse()
        self._request = request
        self._context = context
        self._committer = Committer(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            context.version,
            user=context.user,
        )
        self._may_commit = context.authorize_group(Operation.READ, request.group_id)
        self._topic: tuple[str, UUID, ErrorCode]
        self._commits: list[Commit] = []
        self._answers: list[OffsetCommitResponsePartition] = []

    def begin(self, topic: OffsetCommitRequestTopic) -> None:
        """What is added from now on is of this topic."""
        if self._may_commit:
            self._topic = _commit_topic(topic, self._context)
        else:
            self._topic = topic.name, NO_TOPIC_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED
        answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        self.response.topics.append(answer)

    def add(self, index: int, part: OffsetCommitRequestPartition) -> int:
        """Take an offset along; how many there are by now."""
        name, topic_id, code = self._topic
        result = OffsetCommitResponsePartition(index, code)
        self.response.topics[-1].partitions.append(result)
        if not code:
            self._answers.append(result)
            self._commits.append(
                Commit(
                    name,
                    topic_id,
                    index,
                    part.committed_offset,
                    part.committed_leader_epoch,
                    part.committed_metadata or "",
                )
            )
        return len(self._commits)

    def gather(self) -> OffsetCommitResponse | asyncio.Future[Any]:
        """Have all that was added committed; the answer when that is done."""
        group_id = self._request.group_id
        if not self._commits:
            return self.response
        try:
            return self._context.tools.coordinator.gather(group_id, self._commit, self._refused)
        except KafkaError as error:
            return self._refused(error)

    async def settle(self) -> None:
        """The same, and be ready for more."""
        answer = self.gather()
        if isinstance(answer, asyncio.Future):
            await answer
        self._commits, self._answers = [], []

    def _commit(self, shard: GroupShard, now: Now) -> Outcome:
        request, commits = self._request, self._commits
        retention_ms = request.retention_time_ms
        outcome = shard.commit(request.group_id, self._committer, commits, now, retention_ms)
        for result, code in zip(self._answers, outcome.answer, strict=True):
            result.error_code = code
        outcome.answer = self.response
        return outcome

    def _refused(self, error: KafkaError) -> OffsetCommitResponse:
        for result in self._answers:
            result.error_code = error.code
        return self.response


def _commit_topic(
    topic: OffsetCommitRequestTopic, context: GroupContext
) -> tuple[str, UUID, ErrorCode]:
    if context.version >= _VERSION_WITH_TOPIC_IDS:
        found = context.topic_by_id(topic.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        found = context.image.topics.get(topic.name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    name = topic.name if found is None else found.name
    is_known_by_name = found is not None or context.version < _VERSION_WITH_TOPIC_IDS
    if is_known_by_name and not context.authorize_topic(Operation.READ, name):
        return name, NO_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if found is None:
        return name, NO_TOPIC_ID, missing
    return name, found.topic_id, ErrorCode.NONE


# OffsetFetch


async def offset_fetch(request: OffsetFetchRequest, context: GroupContext) -> OffsetFetchResponse:
    if context.version >= _VERSION_WITH_GROUPS:
        asked, _ = await context.complete(distinct_by(request.groups, "group_id"))
        pace = context.pace()
        groups = []
        for each in asked:
            groups.append(await _fetch(each, request.require_stable, context))
            await pace.step()
        return OffsetFetchResponse(groups=groups)
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in request.topics
        ]
    asked_group = OffsetFetchRequestGroup(request.group_id, topics=topics)
    group = await _fetch(asked_group, request.require_stable, context)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(
                        each.partition_index,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.metadata,
                        each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ],
        error_code=group.error_code,
    )


async def _fetch(
    asked: OffsetFetchRequestGroup, require_stable: bool, context: GroupContext
) -> OffsetFetchResponseGroup:
    topics: list[tuple[OffsetFetchRequestTopics, Iterable[int]]] = []
    try:
        if asked.topics is None:
            topics = await _committed_topics(asked, context)
        else:
            named = by_topic(asked.topics, ("name", "topic_id"), None)
            topics = [*await context.complete(named)]
        answers = await _offsets(asked, topics, require_stable, context)
        return OffsetFetchResponseGroup(asked.group_id, answers)
    except KafkaError as error:
        return OffsetFetchResponseGroup(
            asked.group_id,
            [
                OffsetFetchResponseTopics(
                    topic.name,
                    topic.topic_id,
                    [_no_offset(index, error.code) for index in indexes],
                )
                for topic, indexes in topics
                if context.version < _VERSION_WITH_ERROR
            ],
            error.code,
        )


async def _committed_topics(
    asked: OffsetFetchRequestGroup, context: GroupContext
) -> list[tuple[OffsetFetchRequestTopics, Iterable[int]]]:
    """Everything that the group has committed and the client may see."""

    def look(shard: GroupShard, _: Now) -> Outcome:
        shard.offsets.check_fetch(asked.group_id, asked.member_id, asked.member_epoch)
        found = []
        for name, partitions in shard.offsets.of_group(asked.group_id).items():
            topic = context.image.topics.get(name)
            if topic is None and context.version >= _VERSION_WITH_TOPIC_IDS:
                continue
            if context.authorize_topic(Operation.DESCRIBE, name):
                topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
                found.append((OffsetFetchRequestTopics(name, topic_id), list(partitions)))
        return Outcome(found)

    found: list[tuple[OffsetFetchRequestTopics, Iterable[int]]]
    found = await ask(context, Operation.DESCRIBE, asked.group_id, look)
    return found


async def _offsets(
    asked: OffsetFetchRequestGroup,
    topics: list[tuple[OffsetFetchRequestTopics, Iterable[int]]],
    require_stable: bool,
    context: GroupContext,
) -> list[OffsetFetchResponseTopics]:
    """The offsets of these partitions, looked up so many at a time.

    Each time the answer waits until what it shows is durable.
    """
    pace = context.pace()
    answers, named = [], []
    for topic, _ in topics:
        answers.append(OffsetFetchResponseTopics(topic.name, topic.topic_id, []))
        named.append(_named_topic(topic, context))
        await pace.step()
    wanted = ((place, index) for place, (_, indexes) in enumerate(topics) for index in indexes)
    finds_all = asked.topics is None

    def look(shard: GroupShard, _: Now) -> Outcome:
        shard.offsets.check_fetch(asked.group_id, asked.member_id, asked.member_epoch)
        found: list[tuple[int, OffsetFetchResponsePartitions | None]] = []
        for place, index in islice(wanted, _OFFSETS_AT_ONCE):
            name, topic_id, code = named[place]
            value = None if code else shard.offsets.find(asked.group_id, name, topic_id, index)
            unstable = require_stable and shard.offsets.is_unstable(asked.group_id, name, index)
            if unstable and not code:
                found.append((place, _no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)))
            elif value is not None:
                found.append((place, _committed(index, value)))
            elif not finds_all:
                found.append((place, _no_offset(index, code)))
            else:
                found.append((place, None))
        return Outcome(found)

    while True:
        found = await ask(context, Operation.DESCRIBE, asked.group_id, look)
        for place, answer in found:
            if answer is not None:
                answers[place].partitions.append(answer)
            await pace.step()
        if len(found) < _OFFSETS_AT_ONCE:
            return [each for each in answers if each.partitions or not finds_all]


def _named_topic(
    asked: OffsetFetchRequestTopics, context: GroupContext
) -> tuple[str, UUID, ErrorCode]:
    name, topic_id, code = asked.name, NO_TOPIC_ID, ErrorCode.NONE
    if asked.name == "" and context.version >= _VERSION_WITH_TOPIC_IDS:
        found = context.topic_by_id(asked.topic_id)
        if found is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        found = context.image.topics.get(asked.name)
    if found is not None:
        name, topic_id = found.name, found.topic_id
    if not code and not context.authorize_topic(Operation.DESCRIBE, name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return name, topic_id, code


def _committed(index: int, value: OffsetCommitValue) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        index, value.offset, value.leader_epoch, value.metadata, ErrorCode.NONE
    )


def _no_offset(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, -1, -1, "", code)


# OffsetDelete


async def offset_delete(
    request: OffsetDeleteRequest, context: GroupContext
) -> OffsetDeleteResponse:
    response = OffsetDeleteResponse()
    answers: list[OffsetDeleteResponsePartition] = []
    partitions: list[tuple[str, int]] = []
    pace = context.pace()
    for topic, parts in await context.complete(by_topic(request.topics, ("name",), _INDEX)):
        answer = OffsetDeleteResponseTopic(topic.name)
        response.topics.append(answer)
        code = ErrorCode.NONE
        if not context.authorize_topic(Operation.READ, topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic.name not in context.image.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for index in parts:
            result = OffsetDeleteResponsePartition(index, code)
            answer.partitions.append(result)
            if not code:
                answers.append(result)
                partitions.append((topic.name, index))
            await pace.step()
    for start in range(0, max(1, len(partitions)), _OFFSETS_AT_ONCE):
        end = start + _OFFSETS_AT_ONCE
        try:
            codes = await _delete(request.group_id, partitions[start:end], context)
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=error.code)
        for result, code in zip(answers[start:end], codes, strict=True):
            result.error_code = code
    return response


async def _delete(
    group_id: str, partitions: list[tuple[str, int]], context: GroupContext
) -> list[ErrorCode]:
    def delete(shard: GroupShard, _: Now) -> Outcome:
        return shard.delete_offsets(group_id, partitions)

    codes: list[ErrorCode] = await ask(context, Operation.DELETE, group_id, delete)
    return codes
