"""What a handler may reach: the broker's services, and the request that it serves."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from tidelog.cluster.image import MetadataImage, TopicImage
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_TOPIC_ID, TopicPartition
from tidelog.security.authorizer import (
    Authorizer,
    Operation,
    Resource,
    ResourceType,
    allowed_operations,
)
from tidelog.server.pieces import Pace, Turns, Work

if TYPE_CHECKING:
    from tidelog.cluster.commands import Answer, Command
    from tidelog.cluster.controller import Controller
    from tidelog.cluster.image_feed import ImageFeed
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.coordinators.producer_ids import ProducerIds
    from tidelog.coordinators.runtime import GroupCoordinator
    from tidelog.host.clock import Clock
    from tidelog.host.offload import Offload
    from tidelog.protocol.apis import Api
    from tidelog.protocol.framing import RequestHeader
    from tidelog.replication.replicas import Replicas
    from tidelog.server.answer_cache import AnswerCache
    from tidelog.server.answer_memory import AnswerMemory
    from tidelog.server.connection import Connection
    from tidelog.server.dispatch import Dispatcher
    from tidelog.server.fetch_sessions import FetchSessions
    from tidelog.server.metrics import ApiMetrics, BrokerMetrics
    from tidelog.server.outbox import ScratchBuffer
    from tidelog.server.request_memory import RequestMemory

T = TypeVar("T")


@dataclass(slots=True)
class Limits:
    """The bounds of a connection."""

    frame_bytes_max: int
    requests_in_flight_max: int
    connections_max: int
    connections_per_address_max: int
    connections_per_address: dict[str, int]
    idle_ms_max: int
    first_byte_ms_max: int
    frame_ms_max: int
    # -1 leaves a socket's buffer to the operating system.
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1

    def per_address(self, host: str) -> int:
        """How many connections one address may have."""
        return self.connections_per_address.get(host, self.connections_per_address_max)


@dataclass(slots=True)
class Services:
    """The parts of a running broker; built once by `server/broker.py`."""

    broker_id: int
    limits: Limits
    clock: Clock
    offload: Offload
    memory: RequestMemory
    scratch: ScratchBuffer
    metrics: BrokerMetrics
    authorizer: Authorizer
    metadata: ImageFeed
    controller: Controller
    replicas: Replicas
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    answers: AnswerCache
    turns: Turns
    answer_memory: AnswerMemory
    groups: GroupCoordinator = field(init=False)
    dispatcher: Dispatcher = field(init=False)
    # The partitions that were offline at the last look, with the reason; see `Housekeeping`.
    offline: dict[TopicPartition, str] = field(default_factory=dict)
    # Known once the broker is registered.
    broker_epoch: int = -1

    @property
    def config(self) -> BrokerConfig:
        """The settings in force now."""
        return self.replicas.config

    async def submit(self, command: Command) -> Answer:
        """Have the controller do something; returns when it is durable and known here."""
        answer = await self.controller.submit(command)
        await self._have(self.controller.image.version)
        return answer

    async def submit_all(self, commands: Sequence[Command]) -> list[Answer | KafkaError]:
        """As `submit` for several at once, each done or refused by itself."""
        answers = await self.controller.submit_all(commands)
        await self._have(self.controller.image.version)
        return answers

    async def _have(self, version: int) -> None:
        """Return once this broker knows the metadata of a version and its partitions follow it."""
        await self.metadata.wait_for_version(version)
        await self.replicas.settled()


class RequestContext:
    """One request: where it came from, in which version, and the broker that serves it."""

    __slots__ = (
        "api",
        "connection",
        "header",
        "in_pieces",
        "metrics",
        "prepared",
        "services",
        "started_at",
    )

    def __init__(
        self,
        services: Services,
        connection: Connection,
        header: RequestHeader,
        api: Api,
        metrics: ApiMetrics,
    ) -> None:
        self.services = services
        self.connection = connection
        self.header = header
        self.api = api
        self.metrics = metrics
        self.prepared: object = None
        # Whether the answer may have so many elements that it is encoded in pieces.
        self.in_pieces = True
        self.started_at = services.clock.monotonic()

    def pace(self) -> Pace:
        """What a coroutine steps through where it has much to do."""
        return Pace(self.services.turns)

    async def complete(self, steps: Generator[int, None, T]) -> T:
        """Do all of some work, in pieces where it is long."""
        work = Work(steps)
        return work.result if work.run_piece() else await self.services.turns.finish(work)

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def image(self) -> MetadataImage:
        return self.services.metadata.image

    def authorize(self, operation: Operation, resource: Resource) -> bool:
        return self.services.authorizer.authorize(self.connection.principal, operation, resource)

    def authorize_topic(self, operation: Operation, topic: str) -> bool:
        return self.authorize(operation, Resource(ResourceType.TOPIC, topic))

    def require_group(self, operation: Operation, group_id: str) -> None:
        self.require(operation, Resource(ResourceType.GROUP, group_id))

    def require(self, operation: Operation, resource: Resource) -> None:
        """KafkaError with the code of the resource's type unless the principal may."""
        if not self.authorize(operation, resource):
            raise KafkaError(_DENIED[resource.type])

    def allowed_operations(self, resource: Resource) -> int:
        return allowed_operations(self.services.authorizer, self.connection.principal, resource)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        """The topic of a real id; the zero id names none."""
        if topic_id == NO_TOPIC_ID:
            return None
        image = self.image
        name = image.topic_names.get(topic_id)
        return None if name is None else image.topics.get(name)


_DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
