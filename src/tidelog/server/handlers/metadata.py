"""Metadata (key 3), versions 0 to 13.

Behaviour: brokers, controller, and the topics asked for: all of them for a null list (an empty one
in version 0). An unknown topic is created first where the client and `auto.create.topics.enable`
allow it, so the answer already names its leader. This broker's own address is the one that the
client connected to, unless its listener has an advertised address: so a client that reached us
once reaches us again.
Versions: 10 topic ids, 12 topics by id alone, 13 a top-level error (never set).
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from tidelog.cluster.commands import CreateTopic
from tidelog.cluster.image import BrokerRegistration, TopicImage
from tidelog.cluster.names import INTERNAL_TOPICS
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_TOPIC_ID
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.schema import encode
from tidelog.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from tidelog.server.answer_cache import EncodedAnswer
from tidelog.server.context import RequestContext
from tidelog.server.dispatch import handles


@handles(3)
def metadata(
    request: MetadataRequest, context: RequestContext
) -> EncodedAnswer | asyncio.Future[MetadataResponse]:
    image, cache = context.image, context.services.answers
    key = _cache_key(request, context)
    found = cache.find(image, key)
    if found is not None:
        return found
    answer = _answer(request, context)
    if isinstance(answer, asyncio.Future):
        return answer
    return cache.keep(image, key, encode(answer, context.version))


def _cache_key(request: MetadataRequest, context: RequestContext) -> Hashable:
    """Whatever the answer depends on beside the image."""
    connection = context.connection
    names = None
    if request.topics is not None:
        names = tuple((topic.name, topic.topic_id) for topic in request.topics)
    return (
        context.version,
        connection.principal,
        connection.listener.name,
        connection.local_host,
        connection.local_port,
        names,
        request.allow_auto_topic_creation,
        request.include_cluster_authorized_operations,
        request.include_topic_authorized_operations,
    )


def _answer(
    request: MetadataRequest, context: RequestContext
) -> MetadataResponse | asyncio.Future[MetadataResponse]:
    if request.topics is None or (context.version == 0 and not request.topics):
        topics = [
            _describe(topic, request, context)
            for topic in context.image.topics.values()
            if context.authorize_topic(Operation.DESCRIBE, topic.name)
        ]
        return _response(topics, request, context)
    missing = _to_create(request, context)
    if not missing:
        return _response(_named(request, context, {}), request, context)
    return asyncio.ensure_future(_create_then_answer(missing, request, context))


async def _create_then_answer(
    missing: list[str], request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    answers = await context.services.submit_all([CreateTopic(name) for name in missing])
    # One that another client was quicker to create is found in the image all the same.
    errors = {
        name: answer
        for name, answer in zip(missing, answers, strict=True)
        if isinstance(answer, KafkaError)
    }
    return _response(_named(request, context, errors), request, context)


def _to_create(request: MetadataRequest, context: RequestContext) -> list[str]:
    config = context.services.config
    if not request.allow_auto_topic_creation or not config.get_bool("auto.create.topics.enable"):
        return []
    return [
        topic.name
        for topic in request.topics or ()
        if topic.name is not None
        and topic.topic_id == NO_TOPIC_ID
        and topic.name not in context.image.topics
        and topic.name not in INTERNAL_TOPICS
        and context.authorize_topic(Operation.CREATE, topic.name)
    ]


def _named(
    request: MetadataRequest, context: RequestContext, errors: dict[str, KafkaError]
) -> list[MetadataResponseTopic]:
    return [_one(asked, request, context, errors) for asked in request.topics or ()]


def _one(
    asked: MetadataRequestTopic,
    request: MetadataRequest,
    context: RequestContext,
    errors: dict[str, KafkaError],
) -> MetadataResponseTopic:
    if asked.name is None or asked.topic_id != NO_TOPIC_ID:
        topic = context.topic_by_id(asked.topic_id)
        if topic is None or not context.authorize_topic(Operation.DESCRIBE, topic.name):
            code = ErrorCode.UNKNOWN_TOPIC_ID
            name = None if context.version >= 12 else ""
            return MetadataResponseTopic(error_code=code, name=name, topic_id=asked.topic_id)
        return _describe(topic, request, context)
    if not context.authorize_topic(Operation.DESCRIBE, asked.name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return MetadataResponseTopic(error_code=code, name=asked.name)
    topic = context.image.topics.get(asked.name)
    if topic is None:
        error = errors.get(asked.name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is None else _creation_code(error)
        return MetadataResponseTopic(error_code=code, name=asked.name)
    return _describe(topic, request, context)


def _creation_code(error: KafkaError) -> ErrorCode:
    """What a client is told of a topic that could not be created on its behalf."""
    if error.code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        return error.code
    return (
        ErrorCode.INVALID_REPLICATION_FACTOR
        if (error.code is ErrorCode.INVALID_REPLICATION_FACTOR)
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


def _describe(
    topic: TopicImage, request: MetadataRequest, context: RequestContext
) -> MetadataResponseTopic:
    live = context.image.brokers
    services = context.services
    failed = {index for name, index in services.offline if name == topic.name}

    def is_offline(broker: int, partition: int) -> bool:
        return broker not in live or (broker == services.broker_id and partition in failed)

    answer = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponsePartition(
                error_code=0 if state.leader in live else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=state.partition,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                offline_replicas=[
                    each for each in state.replicas if is_offline(each, state.partition)
                ],
            )
            for state in topic.partitions
        ],
    )
    if request.include_topic_authorized_operations:
        resource = Resource(ResourceType.TOPIC, topic.name)
        answer.topic_authorized_operations = context.allowed_operations(resource)
    return answer


def _response(
    topics: list[MetadataResponseTopic], request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    image = context.image
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(broker.id, *address(broker, context), broker.rack)
            for broker in image.brokers.values()
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.allowed_operations(CLUSTER)
    return response


def address(broker: BrokerRegistration, context: RequestContext) -> tuple[str, int]:
    """Where this client reaches a broker: for ourselves, where it has just reached us."""
    connection = context.connection
    listener = connection.listener
    if broker.id == context.services.broker_id and listener.address.advertised is None:
        return connection.local_host, connection.local_port
    endpoint = broker.endpoint(listener.name)
    if endpoint is None:
        return "", -1
    return endpoint.host, endpoint.port
