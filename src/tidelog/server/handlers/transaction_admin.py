"""DescribeProducers (61, versions 0 to 0), DescribeTransactions (65, 0 to 0), ListTransactions
(66, 0 to 2): who writes in transactions, and since when.

Behaviour: Kafka's. The first shows what the leader of a partition knows of its producers, the
others the transactional ids that this broker coordinates, and only durable state. Long lists are
built in pieces; a transaction that changes meanwhile is shown in its old or its new state.
Versions: ListTransactions 1 filters by how long a transaction is open, in milliseconds, 2 by a
pattern that must match the whole id, in RE2's syntax.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tidelog.coordinators.groups.consumer.expressions import compile_pattern
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now
from tidelog.coordinators.transactions.shard import TransactionShard
from tidelog.coordinators.transactions.transaction import (
    STATES,
    UNUSED_STATES,
    Transaction,
    by_topic,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tidelog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from tidelog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tidelog.protocol.messages.list_transactions import (
    TransactionState as ListedTransaction,
)
from tidelog.security.authorizer import Operation, Resource, ResourceType
from tidelog.server.handlers.asked import by_topic as asked_by_topic
from tidelog.server.handlers.asked import distinct
from tidelog.server.pieces import PIECE_UNITS
from tidelog.server.tools import DataContext, TransactionContext
from tidelog.topic_names import topic_name_fault

# DescribeTransactions


async def describe_transactions(
    request: DescribeTransactionsRequest, context: TransactionContext
) -> DescribeTransactionsResponse:
    response, pace = DescribeTransactionsResponse(), context.pace()
    for each in await context.complete(distinct(request.transactional_ids)):
        response.transaction_states.append(await _describe(each, context))
        await pace.step()
    return response


async def _describe(transactional_id: str, context: TransactionContext) -> TransactionState:
    def look(shard: TransactionShard, _: Now) -> Outcome:
        known = shard.transactions.get(transactional_id)
        if known is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        topics = [
            TopicData(each.topic, each.partition_ids)
            for each in by_topic(known.partitions)
            if context.authorize_topic(Operation.DESCRIBE, each.topic)
        ]
        return Outcome(
            TransactionState(
                ErrorCode.NONE,
                transactional_id,
                known.state.shown,
                known.timeout_ms,
                known.started_ms,
                known.producer_id,
                known.producer_epoch,
                topics,
            )
        )

    try:
        resource = Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)
        context.require(Operation.DESCRIBE, resource)
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        answer = context.tools.coordinator.call(transactional_id, look)
        found: TransactionState = await answer if isinstance(answer, asyncio.Future) else answer
    except KafkaError as error:
        return TransactionState(error.code, transactional_id)
    return found


# ListTransactions


async def list_transactions(
    request: ListTransactionsRequest, context: TransactionContext
) -> ListTransactionsResponse:
    unknown = [
        each for each in request.state_filters if each not in STATES and each not in UNUSED_STATES
    ]
    response, pace = ListTransactionsResponse(unknown_state_filters=unknown), context.pace()
    try:
        wanted = _Wanted(request)
        coordinator = context.tools.coordinator
        shards = [await _settled(each) for each in list(coordinator.call_each(_ids))]
        for ids in shards:
            for start in range(0, len(ids), PIECE_UNITS):
                piece = ids[start : start + PIECE_UNITS]
                found = await _settled(coordinator.call(piece[0], wanted.look(piece)))
                response.transaction_states += (
                    each for each in found if _may_see(each.transactional_id, context)
                )
                for _ in piece:
                    await pace.step()
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    return response


def _ids(shard: TransactionShard, _: Now) -> Outcome:
    return Outcome(list(shard.transactions))


async def _settled(answer: Any) -> Any:
    """What a shard answers, once that is durable."""
    return await answer if isinstance(answer, asyncio.Future) else answer


def _may_see(transactional_id: str, context: TransactionContext) -> bool:
    resource = Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)
    return context.authorize(Operation.DESCRIBE, resource)


class _Wanted:
    """What a request asks for."""

    def __init__(self, request: ListTransactionsRequest) -> None:
        self._is_filtered = bool(request.state_filters)
        self._states = frozenset(request.state_filters)
        self._producers = frozenset(request.producer_id_filters)
        self._duration_ms = request.duration_filter
        pattern = request.transactional_id_pattern
        self._pattern = compile_pattern(pattern) if pattern else None

    def look(self, ids: Sequence[str]) -> Callable[[TransactionShard, Now], Outcome]:
        """Has a shard tell what it has of these."""

        def look(shard: TransactionShard, now: Now) -> Outcome:
            known = (shard.transactions.get(each) for each in ids)
            return Outcome(
                [
                    ListedTransaction(each.transactional_id, each.producer_id, each.state.shown)
                    for each in known
                    if each is not None and self._matches(each, now.wall_ms)
                ]
            )

        return look

    def _matches(self, known: Transaction, now_ms: int) -> bool:
        if self._is_filtered and known.state.shown not in self._states:
            return False
        if self._producers and known.producer_id not in self._producers:
            return False
        if self._duration_ms >= 0 and now_ms - known.started_ms < self._duration_ms:
            return False
        pattern = self._pattern
        return pattern is None or bool(pattern.fullmatch(known.transactional_id.encode()))


# DescribeProducers


async def describe_producers(
    request: DescribeProducersRequest, context: DataContext
) -> DescribeProducersResponse:
    response, pace = DescribeProducersResponse(), context.pace()
    asked = await context.complete(asked_by_topic(request.topics, ("name",), None))
    for topic, indexes in asked:
        answer = TopicResponse(topic.name, [])
        response.topics.append(answer)
        code = ErrorCode.NONE
        if topic_name_fault(topic.name) is not None:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif not context.authorize_topic(Operation.READ, topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for index in indexes:
            answer.partitions.append(
                PartitionResponse(index, code) if code else _producers(topic.name, index, context)
            )
            await pace.step()
    return response


def _producers(topic: str, index: int, context: DataContext) -> PartitionResponse:
    try:
        partition = context.tools.replicas.find(topic, index)
        partition.check_leader()
    except KafkaError as error:
        return PartitionResponse(index, error.code, error.message)
    return PartitionResponse(
        index,
        active_producers=[
            ProducerState(
                each.producer_id,
                each.epoch,
                each.last_sequence,
                each.batches[-1].timestamp if each.batches else each.last_append_ms,
                each.coordinator_epoch,
                each.transaction_first_offset,
            )
            for each in partition.log.producers.states.values()
        ],
    )
