"""ConsumerGroupHeartbeat (68, versions 0 to 1) and ConsumerGroupDescribe (69, 0 to 1): the
protocol of consumer groups (KIP-848), `group.protocol=consumer`.

Behaviour: Kafka's. The broker assigns, `uniform` or `range`, and moves members to the assignment
one by one: a partition goes to its new owner when the previous owner has released it or was fenced.
Members are fenced after `group.consumer.session.timeout.ms` of silence, or if they do not release
partitions within their own rebalance timeout. Regular expressions are RE2's and match whole names;
they are resolved after the answer. A classic group that such a member joins becomes a consumer
group, and is classic again when the last one has left, if `group.consumer.migration.policy` allows
it.
Versions: ConsumerGroupHeartbeat 1 requires member ids that the client generates.
Gaps: racks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterable, Iterator

from tidelog.coordinators.groups.shard import GroupShard
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.security.authorizer import Operation
from tidelog.server.handlers.asked import distinct
from tidelog.server.handlers.group_admin import ask_to_describe, describe_each
from tidelog.server.handlers.groups import ask_for_member, caller_of
from tidelog.server.handlers.heartbeat_again import ConsumerHeartbeatShortcut
from tidelog.server.routes import served
from tidelog.server.tools import GroupContext

_Beat = ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]


@served(shortcut=ConsumerHeartbeatShortcut)
def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: GroupContext
) -> _Beat | Generator[int, None, _Beat]:
    names = request.subscribed_topic_names
    return _beat(request, context) if not names else _beat_with_names(request, context, names)


def _beat_with_names(
    request: ConsumerGroupHeartbeatRequest, context: GroupContext, names: list[str]
) -> Generator[int, None, _Beat]:
    """A heartbeat that changes what the member consumes."""
    try:
        context.require_group(Operation.READ, request.group_id)
        yield from _require_topics((yield from distinct(names)), context)
    except KafkaError as error:
        return _refused(error)
    return _beat(request, context)


def _beat(request: ConsumerGroupHeartbeatRequest, context: GroupContext) -> _Beat:
    caller = caller_of(context)

    def beat(shard: GroupShard, now: Now) -> Outcome:
        return shard.consumer_heartbeat(request, context.version, caller, now)

    answer: _Beat = ask_for_member(context, request.group_id, beat, _refused)
    return answer


def _refused(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


async def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: GroupContext
) -> ConsumerGroupDescribeResponse:
    operations = request.include_authorized_operations
    return ConsumerGroupDescribeResponse(
        groups=await describe_each(request.group_ids, operations, _describe, context)
    )


async def _describe(group_id: str, context: GroupContext) -> DescribedGroup:
    try:
        described: DescribedGroup
        described = await ask_to_describe(group_id, GroupShard.describe_consumer, context)
        topics = await context.complete(distinct(_topics_of(described)))
        await context.complete(_require_topics(topics, context))
        return described
    except KafkaError as error:
        return DescribedGroup(error.code, error.message, group_id)


def _topics_of(described: DescribedGroup) -> Iterator[str]:
    for member in described.members:
        yield from member.subscribed_topic_names
        for assignment in (member.assignment, member.target_assignment):
            for each in assignment.topic_partitions:
                yield each.topic_name


def _require_topics(names: Iterable[str], context: GroupContext) -> Generator[int, None, None]:
    for name in names:
        if not context.authorize_topic(Operation.DESCRIBE, name):
            raise KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The group uses topics that the client is not authorized to describe.",
            )
        yield 1
