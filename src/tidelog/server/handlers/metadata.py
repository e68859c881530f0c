"""Metadata (key 3), versions 0 to 13.

Behaviour: returns brokers, controller, and the requested topics: all of them for a null list (an
empty one in version 0). An unknown topic is created first if the client and
`auto.create.topics.enable` allow it, so the answer already names its leader; Kafka's first answer
is an error ([why](decisions/0006-topics-created-at-once.md)). The brokers are those that are live
and have a listener of the client's kind. This broker's own address is the one that the client
connected to, and so is the host of every other broker on this machine, unless the listener has an
advertised address: a client that reached one broker can reach it again, and its neighbours. A
partition whose leader cannot be reached is LEADER_NOT_AVAILABLE; its replicas are still listed,
those that cannot be reached as offline.
Versions: 0 leaves out replicas that cannot be reached, 6 LISTENER_NOT_FOUND for a leader without a
listener of the client's kind, 10 topic ids, 12 topics only by id, 13 a top-level error (never set).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator, Hashable, Iterable

from tidelog.cluster.commands import CreateTopic
from tidelog.cluster.image import PartitionState, TopicImage
from tidelog.cluster.names import INTERNAL_TOPICS
from tidelog.cluster.planner import PARTITIONS_PER_REQUEST_MAX
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_LEADER, NO_TOPIC_ID
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.schema import encode_in_pieces
from tidelog.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from tidelog.server.answer_cache import EncodedAnswer
from tidelog.server.audit_connections import record_auto_created
from tidelog.server.handlers.addresses import reachable, reachable_controller
from tidelog.server.handlers.asked import distinct_by
from tidelog.server.handlers.metadata_again import MetadataShortcut, cache_key
from tidelog.server.pieces import LazyList
from tidelog.server.routes import served
from tidelog.server.tools import ClusterContext
from tidelog.topic_names import topic_name_fault

_Answer = EncodedAnswer | MetadataResponse | asyncio.Future[MetadataResponse]

# The names are part of what is kept; a consumer of more asks for all topics or rarely.
_CACHED_NAMES_MAX = 1_000
# A client that did not mean to create a topic is made to wait, and not refused.
_NEVER = 1 << 15
_TOLD_OF_CREATION = (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR)


@served(shortcut=MetadataShortcut)
def metadata(
    request: MetadataRequest, context: ClusterContext
) -> EncodedAnswer | Generator[int, None, _Answer]:
    is_kept = request.topics is None or len(request.topics) <= _CACHED_NAMES_MAX
    key = cache_key(request, context.version, context.connection) if is_kept else None
    found = None if key is None else context.tools.answers.find(context.image, key)
    return found or _build(request, context, key)


def _build(
    request: MetadataRequest, context: ClusterContext, key: Hashable
) -> Generator[int, None, _Answer]:
    image = context.image
    if request.topics is None or (context.version == 0 and not request.topics):
        topics = []
        for topic in image.topics.values():
            if context.authorize_topic(Operation.DESCRIBE, topic.name):
                topics.append(topic)
            yield 1
        described = _Description(request, context)
        response = described.response(len(topics), map(described.topic, topics))
    else:
        asked, _ = yield from distinct_by(request.topics, "name", "topic_id")
        missing = _to_create(asked, request, context)
        denied = _not_creatable(missing, context)
        if len(missing) > len(denied):
            creation = _create_then_answer(missing, denied, asked, request, context)
            return asyncio.ensure_future(creation)
        response = _Description(request, context).of(asked, denied)
    if key is None:
        return response
    parts, _ = yield from encode_in_pieces(response, context.version)
    body = b"".join(part for part in parts if isinstance(part, bytes))
    return context.tools.answers.keep(image, key, body)


async def _create_then_answer(
    missing: list[str],
    errors: dict[str, KafkaError],
    asked: list[MetadataRequestTopic],
    request: MetadataRequest,
    context: ClusterContext,
) -> MetadataResponse:
    allowed = [name for name in missing if name not in errors]
    quota = context.throttling.mutations(context, strict_since=_NEVER)
    partitions = len(allowed) * context.tools.config().get_int("num.partitions")
    await quota.take([partitions], context.tools.submitter.charge)
    commands = [CreateTopic(name) for name in allowed]
    answers = await context.tools.submitter.submit_all(commands, context.principal)
    # One that another client was quicker to create is found in the image all the same.
    errors |= {
        name: answer
        for name, answer in zip(allowed, answers, strict=True)
        if isinstance(answer, KafkaError)
    }
    record_auto_created(context, [name for name in allowed if name not in errors])
    return _Description(request, context).of(asked, errors)


def _not_creatable(missing: list[str], context: ClusterContext) -> dict[str, KafkaError]:
    """The missing topics that the client may describe and may not create."""
    if not missing or context.may(Operation.CREATE, CLUSTER):
        return {}
    return {
        name: KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for name in missing
        if not context.authorize_topic(Operation.CREATE, name)
    }


def _to_create(
    asked: list[MetadataRequestTopic], request: MetadataRequest, context: ClusterContext
) -> list[str]:
    config = context.tools.config()
    if not request.allow_auto_topic_creation or not config.get_bool("auto.create.topics.enable"):
        return []
    missing = [
        topic.name
        for topic in asked
        if topic.name is not None
        and topic.topic_id == NO_TOPIC_ID
        and topic.name not in context.image.topics
        and topic.name not in INTERNAL_TOPICS
        and context.authorize_topic(Operation.DESCRIBE, topic.name)
    ]
    # One who asks for thousands that do not exist looks around, and does not mean to create them.
    partitions = len(missing) * config.get_int("num.partitions")
    return missing if partitions <= PARTITIONS_PER_REQUEST_MAX else []


def _missing_code(name: str, error: KafkaError | None) -> ErrorCode:
    """What a client learns of a topic that is not there, and perhaps could not be created."""
    if error is not None and error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return error.code
    if topic_name_fault(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if error is not None and error.code in _TOLD_OF_CREATION:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class _Description:
    """Describes topics as they are in one image, while the answer is encoded."""

    def __init__(self, request: MetadataRequest, context: ClusterContext) -> None:
        self._request = request
        self._context = context
        self._image = context.image
        self._reachable = reachable(self._image, context)
        # Of this broker's own replicas, by topic.
        self._failed: dict[str, set[int]] = {}
        for topic, partition in context.tools.answers.offline:
            self._failed.setdefault(topic, set()).add(partition)

    def of(
        self, asked: list[MetadataRequestTopic], errors: dict[str, KafkaError]
    ) -> MetadataResponse:
        return self.response(len(asked), (self._asked(each, errors) for each in asked))

    def response(self, count: int, topics: Iterable[MetadataResponseTopic]) -> MetadataResponse:
        image, context = self._image, self._context
        response = MetadataResponse(
            brokers=[
                MetadataResponseBroker(broker_id, *address, image.brokers[broker_id].rack)
                for broker_id, address in self._reachable.items()
            ],
            cluster_id=image.cluster_id,
            controller_id=reachable_controller(image, self._reachable),
            topics=LazyList(count, topics),
        )
        if self._request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = context.cluster_operations()
        return response

    def _asked(
        self, asked: MetadataRequestTopic, errors: dict[str, KafkaError]
    ) -> MetadataResponseTopic:
        context, image = self._context, self._image
        if asked.name is None or asked.topic_id != NO_TOPIC_ID:
            name = image.topic_names.get(asked.topic_id)
            topic = None if name is None else image.topics.get(name)
            is_denied = topic is not None and not context.authorize_topic(
                Operation.DESCRIBE, topic.name
            )
            if topic is None or is_denied:
                # An id tells nothing; the name behind it would.
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                return MetadataResponseTopic(
                    error_code=code if is_denied else ErrorCode.UNKNOWN_TOPIC_ID,
                    name=None if context.version >= 12 else "",
                    topic_id=asked.topic_id,
                )
            return self.topic(topic)
        if not context.authorize_topic(Operation.DESCRIBE, asked.name):
            # The client asked for it by name, and most clients stop here.
            context.denied(Operation.DESCRIBE, Resource(ResourceType.TOPIC, asked.name))
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return MetadataResponseTopic(error_code=code, name=asked.name)
        topic = image.topics.get(asked.name)
        if topic is None:
            code = _missing_code(asked.name, errors.get(asked.name))
            answer = MetadataResponseTopic(error_code=code, name=asked.name)
            if code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._add_operations(answer, asked.name)
            return answer
        return self.topic(topic)

    def topic(self, topic: TopicImage) -> MetadataResponseTopic:
        failed = self._failed.get(topic.name, ())
        partitions = (self._partition(each, failed) for each in topic.partitions)
        answer = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=LazyList(len(topic.partitions), partitions),
        )
        self._add_operations(answer, topic.name)
        return answer

    def _add_operations(self, answer: MetadataResponseTopic, name: str) -> None:
        if self._request.include_topic_authorized_operations:
            resource = Resource(ResourceType.TOPIC, name)
            answer.topic_authorized_operations = self._context.allowed_operations(resource)

    def _partition(
        self, state: PartitionState, failed: Collection[int]
    ) -> MetadataResponsePartition:
        online, version = self._reachable, self._context.version
        code = ErrorCode.NONE
        if state.leader not in online:
            has_no_listener = state.leader in self._image.brokers and version >= 6
            code = (
                ErrorCode.LISTENER_NOT_FOUND if has_no_listener else ErrorCode.LEADER_NOT_AVAILABLE
            )
        answer = MetadataResponsePartition(
            partition_index=state.partition,
            leader_id=NO_LEADER if code else state.leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
        )
        own_id = self._context.tools.broker_id
        answer.offline_replicas = [
            each
            for each in state.replicas
            if each not in online or (each == own_id and state.partition in failed)
        ]
        if version == 0 and not online.keys() >= {*state.replicas}:
            answer.replica_nodes = [each for each in state.replicas if each in online]
            answer.isr_nodes = [each for each in state.isr if each in online]
            code = code or ErrorCode.REPLICA_NOT_AVAILABLE
        answer.error_code = code
        return answer
