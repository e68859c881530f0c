"""The one question that every request asks: may this principal do this to that?

The wire codes are Kafka's. Without access-control lists everybody may do everything, except to act
as a broker: cluster actions are for connections that have authenticated as one, on whichever
listener, so that a client cannot pose as a replica (CVE-2018-1288).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol


class Operation(IntEnum):
    """What is asked for; the codes of the wire protocol's ACL operations."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """What it is done to; the codes of the wire protocol's resource types."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Resource(NamedTuple):
    """One resource by type and name."""

    type: ResourceType
    name: str


class Principal(NamedTuple):
    """Who asks, and whether it has proved to be a broker of this cluster."""

    name: str
    is_broker: bool


ANONYMOUS = Principal("User:ANONYMOUS", is_broker=False)


def listed_principals(text: str) -> frozenset[str]:
    """The principals of a setting such as `super.users`, parted by semicolons."""
    return frozenset(each.strip() for each in text.split(";") if each.strip())


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")

# Which operations exist per resource type: the answer to "what may I do here".
OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


class Authorizer(Protocol):
    """Decides; asked once per request and resource. `host` is the client's address, no port."""

    def authorize(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool: ...

    def authorize_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether the principal may do it to at least one resource of a kind, whichever."""
        ...

    def rules(self) -> object:
        """What decides now: another object once something else may be allowed."""
        ...


class OpenAuthorizer:
    """The rule of a broker without access-control lists."""

    def authorize(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool:
        return operation is not Operation.CLUSTER_ACTION or principal.is_broker

    def authorize_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        return operation is not Operation.CLUSTER_ACTION or principal.is_broker

    def rules(self) -> object:
        return None


def allowed_operations(
    authorizer: Authorizer, principal: Principal, host: str, resource: Resource
) -> int:
    """The bit field of permitted operations that Metadata and DescribeCluster may carry.

    As in Kafka it is about access-control lists alone: without any, all may be done.
    """
    is_open = isinstance(authorizer, OpenAuthorizer)
    bits = 0
    for operation in OPERATIONS[resource.type]:
        if is_open or authorizer.authorize(principal, host, operation, resource):
            bits |= 1 << operation
    return bits
