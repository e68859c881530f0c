"""AddPartitionsToTxn (24, versions 0 to 5), AddOffsetsToTxn (25, 0 to 4), EndTxn (26, 0 to 5):
what producers, and brokers in their name, say to the coordinator of a transaction.

Behaviour: Kafka's. Partitions are in a transaction once that is durable; if one of a request cannot
be added, none is. An end is answered when its decision is durable, before the partitions have it;
until they do, the producer's next transaction waits a moment, and then gets
CONCURRENT_TRANSACTIONS.
Versions: AddPartitionsToTxn 4 and 5 are only for brokers, which ask for several transactions at
once, with version 1 of the transaction protocol only to verify. EndTxn 5 is version 2 of that
protocol (KIP-890): the answer contains the id and epoch to continue with. Before version 2 of each,
a fenced producer gets INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Iterable, Sequence
from typing import Any, Final

from tidelog.cluster.names import INTERNAL_TOPICS, OFFSETS_TOPIC
from tidelog.coordinators.transactions.coordinator import Codes, settled
from tidelog.coordinators.transactions.ends import Ending
from tidelog.coordinators.transactions.settings import check_id
from tidelog.coordinators.transactions.shard import Answer
from tidelog.coordinators.transactions.transaction import Producer
from tidelog.coordinators.transactions.verification import Question, answer
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition
from tidelog.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.handlers.asked import distinct_by
from tidelog.server.handlers.init_producer_id import require_id, told
from tidelog.server.tools import TransactionContext

_VERSION_FOR_BROKERS: Final = 4
_VERSION_WITH_FENCED: Final = 2
_VERSION_OF_V2: Final = 5


# AddPartitionsToTxn


async def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: TransactionContext
) -> AddPartitionsToTxnResponse:
    if context.version >= _VERSION_FOR_BROKERS:
        return await _add_for_brokers(request, context)
    partitions, pace = [], context.pace()
    for topic in request.v3_and_below_topics:
        for index in topic.partitions:
            partitions.append(TopicPartition(topic.name, index))
            await pace.step()
    partitions = list(dict.fromkeys(partitions))
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    codes = await _add(request.v3_and_below_transactional_id, producer, partitions, context)
    results = await context.complete(_results(partitions, codes, context))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


async def _add(
    transactional_id: str,
    producer: Producer,
    partitions: Sequence[TopicPartition],
    context: TransactionContext,
) -> Codes:
    try:
        require_id(context, transactional_id)
        check_id(transactional_id)
        refused = _refused(partitions, context)
        if refused:
            return {
                each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions
            }
        coordinator = context.tools.coordinator
        code = await settled(coordinator.add_partitions(transactional_id, producer, partitions))
    except KafkaError as error:
        code = error.code
    return dict.fromkeys(partitions, code)


def _refused(
    partitions: Iterable[TopicPartition], context: TransactionContext, *, by_client: bool = True
) -> Codes:
    """Those that do not exist, or that the client may not write to; its broker has asked that."""
    topics = context.image.topics
    found: Codes = {}
    allowed: dict[str, bool] = {}
    for each in partitions:
        may = allowed.get(each.topic)
        if may is None:
            # Groups' offsets are added by AddOffsetsToTxn, or by the broker that has them.
            may = allowed[each.topic] = not by_client or (
                each.topic not in INTERNAL_TOPICS
                and context.authorize_topic(Operation.WRITE, each.topic)
            )
        topic = topics.get(each.topic)
        if not may:
            found[each] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or not 0 <= each.partition < len(topic.partitions):
            found[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return found


def _results(
    partitions: Iterable[TopicPartition], codes: Codes, context: TransactionContext
) -> Generator[int, None, list[AddPartitionsToTxnTopicResult]]:
    found: dict[str, AddPartitionsToTxnTopicResult] = {}
    for each in partitions:
        topic = found.setdefault(each.topic, AddPartitionsToTxnTopicResult(each.topic, []))
        code = told(codes[each], context, _VERSION_WITH_FENCED)
        topic.results_by_partition.append(AddPartitionsToTxnPartitionResult(each.partition, code))
        yield 1
    return list(found.values())


async def _add_for_brokers(
    request: AddPartitionsToTxnRequest, context: TransactionContext
) -> AddPartitionsToTxnResponse:
    """Many transactions at once; each waits for its own end, if one is under way."""
    if not context.authorize(Operation.CLUSTER_ACTION, CLUSTER):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked, _ = await context.complete(distinct_by(request.transactions, "transactional_id"))
    questions = [_question(each) for each in asked]
    answers = await asyncio.gather(*(_answer(each, context) for each in questions))
    response = AddPartitionsToTxnResponse()
    for question, codes in zip(questions, answers, strict=True):
        results = await context.complete(_results(question.partitions, codes, context))
        response.results_by_transaction.append(
            AddPartitionsToTxnResult(question.transactional_id, results)
        )
    return response


def _question(asked: AddPartitionsToTxnTransaction) -> Question:
    return Question(
        asked.transactional_id,
        Producer(asked.producer_id, asked.producer_epoch),
        _partitions(asked.topics),
        adds=not asked.verify_only,
    )


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    named = (TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)
    return list(dict.fromkeys(named))


async def _answer(question: Question, context: TransactionContext) -> Codes:
    try:
        check_id(question.transactional_id)
        refused: Codes = {}
        if question.adds:
            refused = _refused(question.partitions, context, by_client=False)
        if refused:
            others = ErrorCode.OPERATION_NOT_ATTEMPTED
            return {each: refused.get(each, others) for each in question.partitions}
        return await settled(answer(context.tools.coordinator, question))
    except KafkaError as error:
        return question.all(error.code)


# AddOffsetsToTxn


async def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, context: TransactionContext
) -> AddOffsetsToTxnResponse:
    try:
        require_id(context, request.transactional_id)
        context.require_group(Operation.READ, request.group_id)
        check_id(request.transactional_id)
        groups = context.tools.groups.topic
        await groups.ensure()
        partition = TopicPartition(OFFSETS_TOPIC, groups.partition_of(request.group_id))
        producer = Producer(request.producer_id, request.producer_epoch)
        coordinator = context.tools.coordinator
        adding = coordinator.add_partitions(request.transactional_id, producer, [partition])
        code = await settled(adding)
    except KafkaError as error:
        code = error.code
    return AddOffsetsToTxnResponse(error_code=told(code, context, _VERSION_WITH_FENCED))


# EndTxn


def end_txn(
    request: EndTxnRequest, context: TransactionContext
) -> EndTxnResponse | Coroutine[Any, Any, EndTxnResponse]:
    try:
        require_id(context, request.transactional_id)
        check_id(request.transactional_id)
        ended = context.tools.coordinator.end(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            Ending(request.committed, 2 if context.version >= _VERSION_OF_V2 else 1),
        )
    except KafkaError as error:
        ended = Answer(error.code)
    return _ended(ended, context) if isinstance(ended, Answer) else _end_later(ended, context)


async def _end_later(
    ending: Coroutine[Any, Any, Answer], context: TransactionContext
) -> EndTxnResponse:
    try:
        ended = await ending
    except KafkaError as error:
        ended = Answer(error.code)
    return _ended(ended, context)


def _ended(ended: Answer, context: TransactionContext) -> EndTxnResponse:
    code = told(ended.code, context, _VERSION_WITH_FENCED)
    return EndTxnResponse(0, code, *ended.producer)
