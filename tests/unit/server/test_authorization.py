"""Who may do what: every API asks the authorizer, and shows a denial as Kafka does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.e2e.in_process import InProcessBroker
from tests.unit.server.permissions import Permissions, connect_as, put_in_force
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.security.authorizer import CLUSTER, Operation, Resource, ResourceType

Scenario = Callable[[InProcessBroker, Permissions], Awaitable[None]]


def run(directory: Path, scenario: Scenario) -> None:
    async def play() -> None:
        async with InProcessBroker(directory) as broker:
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
