"""CreateTopics (19, versions 2 to 7), DeleteTopics (20, 1 to 6), CreatePartitions (37, 0 to 3).

Behaviour: each topic of a request is done wholly or not at all, with its own error; the answer
comes when the change is durable and this broker serves it. `validate_only` checks and changes
nothing. A topic named twice in one request is refused in both places, as in Kafka.
Versions: CreateTopics 5 returns the effective settings, 7 the topic id; DeleteTopics 6 takes ids.
"""

from __future__ import annotations

from collections import Counter

from tidelog.cluster.commands import AddPartitions, CreatedTopic, CreateTopic, DeleteTopic
from tidelog.cluster.image import TopicImage
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
from tidelog.server.context import RequestContext
from tidelog.server.dispatch import handles
from tidelog.server.handlers.configs import describe_topic_settings


@handles(19)
async def create_topics(
    request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    response = CreateTopicsResponse()
    for topic in request.topics:
        try:
            if counts[topic.name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"topic {topic.name} appears twice in the request"
                )
            result = await _create(topic, request.validate_only, context)
        except KafkaError as error:
            result = CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message, configs=[]
            )
        response.topics.append(result)
    return response


async def _create(
    topic: CreatableTopic, validate_only: bool, context: RequestContext
) -> CreatableTopicResult:
    if not (
        context.authorize(Operation.CREATE, CLUSTER)
        or context.authorize_topic(Operation.CREATE, topic.name)
    ):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assignments = {each.partition_index: each.broker_ids for each in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.name in configs:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"setting {config.name} is given twice")
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"setting {config.name} has no value")
        configs[config.name] = config.value
    command = CreateTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments,
        configs=configs,
        validate_only=validate_only,
    )
    created = await context.services.submit(command)
    assert isinstance(created, CreatedTopic)
    return CreatableTopicResult(
        name=created.name,
        topic_id=NO_TOPIC_ID if validate_only else created.topic_id,
        num_partitions=created.partitions,
        replication_factor=created.replication_factor,
        configs=[
            CreatableTopicConfigs(
                setting.name,
                setting.value,
                setting.read_only,
                setting.source,
                setting.is_sensitive,
            )
            for setting in describe_topic_settings(created.configs, context)
        ],
    )


@handles(20)
async def delete_topics(
    request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    asked = request.topics
    if context.version < 6:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    response = DeleteTopicsResponse()
    for topic in asked:
        result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        try:
            if not context.services.config.get_bool("delete.topic.enable"):
                raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
            found = _topic_to_delete(topic, context)
            result.name, result.topic_id = found.name, found.topic_id
            await context.services.submit(DeleteTopic(topic_id=found.topic_id))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        response.responses.append(result)
    return response


def _topic_to_delete(asked: DeleteTopicState, context: RequestContext) -> TopicImage:
    if asked.name is not None and asked.topic_id != NO_TOPIC_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "give the topic's name or its id, not both")
    if asked.name is None:
        topic = context.topic_by_id(asked.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = context.image.topics.get(asked.name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        raise KafkaError(missing)
    if not context.authorize_topic(Operation.DELETE, topic.name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return topic


@handles(37)
async def create_partitions(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    response = CreatePartitionsResponse()
    for topic in request.topics:
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            if counts[topic.name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"topic {topic.name} appears twice in the request"
                )
            if not context.authorize_topic(Operation.ALTER, topic.name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            await context.services.submit(_add_partitions(topic, request.validate_only))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        response.results.append(result)
    return response


def _add_partitions(topic: CreatePartitionsTopic, validate_only: bool) -> AddPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = [each.broker_ids for each in topic.assignments]
    return AddPartitions(topic.name, topic.count, assignments, validate_only)
