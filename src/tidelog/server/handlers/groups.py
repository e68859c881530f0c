"""JoinGroup (11, versions 0 to 9), Heartbeat (12, 0 to 4), LeaveGroup (13, 0 to 5) and SyncGroup
(14, 0 to 5): the protocol of classic groups.

Behaviour: Kafka's. A rebalance waits for its members up to their longest rebalance timeout; the
first rebalance of an empty group waits for `group.initial.rebalance.delay.ms`. A member that is
silent for its session timeout is removed; time during which the broker's event loop was blocked
does not count. Static members keep their assignment through a restart, and the previous user of
their instance id is fenced. A coordinator that is loading answers so. Metadata and assignments are
the members' own bytes; metadata over 1 MiB is refused. Classic members can also be in a group with
the new consumer protocol: the broker assigns, and tells them to rejoin when their assignment
changes.
Versions: JoinGroup 4 returns the member id first, 5 supports static members, 9 lets a returning
static leader skip the assignment; LeaveGroup 3 accepts several members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tidelog.coordinators.groups.settings import Caller
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.security.authorizer import Operation
from tidelog.server.handlers.heartbeat_again import HeartbeatShortcut
from tidelog.server.routes import served
from tidelog.server.tools import GroupContext

# How many members leave at a stretch, while everything else waits.
_LEAVING_AT_ONCE = 500
# From here on a refused join has no protocol name, before it has an empty one.
_VERSION_WITHOUT_PROTOCOL = 7


@served(waits=True)
async def join_group(request: JoinGroupRequest, context: GroupContext) -> JoinGroupResponse:
    caller = caller_of(context)

    def join(shard: GroupShard, now: Now) -> Outcome:
        return shard.join(request, context.version, caller, now)

    try:
        answer: JoinGroupResponse = await ask(
            context, Operation.READ, request.group_id, join, core_only=True
        )
    except KafkaError as error:
        is_denied = error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        member_id = "" if is_denied else request.member_id
        answer = JoinGroupResponse(error_code=error.code, member_id=member_id)
    if answer.error_code and context.version >= _VERSION_WITHOUT_PROTOCOL:
        answer.protocol_name = None
    return answer


@served(waits=True)
async def sync_group(request: SyncGroupRequest, context: GroupContext) -> SyncGroupResponse:
    def sync(shard: GroupShard, now: Now) -> Outcome:
        return shard.sync(request, now)

    try:
        answer: SyncGroupResponse = await ask(
            context, Operation.READ, request.group_id, sync, core_only=True
        )
    except KafkaError as error:
        answer = SyncGroupResponse(error_code=error.code)
    return answer


@served(is_brief=True, shortcut=HeartbeatShortcut)
def heartbeat(
    request: HeartbeatRequest, context: GroupContext
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    def beat(shard: GroupShard, now: Now) -> Outcome:
        return shard.heartbeat(request, now)

    def refused(error: KafkaError) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=error.code)

    answer: HeartbeatResponse | Awaitable[HeartbeatResponse]
    answer = ask_for_member(context, request.group_id, beat, refused)
    return answer


async def leave_group(request: LeaveGroupRequest, context: GroupContext) -> LeaveGroupResponse:
    def leave(shard: GroupShard, now: Now) -> Outcome:
        return shard.leave(some, context.version, now)

    answer = LeaveGroupResponse()
    for start in range(0, max(1, len(request.members)), _LEAVING_AT_ONCE):
        members = request.members[start : start + _LEAVING_AT_ONCE]
        some = LeaveGroupRequest(request.group_id, request.member_id, members)
        try:
            left: LeaveGroupResponse = await ask(
                context, Operation.READ, request.group_id, leave, core_only=True
            )
        except KafkaError as error:
            return LeaveGroupResponse(error_code=error.code)
        answer.error_code = left.error_code
        answer.members += left.members
        await context.turns.pause()
    return answer


def caller_of(context: GroupContext) -> Caller:
    """Who sent the request, with the host as Java would print it."""
    client_id = context.header.client_id or ""
    host = f"/{context.connection.host}"
    return Caller(client_id, host, context.topic_describer(), context.user)


def ask_for_member(
    context: GroupContext,
    group_id: str,
    handler: Callable[[GroupShard, Now], Outcome],
    refused: Callable[[KafkaError], Any],
) -> Any:
    """A heartbeat's answer: on the spot as a rule, and then without a task."""
    try:
        context.require_group(Operation.READ, group_id)
        answer = context.tools.coordinator.call(group_id, handler, core_only=True)
    except KafkaError as error:
        return refused(error)
    return _settled(answer, refused) if isinstance(answer, asyncio.Future) else answer


async def _settled(answer: asyncio.Future[Any], refused: Callable[[KafkaError], Any]) -> Any:
    try:
        return await answer
    except KafkaError as error:
        return refused(error)


async def ask(
    context: GroupContext,
    operation: Operation,
    group_id: str,
    handler: Callable[[GroupShard, Now], Outcome],
    *,
    core_only: bool = False,
) -> Any:
    """Have the group's shard handle something, if the client may; KafkaError where not.

    With `core_only` the answer rests on members and not on offsets.
    """
    context.require_group(operation, group_id)
    answer = context.tools.coordinator.call(group_id, handler, core_only=core_only)
    if isinstance(answer, asyncio.Future):
        return await answer
    return answer
