"""What a handler knows of the request that it serves, and the tools it serves it with."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar
from uuid import UUID

from tidelog.cluster.image import MetadataImage, TopicImage
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_TOPIC_ID
from tidelog.security.authorizer import (
    ANONYMOUS,
    CLUSTER,
    OpenAuthorizer,
    Operation,
    Resource,
    ResourceType,
    allowed_operations,
)
from tidelog.server.pieces import Pace, Turns, Work

if TYPE_CHECKING:
    from tidelog.protocol.apis import Api
    from tidelog.protocol.framing import RequestHeader
    from tidelog.server.audit_log import AuditLog
    from tidelog.server.connection import Connection
    from tidelog.server.metrics import ApiMetrics
    from tidelog.server.routes import Route
    from tidelog.server.throttling import QuotaUse, Throttling
    from tidelog.server.tools import RequestTools

_AS_BROKER = Operation.CLUSTER_ACTION

T = TypeVar("T")
Tools = TypeVar("Tools")


@dataclass(slots=True, eq=False)
class ServedApi(Generic[Tools]):
    """An API, and all that its requests are served with."""

    api: Api
    route: Route
    metrics: ApiMetrics
    tools: Tools


class RequestContext(Generic[Tools]):
    """One request: where it came from, in which version, and the tools of its handler's family."""

    # Set where the request came in as a frame.
    request_bytes: int

    __slots__ = (
        "_shared",
        "api",
        "connection",
        "header",
        "in_pieces",
        "metrics",
        "overlaps",
        "prepared",
        "quota_use",
        "request_bytes",
        "started_at",
        "tools",
    )

    def __init__(
        self,
        shared: RequestTools,
        served: ServedApi[Tools],
        connection: Connection,
        header: RequestHeader,
    ) -> None:
        self._shared = shared
        self.connection = connection
        self.header = header
        self.api = served.api
        self.metrics = served.metrics
        self.tools = served.tools
        self.prepared: object = None
        # Whether the next request of the connection may start while this one's answer waits.
        self.overlaps = served.route.overlaps
        # Whether the answer may have so many elements that it is encoded in pieces.
        self.in_pieces = True
        self.started_at = shared.clock.monotonic()
        self.quota_use: QuotaUse | None = None

    @property
    def throttling(self) -> Throttling:
        return self._shared.throttling

    @property
    def turns(self) -> Turns:
        return self._shared.turns

    def pace(self) -> Pace:
        """What a coroutine steps through where it has much to do."""
        return Pace(self._shared.turns)

    async def complete(self, steps: Generator[int, None, T]) -> T:
        """Do all of some work, in pieces where it is long."""
        work = Work(steps)
        return work.result if work.run_piece() else await self._shared.turns.finish(work)

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def principal(self) -> str:
        """For whom the request is served."""
        return self.connection.principal.name

    @property
    def user(self) -> str:
        """Whose groups and ids count together; empty for brokers and where nobody logged in."""
        principal = self.connection.principal
        return "" if principal.is_broker or principal == ANONYMOUS else principal.name

    @property
    def request_id(self) -> str:
        """What tells a request from all others: its connection, and its number there."""
        return f"{self.connection.peer}/{self.header.correlation_id}"

    @property
    def audit(self) -> AuditLog:
        return self._shared.audit

    @property
    def image(self) -> MetadataImage:
        return self._shared.metadata.image

    def image_source(self) -> Callable[[], MetadataImage]:
        """The metadata as it is then; may be asked when the request is done with."""
        metadata = self._shared.metadata
        return lambda: metadata.image

    @property
    def has_acls(self) -> bool:
        """Whether access-control lists decide who may do what here."""
        return not isinstance(self._shared.authorizer, OpenAuthorizer)

    def authorize(self, operation: Operation, resource: Resource) -> bool:
        """Whether the principal may; a no is audited, unless it only hides something."""
        allowed = self.may(operation, resource)
        if not allowed and operation is not Operation.DESCRIBE:
            self.denied(operation, resource)
        return allowed

    def may(self, operation: Operation, resource: Resource) -> bool:
        """As `authorize`, where a no refuses nothing yet: another permission may be as good."""
        connection = self.connection
        allowed = self._shared.authorizer.authorize(
            connection.principal, connection.host, operation, resource
        )
        # No permission makes a client a broker, not even that of a super user.
        return allowed and (operation is not _AS_BROKER or connection.principal.is_broker)

    @property
    def rules(self) -> object:
        """What decides who may do what: another object once that has changed."""
        return self._shared.authorizer.rules()

    def authorize_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether the principal may do it to at least one resource of a kind."""
        connection = self.connection
        return self._shared.authorizer.authorize_any(
            connection.principal, connection.host, operation, kind
        )

    def authorize_topic(self, operation: Operation, topic: str) -> bool:
        return self.authorize(operation, Resource(ResourceType.TOPIC, topic))

    def authorize_group(self, operation: Operation, group_id: str) -> bool:
        return self.authorize(operation, Resource(ResourceType.GROUP, group_id))

    def topic_describer(self) -> Callable[[str], bool]:
        """Which topics the client may describe; may be asked when the request is done with."""
        authorizer, connection = self._shared.authorizer, self.connection
        principal, host = connection.principal, connection.host
        return lambda topic: authorizer.authorize(
            principal, host, Operation.DESCRIBE, Resource(ResourceType.TOPIC, topic)
        )

    def require_topic(self, operation: Operation, topic: str) -> None:
        self.require(operation, Resource(ResourceType.TOPIC, topic))

    def require_group(self, operation: Operation, group_id: str) -> None:
        self.require(operation, Resource(ResourceType.GROUP, group_id))

    def require(self, operation: Operation, resource: Resource) -> None:
        """KafkaError with the code of the resource's type unless the principal may."""
        if not self.may(operation, resource):
            self.denied(operation, resource)
            raise KafkaError(_DENIED[resource.type])

    def denied(self, operation: Operation, resource: Resource) -> None:
        """Have the audit log say that the request is refused, or a part of it."""
        from tidelog.server.audit_connections import record_denial

        record_denial(self, operation, resource)

    def allowed_operations(self, resource: Resource) -> int:
        connection = self.connection
        return allowed_operations(
            self._shared.authorizer, connection.principal, connection.host, resource
        )

    def cluster_operations(self) -> int:
        """What the client may do to the cluster: nothing that it may know, without Describe."""
        if not self.authorize(Operation.DESCRIBE, CLUSTER):
            return 0
        return self.allowed_operations(CLUSTER)

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
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
