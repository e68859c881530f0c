"""Every API in every version, asked by clients with no permission, wrong ones and the right ones.

The permissions are made from the table of `server/authorization`: *right* are those that an API's
row names and nothing else, *lacking* the same without one, *otherwise* those that it calls as good,
*elsewhere* both of them for other resources, *wrong* all that the row does not name. So the table
is held to Apache Kafka as well: what it calls right must be enough there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from bench.peers.kafka import ApacheKafka
from bench.peers.process import free_port
from tests.e2e.answers_script import shown
from tests.e2e.authorization_requests import UNASKED, requests
from tests.e2e.raw_client import RawClient
from tidelog.protocol.apis import APIS, Api
from tidelog.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tidelog.security.authorizer import Operation, ResourceType
from tidelog.server.authorization import AUTHORIZATION

Grant = tuple[Operation, ResourceType]
# (user, API, version, request) to the answer; None where the connection was closed.
Ask = Callable[[str, str, int, Any], Any]

_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_TYPES = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
_OPERATIONS = tuple(
    each for each in Operation if each not in (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS)
)
# Who may do one of these may describe as well.
IMPLYING = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
_ELSEWHERE = "elsewhere"
# Cluster actions are for brokers that have proved to be some: no permission makes a client one.
FOR_BROKERS = (Operation.CLUSTER_ACTION, ResourceType.CLUSTER)


# What it says is the same for everybody, and compared elsewhere.
_OPEN = {"ApiVersions"}


def asked_apis() -> list[Api]:
    """Those that a client of Kafka can call."""
    left_out = UNASKED | _OPEN
    return [each for each in APIS if not each.private and each.name not in left_out]


def asked_versions(api: Api, *, only_newest: bool) -> range:
    last = api.advertised[1]
    return range(last if only_newest else api.served[0], last + 1)


def grants(api: Api) -> dict[str, set[Grant]]:
    """The users of an API, by name, and what each may do to any resource of a kind."""
    row = AUTHORIZATION[api.name]
    right = {(each.operation, each.resource) for each in row} - {FOR_BROKERS}
    otherwise = {each.otherwise or (each.operation, each.resource) for each in row} - {FOR_BROKERS}
    named = right | otherwise
    enough = named | {
        (implying, kind) for operation, kind in named for implying in IMPLYING.get(operation, ())
    }
    every = {(operation, kind) for operation in _OPERATIONS for kind in _TYPES} - {FOR_BROKERS}
    users = {
        f"nobody-{api.name}": set(),
        f"wrong-{api.name}": every - enough,
        f"{_ELSEWHERE}-{api.name}": {each for each in named if each[1] is not ResourceType.CLUSTER},
    }
    for number, (operation, kind) in enumerate(sorted(right) if len(right) > 1 else ()):
        lost = {(each, kind) for each in (operation, *IMPLYING.get(operation, ()))}
        users[f"lacking{number}-{api.name}"] = right - lost
    users[f"right-{api.name}"] = right
    if otherwise != right:
        users[f"otherwise-{api.name}"] = otherwise
    return users


def resource_name(user: str, kind: ResourceType) -> str:
    """Which resources of a kind a user has its permissions for."""
    if kind is ResourceType.CLUSTER:
        return "kafka-cluster"
    return _ELSEWHERE if user.startswith(_ELSEWHERE) else "*"


def all_grants() -> dict[str, set[Grant]]:
    return {user: held for api in asked_apis() for user, held in grants(api).items()}


def questions(
    topic_ids: dict[str, UUID], *, only_newest: bool
) -> Iterator[tuple[str, tuple[str, str, int, Any]]]:
    """Every request of every user: its label, and what to ask."""
    for api in asked_apis():
        for user in grants(api):
            for version in asked_versions(api, only_newest=only_newest):
                for label, request in requests(api, version, topic_ids):
                    yield f"{user.partition('-')[0]}: {label}", (user, api.name, version, request)


def play(ask: Ask, topic_ids: dict[str, UUID], *, only_newest: bool = False) -> dict[str, object]:
    """Ask everything; what was answered, by user and request."""
    return {
        label: shown(ask(*question))
        for label, question in questions(topic_ids, only_newest=only_newest)
    }


class SecuredKafka(ApacheKafka):
    """Apache Kafka with its authorizer: an open listener for its administrator, one for users."""

    def prepare(self) -> None:
        self.users_port = free_port()
        super().prepare()

    @property
    def users(self) -> str:
        return f"127.0.0.1:{self.users_port}"

    def _properties(self, controller_port: int) -> dict[str, str]:
        made = super()._properties(controller_port)
        made["listeners"] += f",USERS://{self.users}"
        made["advertised.listeners"] += f",USERS://{self.users}"
        return {**made, **secured_settings()}


def secured_settings() -> dict[str, str]:
    users = " ".join(f'user_{user}="{_password(user)}"' for user in all_grants())
    return {
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": f"{_PLAIN_MODULE} required {users};",
    }


class Users:
    """The connections of all users to one broker, each logged in with PLAIN."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._clients: dict[str, RawClient] = {}

    def ask(self, user: str, name: str, version: int, request: Any) -> Any:
        client = self._clients.get(user)
        if client is None:
            client = self._clients[user] = log_in(self._servers, user)
        try:
            return client.call(name, version, request)
        except ConnectionResetError:
            del self._clients[user]
            client.close()
            return None

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def _password(user: str) -> str:
    """Not the name: that is in what Kafka prints, and tests look for passwords there."""
    return f"secret-of-{user}"


def log_in(servers: str, user: str) -> RawClient:
    client = RawClient(servers)
    assert not client.call("SaslHandshake", 1, SaslHandshakeRequest("PLAIN")).error_code
    token = f"\0{user}\0{_password(user)}".encode()
    assert not client.call("SaslAuthenticate", 2, SaslAuthenticateRequest(token)).error_code
    return client


def grant_all(servers: str) -> None:
    """Have an administrator let every user do what `all_grants` says."""
    entries = [
        _binding(user, operation, kind)
        for user, held in all_grants().items()
        for operation, kind in held
    ]
    with RawClient(servers) as admin:
        for start in range(0, len(entries), 500):
            some = entries[start : start + 500]
            body = struct.pack(">i", len(some)) + b"".join(some)
            header = struct.pack(">hhih", 30, 1, 1, 3) + b"raw"
            admin.socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
            codes = list(_codes(admin.receive_frame()))
            assert codes == [0] * len(some)


def _binding(user: str, operation: Operation, kind: ResourceType) -> bytes:
    name = resource_name(user, kind)
    literal, allow = 3, 3
    return (
        struct.pack(">b", kind)
        + _text(name)
        + struct.pack(">b", literal)
        + _text(f"User:{user}")
        + _text("*")
        + struct.pack(">bb", operation, allow)
    )


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _codes(frame: bytes) -> Iterator[int]:
    position = 4 + 4
    (count,) = struct.unpack_from(">i", frame, position)
    position += 4
    for _ in range(count):
        code, length = struct.unpack_from(">hh", frame, position)
        yield code
        position += 4 + max(length, 0)
