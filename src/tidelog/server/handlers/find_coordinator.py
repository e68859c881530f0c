"""FindCoordinator (key 10), versions 0 to 6.

Behaviour: for groups (type 0) the broker that leads the partition of `__consumer_offsets` that the
group's name falls on; the topic is created when it is first asked for. Transactional ids (type 1)
are refused with a fatal error, since a retriable one would make producers ask for ever.
Versions: 4 asks for many keys at once.
Gaps: transactional ids, share groups (type 2).
"""

from __future__ import annotations

from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import CoordinatorType
from tidelog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.security.authorizer import Operation
from tidelog.server.handlers.addresses import address_of
from tidelog.server.handlers.asked import distinct
from tidelog.server.tools import GroupContext


async def find_coordinator(
    request: FindCoordinatorRequest, context: GroupContext
) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if context.version >= 4 else [request.key]
    found, pace = [], context.pace()
    for key in await context.complete(distinct(keys)):
        found.append(await _find(key, request.key_type, context))
        await pace.step()
    if context.version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        # Kafka's word for no error, which clients of that time print.
        error_message=only.error_message or ErrorCode.NONE.name,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _find(key: str, key_type: int, context: GroupContext) -> Coordinator:
    try:
        _check_type(key_type)
        context.require_group(Operation.DESCRIBE, key)
        groups = context.tools.coordinator
        await groups.topic.ensure()
        image = context.image
        broker = image.brokers.get(groups.topic.leader_of(key))
        address = None if broker is None else address_of(broker, image, context)
        if broker is None or address is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return Coordinator(key, broker.id, *address)
    except KafkaError as error:
        return Coordinator(key, -1, "", -1, error.code, error.message)


def _check_type(key_type: int) -> None:
    if key_type == CoordinatorType.TRANSACTION:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactions are not supported by this broker",
        )
    if key_type != CoordinatorType.GROUP:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"coordinator type {key_type} is not known")
