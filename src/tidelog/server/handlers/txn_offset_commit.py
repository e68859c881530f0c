"""TxnOffsetCommit (key 28), versions 0 to 5.

Behaviour: Kafka's. Offsets are pending until the transaction's marker is in the same partition of
`__consumer_offsets`; meanwhile OffsetFetch with `require_stable` reports that they are not stable.
The broker first verifies with the transaction's coordinator that the transaction is open and has
this partition.
Versions: 3 carries member, instance and generation, which are then checked (KIP-447); 4 supports
TRANSACTION_ABORTABLE; from 5 this adds the partition to the transaction (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.coordinators.groups.commits import Commit, Committer
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.outcome import InTransaction, Outcome
from tidelog.coordinators.timers import Now
from tidelog.coordinators.transactions.coordinator import settled
from tidelog.coordinators.transactions.transaction import Producer
from tidelog.coordinators.transactions.verification import Question
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tidelog.security.authorizer import Operation, Resource, ResourceType
from tidelog.server.handlers.asked import by_topic
from tidelog.server.tools import GroupContext
from tidelog.storage.verification import Verification

_VERSION_WITH_ABORTABLE: Final = 4
_VERSION_THAT_ADDS: Final = 5
_AT_ONCE: Final = 500
# What is said of a transaction that cannot be looked up now: ask again.
_PASSING: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


async def txn_offset_commit(
    request: TxnOffsetCommitRequest, context: GroupContext
) -> TxnOffsetCommitResponse:
    response = TxnOffsetCommitResponse()
    commits: list[Commit] = []
    answers: list[TxnOffsetCommitResponsePartition] = []
    pace = context.pace()
    refusal = _refusal(request, context)
    asked = await context.complete(by_topic(request.topics, ("name",), "partition_index"))
    for topic, parts in asked:
        known = context.image.topics.get(topic.name)
        code = refusal
        if code:
            pass
        elif not context.authorize_topic(Operation.READ, topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif known is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = TxnOffsetCommitResponseTopic(topic.name)
        response.topics.append(answer)
        for index, part in parts.items():
            result = TxnOffsetCommitResponsePartition(index, code)
            answer.partitions.append(result)
            await pace.step()
            if known is not None and not code:
                if index not in range(len(known.partitions)):
                    result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                answers.append(result)
                commits.append(
                    Commit(
                        topic.name,
                        known.topic_id,
                        index,
                        part.committed_offset,
                        part.committed_leader_epoch,
                        part.committed_metadata or "",
                    )
                )
    for start in range(0, len(commits), _AT_ONCE):
        end = start + _AT_ONCE
        codes = await _commit(request, commits[start:end], context)
        for result, code in zip(answers[start:end], codes, strict=True):
            result.error_code = code
    return response


def _refusal(request: TxnOffsetCommitRequest, context: GroupContext) -> ErrorCode:
    """Why no offset of the request is committed, whatever its topic."""
    try:
        resource = Resource(ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        context.require(Operation.WRITE, resource)
        context.require_group(Operation.READ, request.group_id)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


async def _commit(
    request: TxnOffsetCommitRequest, commits: list[Commit], context: GroupContext
) -> list[ErrorCode]:
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        verification = await _verified(request, context)
        answer = context.tools.coordinator.call(
            request.group_id, _handler(request, commits, verification, context)
        )
        codes: list[ErrorCode] = await answer if isinstance(answer, asyncio.Future) else answer
    except KafkaError as error:
        codes = [error.code] * len(commits)
    return codes


def _handler(
    request: TxnOffsetCommitRequest,
    commits: list[Commit],
    verification: Verification | None,
    context: GroupContext,
) -> Callable[[GroupShard, Now], Outcome]:
    committer = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        context.version,
        in_transaction=True,
        user=context.user,
    )
    transaction = InTransaction(request.producer_id, request.producer_epoch, verification)

    def commit(shard: GroupShard, now: Now) -> Outcome:
        return shard.commit_in_transaction(request.group_id, committer, commits, transaction, now)

    return commit


async def _verified(request: TxnOffsetCommitRequest, context: GroupContext) -> Verification | None:
    """KafkaError unless the offsets may be written in the producer's transaction now."""
    groups = context.tools.coordinator
    verification = groups.begin_verification(
        request.group_id, request.producer_id, request.producer_epoch
    )
    if verification is None:
        return None
    partition = TopicPartition(OFFSETS_TOPIC, groups.topic.partition_of(request.group_id))
    question = Question(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        [partition],
        adds=context.version >= _VERSION_THAT_ADDS,
    )
    code = (await settled(context.tools.verifier.ask(question)))[partition]
    if code in _PASSING:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"not verified: {code.name}")
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and context.version < _VERSION_THAT_ADDS:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.TRANSACTION_ABORTABLE and context.version < _VERSION_WITH_ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    if code:
        raise KafkaError(code)
    return verification
