"""OffsetCommit (8, versions 2 to 10), OffsetFetch (9, 1 to 10), OffsetDelete (47, 0 to 0).

Behaviour: Kafka's. A commit is answered when it is durable; one of an older generation or of a
replaced member is refused. A group or partition without an offset is answered -1 without an error,
but never while the coordinator loads. An offset of a topic that was deleted and created anew under
its name is not given out. An answer to OffsetFetch shows only what is durable. In groups of the
newer protocol a commit in an older member epoch is taken where the member has owned all of its
partitions since then, and is stale otherwise (KIP-1251).
Versions: OffsetFetch 2 asks for all partitions, 8 for several groups; 9 of both carries a member
epoch; 10 of both names topics by id. `require_stable` (OffsetFetch 7) has nothing to wait for
without transactions.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.coordinators.group_offsets import is_of_another_topic
from tidelog.coordinators.group_records import OffsetCommitValue
from tidelog.coordinators.offset_commits import Commit, Committer
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.settings import Now
from tidelog.coordinators.shard import GroupShard
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_TOPIC_ID
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
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
from tidelog.server.context import RequestContext
from tidelog.server.dispatch import handles
from tidelog.server.handlers.groups import ask

_VERSION_WITH_TOPIC_IDS = 10
_VERSION_WITH_GROUPS = 8


# OffsetCommit


@handles(8)
async def offset_commit(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    commits: list[Commit] = []
    answers: list[OffsetCommitResponsePartition] = []
    for topic in request.topics:
        name, topic_id, code = _commit_topic(topic, context)
        answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(answer)
        for part in topic.partitions:
            result = OffsetCommitResponsePartition(part.partition_index, code)
            answer.partitions.append(result)
            if code:
                continue
            answers.append(result)
            commits.append(
                Commit(
                    name,
                    topic_id,
                    part.partition_index,
                    part.committed_offset,
                    part.committed_leader_epoch,
                    part.committed_metadata or "",
                )
            )
    committer = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        context.version,
    )

    def commit(shard: GroupShard, now: Now) -> Outcome:
        return shard.commit(request.group_id, committer, commits, now, request.retention_time_ms)

    try:
        codes = await ask(context, Operation.READ, request.group_id, commit)
    except KafkaError as error:
        codes = [error.code] * len(answers)
    for result, code in zip(answers, codes, strict=True):
        result.error_code = code
    return response


def _commit_topic(
    topic: OffsetCommitRequestTopic, context: RequestContext
) -> tuple[str, UUID, ErrorCode]:
    if context.version >= _VERSION_WITH_TOPIC_IDS:
        found = context.topic_by_id(topic.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        found = context.image.topics.get(topic.name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    name = topic.name if found is None else found.name
    if not context.authorize_topic(Operation.READ, name):
        return name, NO_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if found is None:
        return name, NO_TOPIC_ID, missing
    return name, found.topic_id, ErrorCode.NONE


# OffsetFetch


@handles(9)
async def offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    if context.version >= _VERSION_WITH_GROUPS:
        groups = [await _fetch(group, context) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in request.topics
        ]
    group = await _fetch(OffsetFetchRequestGroup(request.group_id, topics=topics), context)
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
                        # Version 1 has no other place to tell the error of the group.
                        each.error_code or (group.error_code if context.version < 2 else 0),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ],
        error_code=group.error_code,
    )


async def _fetch(
    asked: OffsetFetchRequestGroup, context: RequestContext
) -> OffsetFetchResponseGroup:
    def look(shard: GroupShard, _: Now) -> Outcome:
        shard.offsets.check_fetch(asked.group_id, asked.member_id, asked.member_epoch)
        return Outcome(
            _all_offsets(shard, asked.group_id, context)
            if asked.topics is None
            else [_topic_offsets(shard, asked.group_id, each, context) for each in asked.topics]
        )

    try:
        topics = await ask(context, Operation.DESCRIBE, asked.group_id, look)
        return OffsetFetchResponseGroup(asked.group_id, topics)
    except KafkaError as error:
        return OffsetFetchResponseGroup(
            asked.group_id,
            [
                OffsetFetchResponseTopics(
                    each.name,
                    each.topic_id,
                    [_no_offset(index, error.code) for index in each.partition_indexes],
                )
                for each in asked.topics or ()
                if context.version < _VERSION_WITH_GROUPS
            ],
            error.code,
        )


def _topic_offsets(
    shard: GroupShard, group_id: str, asked: OffsetFetchRequestTopics, context: RequestContext
) -> OffsetFetchResponseTopics:
    name, topic_id, code = asked.name, NO_TOPIC_ID, ErrorCode.NONE
    if context.version >= _VERSION_WITH_TOPIC_IDS:
        found = context.topic_by_id(asked.topic_id)
        if found is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        found = context.image.topics.get(asked.name)
    if found is not None:
        name, topic_id = found.name, found.topic_id
    if not code and not context.authorize_topic(Operation.DESCRIBE, name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    parts = []
    for index in asked.partition_indexes:
        value = None if code else shard.offsets.find(group_id, name, topic_id, index)
        parts.append(_no_offset(index, code) if value is None else _committed(index, value))
    return OffsetFetchResponseTopics(asked.name, asked.topic_id, parts)


def _all_offsets(
    shard: GroupShard, group_id: str, context: RequestContext
) -> list[OffsetFetchResponseTopics]:
    answers = []
    for name, partitions in shard.offsets.of_group(group_id).items():
        topic = context.image.topics.get(name)
        topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
        if topic is None and context.version >= _VERSION_WITH_TOPIC_IDS:
            continue
        if not context.authorize_topic(Operation.DESCRIBE, name):
            continue
        parts = [
            _committed(index, value)
            for index, value in partitions.items()
            if not is_of_another_topic(value, topic_id)
        ]
        if parts:
            answers.append(OffsetFetchResponseTopics(name, topic_id, parts))
    return answers


def _committed(index: int, value: OffsetCommitValue) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        index, value.offset, value.leader_epoch, value.metadata, ErrorCode.NONE
    )


def _no_offset(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, -1, -1, "", code)


# OffsetDelete


@handles(47)
async def offset_delete(
    request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse:
    response = OffsetDeleteResponse()
    answers: list[OffsetDeleteResponsePartition] = []
    partitions: list[tuple[str, int]] = []
    for topic in request.topics:
        answer = OffsetDeleteResponseTopic(topic.name)
        response.topics.append(answer)
        for part in topic.partitions:
            result = OffsetDeleteResponsePartition(part.partition_index)
            answer.partitions.append(result)
            if not context.authorize_topic(Operation.READ, topic.name):
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic.name not in context.image.topics:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                answers.append(result)
                partitions.append((topic.name, part.partition_index))
    try:
        codes = await ask(
            context,
            Operation.DELETE,
            request.group_id,
            lambda shard, _: shard.delete_offsets(request.group_id, partitions),
        )
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    for result, code in zip(answers, codes, strict=True):
        result.error_code = code
    return response
