"""An authorizer that tests write down as a set, and that remembers what it was asked."""

from __future__ import annotations

from tests.e2e.in_process import InProcessBroker, RawConnection
from tidelog.security.authorizer import Operation, Principal, Resource, ResourceType

Permission = tuple[Operation, Resource]


class Permissions:
    """Everybody may do what is in `granted`, or everything; brokers may do everything."""

    def __init__(self) -> None:
        self.granted: set[Permission] = set()
        self.allows_all = False
        self.asked: list[Permission] = []

    def authorize(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool:
        if principal.is_broker:
            return True
        self.asked.append((operation, resource))
        return self.allows_all or (operation, resource) in self.granted

    def authorize_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        self.asked.append((operation, Resource(kind, "*")))
        return self.allows_all or any(
            held is operation and resource.type is kind for held, resource in self.granted
        )


def put_in_force(permissions: Permissions, broker: InProcessBroker) -> None:
    """From now on clients of the broker may do what these permissions say."""
    object.__setattr__(broker.parts.requests, "authorizer", permissions)


def connect_as(name: str, broker: InProcessBroker) -> RawConnection:
    client = broker.connect()
    client.connection.principal = Principal(f"User:{name}", is_broker=False)
    return client
