"""InitProducerId (key 22), versions 0 to 5.

Behaviour: a new producer id for an idempotent producer, out of a block that is durable before its
first id is given out, so no id is ever given twice. A producer that asks again with its id and
epoch (version 3 on) gets a new id as well, with epoch 0, as Kafka does without transactions.
Gaps: a transactional id is refused with a fatal error until there is a transaction coordinator.
"""

from __future__ import annotations

import asyncio

from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.tools import ProducerContext


def init_producer_id(
    request: InitProducerIdRequest, context: ProducerContext
) -> InitProducerIdResponse | asyncio.Future[InitProducerIdResponse]:
    if request.transactional_id is not None:
        # "Coordinator not available" would make clients ask for ever.
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if request.transactional_id == "":
            code = ErrorCode.INVALID_REQUEST
        return _refused(code)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if not context.authorize(Operation.IDEMPOTENT_WRITE, CLUSTER):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    ready = context.tools.ids.take()
    if ready is not None:
        return InitProducerIdResponse(producer_id=ready, producer_epoch=0)
    return asyncio.ensure_future(_take_from_new_block(context))


async def _take_from_new_block(context: ProducerContext) -> InitProducerIdResponse:
    try:
        producer_id = await context.tools.ids.take_from_new_block()
    except KafkaError as error:
        return _refused(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
