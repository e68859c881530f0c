"""Who may do what: every API asks the authorizer, and shows a denial as Kafka does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.e2e.answers_script import shown
from tests.e2e.authorization_requests import (
    CONSUMERS,
    DOOMED,
    GROUP,
    OPEN_ID,
    TOPIC,
    TRANSACTIONAL_ID,
    UNASKED,
    requests,
)
from tests.e2e.in_process import InProcessBroker
from tests.unit.server.permissions import Permissions, build_in_process, connect_as, put_in_force
from tidelog.errors import ErrorCode
from tidelog.protocol.apis import APIS
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.security.authorizer import CLUSTER, OPERATIONS, Operation, Resource, ResourceType
from tidelog.server.authorization import AUTHORIZATION

EVERYTHING = set(ResourceType)
# By what each may touch.
USERS: dict[str, set[ResourceType]] = {
    "nobody": set(),
    "user": EVERYTHING - {ResourceType.CLUSTER},
    "admin": EVERYTHING,
}
# To fill in the operations that a client may do, which is no question about the request.
_OF_TOPICS = {(each, ResourceType.TOPIC) for each in OPERATIONS[ResourceType.TOPIC]}
_OF_GROUPS = {(each, ResourceType.GROUP) for each in OPERATIONS[ResourceType.GROUP]}
_OF_CLUSTER = {(each, ResourceType.CLUSTER) for each in OPERATIONS[ResourceType.CLUSTER]}
SHOWN = {
    "Metadata": _OF_TOPICS | _OF_CLUSTER,
    "DescribeTopicPartitions": _OF_TOPICS,
    "DescribeCluster": _OF_CLUSTER,
    "DescribeGroups": _OF_GROUPS,
    "ConsumerGroupDescribe": _OF_GROUPS,
}

Scenario = Callable[[InProcessBroker, Permissions], Awaitable[None]]


def run(directory: Path, scenario: Scenario) -> None:
    async def play() -> None:
        settings = {"auto.create.topics.enable": "true"}
        async with InProcessBroker(directory, settings) as broker:
            permissions = Permissions()
            put_in_force(permissions, broker)
            await scenario(broker, permissions)

    asyncio.run(asyncio.wait_for(play(), 60))


def test_who_may_write_to_some_topic_may_be_an_idempotent_producer(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, permissions: Permissions) -> None:
        async def code() -> int:
            client = connect_as("alice", broker)
            answer = await client.call("InitProducerId", 4, InitProducerIdRequest(None))
            return int(answer.error_code)

        assert await code() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        permissions.granted = {(Operation.WRITE, Resource(ResourceType.GROUP, "orders"))}
        assert await code() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        permissions.granted = {(Operation.WRITE, Resource(ResourceType.TOPIC, "orders"))}
        assert await code() == ErrorCode.NONE
        permissions.granted = {(Operation.IDEMPOTENT_WRITE, CLUSTER)}
        assert await code() == ErrorCode.NONE

    run(tmp_path, scenario)


def test_every_api_says_what_it_asks() -> None:
    assert not {each.name for each in APIS} - AUTHORIZATION.keys()


def test_every_api_asks_what_its_row_says_and_nothing_else(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, permissions: Permissions) -> None:
        topic_ids = await build_in_process(broker)
        walked = 0
        for api in APIS:
            if api.name in UNASKED:
                continue
            asked: set[tuple[Operation, ResourceType]] = set()
            for user, granted in USERS.items():
                permissions.granted_kinds = granted
                permissions.asked.clear()
                for version in range(api.served[0], api.served[1] + 1):
                    for _, request in requests(api, version, topic_ids):
                        await connect_as(user, broker).call(api.name, version, request)
                asked |= {(operation, resource.type) for operation, resource in permissions.asked}
            row = _row(api.name)
            assert asked - (SHOWN.get(api.name, set()) - row) == row, api.name
            walked += 1
        assert walked == len(APIS) - len(UNASKED) >= 50

    run(tmp_path, scenario)


def _row(name: str) -> set[tuple[Operation, ResourceType]]:
    """All that an API may ask, by its row."""
    questions = AUTHORIZATION[name]
    asked = {(each.operation, each.resource) for each in questions}
    return asked | {each.otherwise for each in questions if each.otherwise is not None}


# What exists, and what does not.
ABSENT = {
    TOPIC: "vanish",
    GROUP: "tree",
    CONSUMERS: "muddle",
    TRANSACTIONAL_ID: "cinder",
    OPEN_ID: "late-ledger",
    **{DOOMED.format(each): f"lost-{each}" for each in range(1, 7)},
}


def test_who_may_not_describe_a_thing_cannot_tell_whether_it_exists(tmp_path: Path) -> None:
    async def scenario(broker: InProcessBroker, permissions: Permissions) -> None:
        topic_ids = await build_in_process(broker)
        client = connect_as("nobody", broker)
        compared = 0
        for api in APIS:
            if api.name in UNASKED:
                continue
            for version in range(api.served[0], api.served[1] + 1):
                for label, request in requests(api, version, topic_ids):
                    real = shown(await client.call(api.name, version, request))
                    if not _rename(request):
                        continue
                    absent = repr(shown(await client.call(api.name, version, request)))
                    for name, other in ABSENT.items():
                        absent = absent.replace(repr(other), repr(name))
                    assert absent == repr(real), label
                    compared += 1
        assert compared >= 200

    run(tmp_path, scenario)


def _rename(message: Any) -> bool:
    """Have a request name what does not exist instead; False where it cannot, or names an id."""
    renamed = False
    for each in fields(message):
        value = getattr(message, each.name)
        if isinstance(value, UUID) and value.int:
            # Ids tell nothing about names: that one is known may show, as in Kafka.
            return False
        if isinstance(value, str) and value in ABSENT:
            setattr(message, each.name, ABSENT[value])
            renamed = True
        elif isinstance(value, list) and value and isinstance(value[0], str):
            setattr(message, each.name, [ABSENT.get(name, name) for name in value])
            renamed = renamed or not ABSENT.keys().isdisjoint(value)
        elif isinstance(value, list) and value and is_dataclass(value[0]):
            found = [_rename(part) for part in value]
            renamed = renamed or any(found)
    return renamed
