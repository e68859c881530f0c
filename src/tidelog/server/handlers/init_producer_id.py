"""InitProducerId (key 22), advertised to version 5, served from 0 to 6.

Behaviour: without a transactional id, returns a new producer id from a block that is durable before
its first id is used, so no id is ever used twice; a producer that asks again with its id and epoch
(from version 3) gets a new id too, with epoch 0, as in Kafka. With a transactional id, returns the
id's producer in its next epoch, which fences earlier ones; an open transaction is aborted first,
and meanwhile the answer is CONCURRENT_TRANSACTIONS. A producer that names the id and epoch it holds
is fenced if another producer has started since, and gets the same answer again if it asks twice.
Versions: before 4 a fenced producer gets INVALID_PRODUCER_EPOCH. Version 6 (KIP-939) is not stable
in Kafka 4.3, and is announced only to Tidelog's own clients: with `enable2Pc` no timeout ends the
producer's transactions, if `transaction.two.phase.commit.enable` allows it; with `keepPreparedTxn`
too, an open transaction is taken over instead of aborted, and the answer names its writer. A
two-phase producer that names an id and epoch other than the current ones is fenced, and aborts
nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.coordinators.transactions.settings import check_id
from tidelog.coordinators.transactions.transaction import Coming, Producer
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tidelog.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from tidelog.server.tools import TransactionContext

_VERSION_WITH_FENCED: Final = 4


def init_producer_id(
    request: InitProducerIdRequest, context: TransactionContext
) -> InitProducerIdResponse | asyncio.Future[InitProducerIdResponse]:
    expected = Producer(request.producer_id, request.producer_epoch)
    if request.transactional_id is not None:
        return asyncio.ensure_future(_init(request, expected, request.transactional_id, context))
    # Who may write to some topic may do so idempotently (KIP-679).
    if not (
        context.authorize_any(Operation.WRITE, ResourceType.TOPIC)
        or context.authorize(Operation.IDEMPOTENT_WRITE, CLUSTER)
    ):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if _is_half(expected):
        return _refused(ErrorCode.INVALID_REQUEST)
    ready = context.tools.coordinator.ids.take()
    if ready is not None:
        return InitProducerIdResponse(producer_id=ready, producer_epoch=0)
    return asyncio.ensure_future(_take_from_new_block(context))


def require_id(context: TransactionContext, transactional_id: str) -> None:
    """KafkaError unless the principal may write under the id."""
    context.require(Operation.WRITE, Resource(ResourceType.TRANSACTIONAL_ID, transactional_id))


def told(code: ErrorCode, context: TransactionContext, since: int) -> ErrorCode:
    """The code in words that a client of this version understands; `since` one that is newer."""
    if code is ErrorCode.PRODUCER_FENCED and context.version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _is_half(expected: Producer) -> bool:
    has_no_id = expected.producer_id == NO_PRODUCER_ID
    return has_no_id != (expected.epoch == NO_PRODUCER_EPOCH)


async def _init(
    request: InitProducerIdRequest,
    expected: Producer,
    transactional_id: str,
    context: TransactionContext,
) -> InitProducerIdResponse:
    try:
        require_id(context, transactional_id)
        if request.enable2_pc:
            resource = Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)
            context.require(Operation.TWO_PHASE_COMMIT, resource)
        check_id(transactional_id)
        if _is_half(expected):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        coming = Coming(
            request.transaction_timeout_ms,
            expected,
            request.enable2_pc,
            request.keep_prepared_txn,
            context.user,
        )
        code, producer, ongoing = await context.tools.coordinator.init(transactional_id, coming)
    except KafkaError as error:
        return _refused(error.code)
    code = told(code, context, _VERSION_WITH_FENCED)
    return InitProducerIdResponse(0, code, *producer, *ongoing)


async def _take_from_new_block(context: TransactionContext) -> InitProducerIdResponse:
    try:
        producer_id = await context.tools.coordinator.ids.take_from_new_block()
    except KafkaError as error:
        return _refused(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
