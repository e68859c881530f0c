"""DescribeGroups (15, versions 0 to 6), ListGroups (16, 0 to 5), DeleteGroups (42, 0 to 2).

Behaviour: Kafka's. Only groups without members can be deleted, together with their offsets. A group
that only has offsets is listed as Empty, without a protocol type.
Versions: ListGroups 4 filters by state, 5 by type; DescribeGroups 6 answers an unknown group with
an error, before with the state Dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from tidelog.coordinators.groups.classic.group import GroupState
from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.outcome import Outcome
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from tidelog.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tidelog.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from tidelog.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from tidelog.server.handlers.asked import distinct
from tidelog.server.handlers.groups import ask
from tidelog.server.tools import GroupContext

T = TypeVar("T")

_VERSION_WITH_ERRORS = 6


async def describe_groups(
    request: DescribeGroupsRequest, context: GroupContext
) -> DescribeGroupsResponse:
    operations = request.include_authorized_operations
    return DescribeGroupsResponse(
        groups=await describe_each(request.groups, operations, _describe, context)
    )


async def describe_each(
    group_ids: Iterable[str],
    with_operations: bool,
    describe: Callable[[str, GroupContext], Awaitable[Any]],
    context: GroupContext,
) -> list[Any]:
    """The groups; with what the client may do with each that was found, if it wants to know."""
    found = await _each_group(group_ids, describe, context)
    for group in found:
        if with_operations and not group.error_code:
            resource = Resource(ResourceType.GROUP, group.group_id)
            group.authorized_operations = context.allowed_operations(resource)
    return found


async def _each_group(
    group_ids: Iterable[str],
    serve: Callable[[str, GroupContext], Awaitable[T]],
    context: GroupContext,
) -> list[T]:
    """What comes of each group, every one once, with a pause now and then."""
    found, pace = [], context.pace()
    for group_id in await context.complete(distinct(group_ids)):
        found.append(await serve(group_id, context))
        await pace.step()
    return found


async def ask_to_describe(
    group_id: str, describe: Callable[[GroupShard, str], Any], context: GroupContext
) -> Any:
    return await ask(
        context, Operation.DESCRIBE, group_id, lambda shard, _: Outcome(describe(shard, group_id))
    )


async def _describe(group_id: str, context: GroupContext) -> DescribedGroup:
    try:
        found: DescribedGroup = await ask_to_describe(group_id, GroupShard.describe, context)
        return found
    except KafkaError as error:
        described = DescribedGroup(error_code=error.code, group_id=group_id)
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            described.group_state = GroupState.DEAD
            if context.version < _VERSION_WITH_ERRORS:
                described.error_code = ErrorCode.NONE
            else:
                described.error_message = error.message
        return described


async def list_groups(request: ListGroupsRequest, context: GroupContext) -> ListGroupsResponse:
    states = {each.lower() for each in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    response = ListGroupsResponse()
    pace = context.pace()
    try:
        answers = list(
            context.tools.coordinator.call_each(lambda shard, _: Outcome(list(shard.list_groups())))
        )
        for answer in answers:
            listed = await answer if isinstance(answer, asyncio.Future) else answer
            for each in listed:
                if (
                    (not states or each.group_state.lower() in states)
                    and (not types or each.group_type.lower() in types)
                    and _may_see(each, context)
                ):
                    response.groups.append(each)
                await pace.step()
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    return response


def _may_see(group: ListedGroup, context: GroupContext) -> bool:
    return context.may(Operation.DESCRIBE, CLUSTER) or context.authorize_group(
        Operation.DESCRIBE, group.group_id
    )


async def delete_groups(
    request: DeleteGroupsRequest, context: GroupContext
) -> DeleteGroupsResponse:
    results = await _each_group(request.groups_names, _delete, context)
    return DeleteGroupsResponse(results=results)


async def _delete(group_id: str, context: GroupContext) -> DeletableGroupResult:
    try:
        await ask(
            context, Operation.DELETE, group_id, lambda shard, _: shard.delete_group(group_id)
        )
    except KafkaError as error:
        return DeletableGroupResult(group_id, error.code)
    return DeletableGroupResult(group_id)
