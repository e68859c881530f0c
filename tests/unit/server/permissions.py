"""An authorizer that tests write down as a set, and that remembers what it was asked."""

from __future__ import annotations

from uuid import UUID

from tests.e2e.authorization_world import world
from tests.e2e.in_process import InProcessBroker, RawConnection
from tidelog.security.authorizer import (
    Authorizer,
    Operation,
    Principal,
    Resource,
    ResourceType,
)

Granted = tuple[Operation, Resource]


class Permissions:
    """Clients may do what is in `granted`, and anything to what is of `granted_kinds`.

    Brokers may do everything.
    """

    def __init__(self) -> None:
        self.granted: set[Granted] = set()
        self.granted_kinds: set[ResourceType] = set()
        self.asked: list[Granted] = []

    def authorize(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool:
        if principal.is_broker:
            return True
        self.asked.append((operation, resource))
        return resource.type in self.granted_kinds or (operation, resource) in self.granted

    def authorize_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        self.asked.append((operation, Resource(kind, "*")))
        return kind in self.granted_kinds or any(
            held is operation and resource.type is kind for held, resource in self.granted
        )

    def rules(self) -> object:
        return self.granted


def put_in_force(permissions: Authorizer, broker: InProcessBroker) -> None:
    """From now on clients of the broker may do what these permissions say."""
    object.__setattr__(broker.parts.requests, "authorizer", permissions)


def connect_as(name: str, broker: InProcessBroker) -> RawConnection:
    client = broker.connect()
    client.connection.principal = Principal(f"User:{name}", is_broker=False)
    return client


async def build_in_process(broker: InProcessBroker) -> dict[str, UUID]:
    """Create what `authorization_requests` are about; the ids of the topics."""
    admin = broker.connect()
    admin.connection.principal = Principal("User:admin", is_broker=True)
    steps = world()
    request = next(steps)
    while True:
        answer = await admin.call(*request)
        try:
            request = steps.send(answer)
        except StopIteration as end:
            topic_ids: dict[str, UUID] = end.value
            return topic_ids
