"""CreateTopics (19, versions 2 to 7), DeleteTopics (20, 1 to 6), CreatePartitions (37, 0 to 3).

Behaviour: each topic of a request succeeds or fails as a whole, with its own error; the answer is
sent when the change is durable and this broker serves it. `validate_only` checks and changes
nothing. A topic named twice in one request is refused, as in Kafka. The quota
`controller_mutation_rate` limits what a client may create and delete per second (KIP-599).
Versions: CreateTopics 5 returns the effective settings, 7 the topic id; DeleteTopics 6 takes ids.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import TypeVar

from tidelog.cluster.commands import (
    AddPartitions,
    Answer,
    Command,
    CreatedTopic,
    CreateTopic,
    DeleteTopic,
)
from tidelog.cluster.image import TopicImage
from tidelog.cluster.names import INTERNAL_TOPICS
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_TOPIC_ID
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.security.authorizer import CLUSTER, Operation
from tidelog.server.handlers.asked import distinct_by
from tidelog.server.handlers.configs import describe_topic_settings
from tidelog.server.pieces import LazyList
from tidelog.server.submitter import seconds_for
from tidelog.server.throttling import MutationQuota
from tidelog.server.tools import ClusterContext

T = TypeVar("T")
Result = TypeVar("Result", DeletableTopicResult, CreatePartitionsTopicResult)


async def create_topics(
    request: CreateTopicsRequest, context: ClusterContext
) -> CreateTopicsResponse:
    topics, repeated = await context.complete(distinct_by(request.topics, "name"))
    quota = context.throttling.mutations(context, strict_since=6)

    def creation(topic: CreatableTopic) -> tuple[CreateTopic, int]:
        _refuse_repeated(topic.name, repeated)
        command = _creation(topic, request.validate_only, context)
        is_new = topic.name not in context.image.topics
        return command, _partitions_to_create(topic, context) if is_new else 0

    answers = await _submit_each(topics, creation, quota, request.timeout_ms, context)
    results = (
        _created(topic.name, answer, context) for topic, answer in zip(topics, answers, strict=True)
    )
    return CreateTopicsResponse(topics=LazyList(len(topics), results))


async def _submit_each(
    asked: Iterable[T],
    command_of: Callable[[T], tuple[Command, int]],
    quota: MutationQuota,
    timeout_ms: int,
    context: ClusterContext,
) -> list[Answer | KafkaError]:
    """Submit the command of each, unless it is refused; answers and refusals, each in its place.

    `command_of` says how many partitions come or go with a command, too.
    """
    commands: list[Command | KafkaError] = []
    counts = []
    pace = context.pace()
    for each in asked:
        await pace.step()
        try:
            command, count = command_of(each)
        except KafkaError as error:
            commands.append(error)
            counts.append(0)
        else:
            commands.append(command)
            counts.append(count)
    submitter, timeout_s = context.tools.submitter, seconds_for(timeout_ms)
    refusals = await quota.take(counts, submitter.charge)
    commands = [refusal or each for each, refusal in zip(commands, refusals, strict=True)]
    accepted = [each for each in commands if not isinstance(each, KafkaError)]
    answers = iter(await submitter.submit_all(accepted, context.principal, timeout_s))
    return [each if isinstance(each, KafkaError) else next(answers) for each in commands]


def _refuse_repeated(name: object, repeated: Container[object]) -> None:
    if name in repeated:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")


def _creation(topic: CreatableTopic, validate_only: bool, context: ClusterContext) -> CreateTopic:
    if not (
        context.may(Operation.CREATE, CLUSTER)
        or context.authorize_topic(Operation.CREATE, topic.name)
    ):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    _refuse_internal(topic.name)
    assignments = {each.partition_index: each.broker_ids for each in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
    return CreateTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments,
        # Of a setting that is given twice the last counts, as in Kafka.
        configs={config.name: config.value for config in topic.configs},
        validate_only=validate_only,
    )


def _partitions_to_create(topic: CreatableTopic, context: ClusterContext) -> int:
    if topic.assignments:
        return len(topic.assignments)
    if topic.num_partitions > 0:
        return topic.num_partitions
    return context.tools.config().get_int("num.partitions")


def _created(
    name: str, answer: Answer | KafkaError, context: ClusterContext
) -> CreatableTopicResult:
    if isinstance(answer, KafkaError):
        return CreatableTopicResult(
            name=name, error_code=answer.code, error_message=answer.message, configs=[]
        )
    assert isinstance(answer, CreatedTopic)
    if not context.authorize_topic(Operation.DESCRIBE_CONFIGS, answer.name):
        return CreatableTopicResult(
            name=answer.name,
            topic_id=answer.topic_id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=[],
        )
    return CreatableTopicResult(
        name=answer.name,
        topic_id=answer.topic_id,
        error_message=None,
        num_partitions=answer.partitions,
        replication_factor=answer.replication_factor,
        configs=[
            CreatableTopicConfigs(
                setting.name,
                setting.value,
                setting.read_only,
                setting.source,
                setting.is_sensitive,
            )
            for setting in describe_topic_settings(
                answer.configs, answer.replication_factor, context
            )
        ]
        if context.version >= 5
        else [],
    )


async def delete_topics(
    request: DeleteTopicsRequest, context: ClusterContext
) -> DeleteTopicsResponse:
    asked = request.topics
    if context.version < 6:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    asked, repeated = await context.complete(distinct_by(asked, "name", "topic_id"))
    results = [DeletableTopicResult(name=each.name, topic_id=each.topic_id) for each in asked]
    is_enabled = context.tools.config().get_bool("delete.topic.enable")
    quota = context.throttling.mutations(context, strict_since=5)

    def deletion(result: DeletableTopicResult) -> tuple[DeleteTopic, int]:
        _refuse_repeated((result.name, result.topic_id), repeated)
        if not is_enabled:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
        found = _topic_to_delete(result, context)
        result.name, result.topic_id = found.name, found.topic_id
        return DeleteTopic(topic_id=found.topic_id), len(found.partitions)

    answers = await _submit_each(results, deletion, quota, request.timeout_ms, context)
    return DeleteTopicsResponse(responses=LazyList(len(results), map(_judged, results, answers)))


def _topic_to_delete(asked: DeletableTopicResult, context: ClusterContext) -> TopicImage:
    if asked.name is not None and asked.topic_id != NO_TOPIC_ID:
        code = ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "You may not specify both topic name and topic id.")
    if asked.name is None and asked.topic_id == NO_TOPIC_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if asked.name is None:
        topic = context.topic_by_id(asked.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = context.image.topics.get(asked.name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not _may_delete(Operation.DESCRIBE, asked.name, context):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic is None:
        raise KafkaError(missing)
    if not _may_delete(Operation.DELETE, topic.name, context):
        if _may_delete(Operation.DESCRIBE, topic.name, context):
            asked.name = topic.name
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    _refuse_internal(topic.name)
    return topic


def _may_delete(operation: Operation, topic: str, context: ClusterContext) -> bool:
    """Whether a client that wants to delete a topic may do this: any, with Delete on the cluster"""
    return context.may(Operation.DELETE, CLUSTER) or context.authorize_topic(operation, topic)


def _refuse_internal(name: str) -> None:
    """Coordinators keep their state there, and find it by the number of partitions."""
    if name in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal: the broker looks after it"
        )


async def create_partitions(
    request: CreatePartitionsRequest, context: ClusterContext
) -> CreatePartitionsResponse:
    topics, repeated = await context.complete(distinct_by(request.topics, "name"))
    quota = context.throttling.mutations(context, strict_since=3)

    def extension(topic: CreatePartitionsTopic) -> tuple[AddPartitions, int]:
        _refuse_repeated(topic.name, repeated)
        context.require_topic(Operation.ALTER, topic.name)
        _refuse_internal(topic.name)
        known = context.image.topics.get(topic.name)
        new = 0 if known is None else max(0, topic.count - len(known.partitions))
        return _add_partitions(topic, request.validate_only), new

    answers = await _submit_each(topics, extension, quota, request.timeout_ms, context)
    results = (CreatePartitionsTopicResult(name=topic.name) for topic in topics)
    return CreatePartitionsResponse(results=LazyList(len(topics), map(_judged, results, answers)))


def _judged(result: Result, answer: Answer | KafkaError) -> Result:
    """The result of a topic, with the error if it was refused."""
    if isinstance(answer, KafkaError):
        result.error_code, result.error_message = answer.code, answer.message
    return result


def _add_partitions(topic: CreatePartitionsTopic, validate_only: bool) -> AddPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = [each.broker_ids for each in topic.assignments]
    return AddPartitions(topic.name, topic.count, assignments, validate_only)
