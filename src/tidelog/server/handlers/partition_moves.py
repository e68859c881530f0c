"""ElectLeaders (43, versions 0 to 2), AlterPartitionReassignments (45, 0 to 1),
ListPartitionReassignments (46, versions 0 to 0).

Behaviour: each partition succeeds or fails separately, with its own error. An election without a
list is held wherever one is needed, and only those partitions are answered. A reassignment is
started, not awaited: ListPartitionReassignments shows those in progress, from this broker's
metadata. All of these need Alter or Describe on the cluster.
Versions: ElectLeaders 1 can be unclean, AlterPartitionReassignments 1 can keep the replication
factor.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

from tidelog.cluster.commands import Answer, Command, ElectLeader, Reassign
from tidelog.cluster.image import MetadataImage, TopicImage
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from tidelog.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.handlers.asked import by_topic
from tidelog.server.submitter import seconds_for
from tidelog.server.tools import ClusterContext

_PREFERRED = 0
_UNCLEAN = 1
_COMMANDS_AT_ONCE = 256
_Place = tuple[str, int]
# What became of each place, as it is answered: a refusal itself would hold what it was raised in.
_Told = tuple[int, str | None]
_Outcomes = Sequence[tuple[_Place, _Told]]


async def elect_leaders(
    request: ElectLeadersRequest, context: ClusterContext
) -> ElectLeadersResponse:
    refusal = None
    is_denied = not context.authorize(Operation.ALTER, CLUSTER)
    if is_denied:
        refusal = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif request.election_type not in (_PREFERRED, _UNCLEAN):
        refusal = KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        )
    if is_denied and request.topic_partitions is None:
        # Which partitions need an election is not for everybody to know.
        request.topic_partitions = []
    places = await context.complete(_places_to_elect(request, context.image))
    if refusal is not None:
        # The first version has no place for an error of the whole.
        told = _told(refusal)
        is_for_each = is_denied or context.version == 0
        outcomes: _Outcomes = [(place, told) for place in places if is_for_each]
        code = refusal.code if context.version > 0 else ErrorCode.NONE
        results = await context.complete(_elected((), outcomes))
        return ElectLeadersResponse(error_code=code, replica_election_results=results)
    unclean = request.election_type == _UNCLEAN
    asked = request.topic_partitions
    # Every topic that was asked for is in the answer, also with none of its partitions.
    names = context.image.topics if asked is None else [each.topic for each in asked]
    outcomes = await _submit(
        places, lambda place: ElectLeader(*place, unclean), request.timeout_ms, context
    )
    results = await context.complete(_elected(names, outcomes))
    return ElectLeadersResponse(replica_election_results=results)


def _places_to_elect(
    request: ElectLeadersRequest, image: MetadataImage
) -> Generator[int, None, list[_Place]]:
    places: dict[_Place, None] = {}
    if request.topic_partitions is None:
        for topic in image.topics.values():
            for state in topic.partitions:
                needed = (
                    not state.has_leader
                    if request.election_type == _UNCLEAN
                    else state.leader != state.replicas[0]
                )
                if needed:
                    places[topic.name, state.partition] = None
                yield 1
        return list(places)
    for asked in request.topic_partitions:
        for partition in asked.partitions:
            places[asked.topic, partition] = None
            yield 1
        yield 1
    return list(places)


def _elected(
    names: Iterable[str], outcomes: _Outcomes
) -> Generator[int, None, list[ReplicaElectionResult]]:
    results: dict[str, ReplicaElectionResult] = {}
    for name in names:
        results[name] = ReplicaElectionResult(name)
        yield 1
    for (topic, partition), outcome in outcomes:
        result = results.setdefault(topic, ReplicaElectionResult(topic))
        result.partition_result.append(PartitionResult(partition, *outcome))
        yield 1
    return list(results.values())


async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: ClusterContext
) -> AlterPartitionReassignmentsResponse:
    topics = await context.complete(by_topic(request.topics, ("name",), "partition_index"))
    may_change = request.allow_replication_factor_change
    asked = await context.complete(_asked(topics))
    if not context.authorize(Operation.ALTER, CLUSTER):
        told = _told(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        denied = await context.complete(_reassigned([(place, told) for place in asked]))
        return AlterPartitionReassignmentsResponse(0, True, *told, denied)

    def command(place: _Place) -> Command:
        return Reassign(*place, asked[place], may_change)

    outcomes = await _submit(list(asked), command, request.timeout_ms, context)
    responses = await context.complete(_reassigned(outcomes))
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        allow_replication_factor_change=may_change,
        responses=responses,
    )


def _asked(
    topics: Sequence[tuple[ReassignableTopic, Mapping[int, ReassignablePartition]]],
) -> Generator[int, None, dict[_Place, list[int] | None]]:
    found = {}
    for topic, partitions in topics:
        for index, each in partitions.items():
            found[topic.name, index] = each.replicas
            yield 1
        yield 1
    return found


def _reassigned(outcomes: _Outcomes) -> Generator[int, None, list[ReassignableTopicResponse]]:
    results: dict[str, ReassignableTopicResponse] = {}
    for (name, index), outcome in outcomes:
        result = results.setdefault(name, ReassignableTopicResponse(name))
        result.partitions.append(ReassignablePartitionResponse(index, *outcome))
        yield 1
    return list(results.values())


async def _submit(
    places: Sequence[_Place],
    command: Callable[[_Place], Command],
    timeout_ms: int,
    context: ClusterContext,
) -> _Outcomes:
    """Have the controller do the command for each place, some at a time; what became of it."""
    outcomes: list[tuple[_Place, _Told]] = []
    submitter, timeout_s = context.tools.submitter, seconds_for(timeout_ms)
    for start in range(0, len(places), _COMMANDS_AT_ONCE):
        some = places[start : start + _COMMANDS_AT_ONCE]
        commands = [command(each) for each in some]
        answers = await submitter.submit_all(commands, context.principal, timeout_s)
        outcomes += zip(some, map(_told, answers), strict=True)
    return outcomes


def _told(outcome: Answer | KafkaError) -> _Told:
    if isinstance(outcome, KafkaError):
        return int(outcome.code), outcome.message
    return int(ErrorCode.NONE), None


def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: ClusterContext
) -> Generator[int, None, ListPartitionReassignmentsResponse]:
    found = []
    if not context.authorize(Operation.DESCRIBE, CLUSTER):
        for each, partitions in (yield from by_topic(request.topics or (), ("name",), None)):
            moves = [OngoingPartitionReassignment(index) for index in partitions]
            found.append(OngoingTopicReassignment(each.name, moves))
            yield 1 + len(partitions)
        error = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return ListPartitionReassignmentsResponse(0, error.code, error.message, found)
    if request.topics is None:
        for topic in context.image.topics.values():
            found.append(_moving(topic, range(len(topic.partitions))))
            yield 1 + len(topic.partitions)
    else:
        asked = yield from by_topic(request.topics, ("name",), None)
        for each, partitions in asked:
            known = context.image.topics.get(each.name)
            if known is not None:
                found.append(_moving(known, sorted(partitions)))
            yield 1 + len(partitions)
    return ListPartitionReassignmentsResponse(
        error_message=None, topics=[each for each in found if each.partitions]
    )


def _moving(topic: TopicImage, partitions: Iterable[int]) -> OngoingTopicReassignment:
    states = [topic.partitions[index] for index in partitions if 0 <= index < len(topic.partitions)]
    return OngoingTopicReassignment(
        topic.name,
        [
            OngoingPartitionReassignment(
                state.partition, list(state.replicas), list(state.adding), list(state.removing)
            )
            for state in states
            if state.adding or state.removing
        ],
    )
