"""FindCoordinator (key 10), versions 0 to 6.

Behaviour: for groups (type 0), returns the leader of the `__consumer_offsets` partition that the
group's name maps to; for transactional ids (type 1), the same of `__transaction_state`. The first
request creates the topic.
Versions: 4 asks for many keys at once.
Gaps: share groups (type 2).
"""

from __future__ import annotations

from tidelog.coordinators.internal_topic import InternalTopic
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import CoordinatorType
from tidelog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.security.authorizer import Operation, Resource, ResourceType
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
        topic = _topic_of(key, key_type, context)
        await topic.ensure()
        image = context.image
        broker = image.brokers.get(topic.leader_of(key))
        address = None if broker is None else address_of(broker, image, context)
        if broker is None or address is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return Coordinator(key, broker.id, *address)
    except KafkaError as error:
        return Coordinator(key, -1, "", -1, error.code, error.message)


def _topic_of(key: str, key_type: int, context: GroupContext) -> InternalTopic:
    """The topic whose leaders coordinate such keys; KafkaError where the client may not know."""
    if key_type == CoordinatorType.TRANSACTION:
        context.require(Operation.DESCRIBE, Resource(ResourceType.TRANSACTIONAL_ID, key))
        return context.tools.transactions.topic
    if key_type != CoordinatorType.GROUP:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"coordinator type {key_type} is not known")
    context.require_group(Operation.DESCRIBE, key)
    return context.tools.coordinator.topic
