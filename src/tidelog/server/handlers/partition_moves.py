"""ElectLeaders (43, versions 0 to 2), AlterPartitionReassignments (45, 0 to 1),
ListPartitionReassignments (46, versions 0 to 0).

Behaviour: each partition is done or refused by itself, with its own error. An election without a
list is held wherever one is needed, and only those partitions are answered. A move is begun, not
awaited: ListPartitionReassignments shows what is under way, from this broker's metadata. All of it
is a matter of the cluster: Alter or Describe on the cluster is needed.
Versions: ElectLeaders 1 can be unclean, AlterPartitionReassignments 1 can keep the replication
factor.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from tidelog.cluster.commands import Answer, Command, ElectLeader, Reassign
from tidelog.cluster.image import MetadataImage, TopicImage
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
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
_Outcomes = Sequence[tuple[_Place, Answer | KafkaError]]


async def elect_leaders(
    request: ElectLeadersRequest, context: ClusterContext
) -> ElectLeadersResponse:
    refusal = None
    if not context.authorize(Operation.ALTER, CLUSTER):
        refusal = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif request.election_type not in (_PREFERRED, _UNCLEAN):
        refusal = KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        )
    places = await context.complete(_places_to_elect(request, context.image))
    if refusal is not None:
        # The first version has no place for an error of the whole.
        outcomes: _Outcomes = [(place, refusal) for place in places if context.version == 0]
        code = refusal.code if context.version > 0 else ErrorCode.NONE
        results = await context.complete(_elected((), outcomes))
        return ElectLeadersResponse(error_code=code, replica_election_results=results)
    unclean = request.election_type == _UNCLEAN
    asked = request.topic_partitions
    # Every topic that was asked for is in the answer, also with none of its partitions.
    names = context.image.topics if asked is None else [each.topic for each in asked]
    elections = [(each, ElectLeader(*each, unclean)) for each in places]
    outcomes = await _submit(elections, request.timeout_ms, context)
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
        result.partition_result.append(PartitionResult(partition, *_error_of(outcome)))
        yield 1
    return list(results.values())


async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: ClusterContext
) -> AlterPartitionReassignmentsResponse:
    if not context.authorize(Operation.ALTER, CLUSTER):
        error = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return AlterPartitionReassignmentsResponse(
            error_code=error.code, error_message=error.message
        )
    topics = await context.complete(by_topic(request.topics, ("name",), "partition_index"))
    may_change = request.allow_replication_factor_change
    moves = [
        ((topic.name, index), Reassign(topic.name, index, asked.replicas, may_change))
        for topic, partitions in topics
        for index, asked in partitions.items()
    ]
    responses = await context.complete(
        _reassigned(await _submit(moves, request.timeout_ms, context))
    )
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        allow_replication_factor_change=may_change,
        responses=responses,
    )


def _reassigned(outcomes: _Outcomes) -> Generator[int, None, list[ReassignableTopicResponse]]:
    results: dict[str, ReassignableTopicResponse] = {}
    for (name, index), outcome in outcomes:
        result = results.setdefault(name, ReassignableTopicResponse(name))
        result.partitions.append(ReassignablePartitionResponse(index, *_error_of(outcome)))
        yield 1
    return list(results.values())


async def _submit(
    asked: Sequence[tuple[_Place, Command]], timeout_ms: int, context: ClusterContext
) -> _Outcomes:
    """Have the controller do each command, some at a time; what became of each place."""
    outcomes: list[tuple[_Place, Answer | KafkaError]] = []
    timeout_s = seconds_for(timeout_ms)
    for start in range(0, len(asked), _COMMANDS_AT_ONCE):
        some = asked[start : start + _COMMANDS_AT_ONCE]
        commands = [command for _, command in some]
        submitter = context.tools.submitter
        answers = await submitter.submit_all(commands, context.principal, timeout_s)
        outcomes += zip((place for place, _ in some), answers, strict=True)
    return outcomes


def _error_of(outcome: Answer | KafkaError) -> tuple[int, str | None]:
    if isinstance(outcome, KafkaError):
        return outcome.code, outcome.message
    return ErrorCode.NONE, None


def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: ClusterContext
) -> Generator[int, None, ListPartitionReassignmentsResponse]:
    if not context.authorize(Operation.DESCRIBE, CLUSTER):
        error = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return ListPartitionReassignmentsResponse(
            error_code=error.code, error_message=error.message
        )
    found = []
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
