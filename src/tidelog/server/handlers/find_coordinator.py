"""FindCoordinator (key 10), versions 0 to 6.

Behaviour: there are no coordinators yet. Groups (type 0) get COORDINATOR_NOT_AVAILABLE, which a
consumer with assigned partitions shrugs off; transactional ids (type 1) get a fatal error, since
a retriable one would make producers ask for ever. The API is served because librdkafka
compresses with lz4 only where it is.
"""

from __future__ import annotations

from tidelog.errors import ErrorCode
from tidelog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.server.context import RequestContext
from tidelog.server.dispatch import handles

_GROUP = 0
_TRANSACTION = 1


@handles(10)
def find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    code, message = _refusal(request.key_type)
    if context.version < 4:
        return FindCoordinatorResponse(
            error_code=code, error_message=message, node_id=-1, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key, -1, "", -1, code, message) for key in request.coordinator_keys
        ]
    )


def _refusal(key_type: int) -> tuple[ErrorCode, str]:
    if key_type == _GROUP:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "consumer groups are not supported yet"
    if key_type == _TRANSACTION:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return code, "transactions are not supported by this broker"
    return ErrorCode.INVALID_REQUEST, f"coordinator type {key_type} is not known"
