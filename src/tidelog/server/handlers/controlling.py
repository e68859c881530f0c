"""FollowMetadata (20001, versions 0 to 0), SubmitCommand (20002, versions 0 to 1): our own.

Behaviour: both are only for brokers, and are answered by the broker that is the controller; others
answer NOT_CONTROLLER. FollowMetadata waits for something newer than the caller has. SubmitCommand
executes commands for a principal that the caller has already checked. Both are served before the
broker itself is ready: brokers that start at the same time need the metadata to recover.

Versions: with version 1 of SubmitCommand, the controller's broker applies the mutation quota to a
client of another broker, so that the client does not get the quota once on each.
"""

from __future__ import annotations

from tidelog.cluster.commands import Command
from tidelog.cluster.controller import Controller, not_controller
from tidelog.cluster.controller_link import (
    Mutations,
    decide_here,
    decode_commands,
    encode_outcomes,
)
from tidelog.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.protocol.messages.follow_metadata import (
    FollowMetadataRequest,
    FollowMetadataResponse,
)
from tidelog.protocol.messages.submit_command import SubmitCommandRequest, SubmitCommandResponse
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.routes import served
from tidelog.server.tools import ControllerContext

# No peer makes the controller wait longer for it than this.
_WAIT_MAX_MS = 60_000


def own_controller(context: ControllerContext) -> Controller:
    """The controller, if it is here and another broker asks; KafkaError otherwise."""
    context.require(Operation.CLUSTER_ACTION, CLUSTER)
    controller = context.tools.membership.controller
    if controller is None:
        raise not_controller()
    return controller


@served(waits=True)
async def follow_metadata(
    request: FollowMetadataRequest, context: ControllerContext
) -> FollowMetadataResponse:
    try:
        controller = own_controller(context)
        update = await controller.changes_after(
            request.version, _seconds(request.timeout_ms), request.controller_epoch
        )
        encoded = await context.tools.updates.encode(update, controller.image.controller_epoch)
    except KafkaError as error:
        return FollowMetadataResponse(error_code=error.code, error_message=error.message)
    return FollowMetadataResponse(update=encoded)


@served(waits=True)
async def submit_command(
    request: SubmitCommandRequest, context: ControllerContext
) -> SubmitCommandResponse:
    try:
        controller = own_controller(context)
        commands = _commands(request)
        decided = await decide_here(controller, commands, _seconds(request.timeout_ms))
    except KafkaError as error:
        return SubmitCommandResponse(error_code=error.code, error_message=error.message)
    charged = context.throttling.charge(
        Mutations(
            request.quota_user,
            request.quota_client_id,
            request.quota_is_strict,
            request.mutations,
        )
    )
    return SubmitCommandResponse(
        version=decided.version,
        outcomes=encode_outcomes(decided.outcomes),
        mutations_taken=charged.taken,
        throttle_time_ms=charged.throttle_ms,
    )


def _commands(request: SubmitCommandRequest) -> tuple[Command, ...]:
    try:
        return decode_commands(request.commands)
    except ProtocolError as error:
        # Of a newer version, most likely; the caller must know that nothing was done.
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _seconds(timeout_ms: int) -> float:
    return min(max(timeout_ms, 0), _WAIT_MAX_MS) / 1000
