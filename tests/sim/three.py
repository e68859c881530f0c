"""Three real brokers on simulated machines, and a client that asks them anything."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tidelog.client.aio import Client, Producer
from tidelog.client.batching import ProducerRecord
from tidelog.client.connection import Call
from tidelog.client.metadata import CONTROLLER
from tidelog.client.operation import Operation, ask, refresh
from tidelog.cluster.image import MetadataImage, PartitionState
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.testing.simulation.machines import Machine, World
from tidelog.testing.simulation.nodes import SimulatedLoop


class Three:
    """Three brokers and a client."""

    def __init__(self, world: World, machines: list[Machine]) -> None:
        self.world = world
        self.machines = machines
        self.client = Client(world.servers, host=world.client_host())

    @property
    def image(self) -> MetadataImage:
        broker = self.machines[0].broker
        assert broker is not None
        return broker.parts.metadata.image

    def state(self, partition: int = 0) -> PartitionState:
        state = self.image.partition("t", partition)
        assert state is not None
        return state

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not holds():
                await asyncio.sleep(0.1)

    async def ask(self, request: object, node: int = CONTROLLER, version: int = 99) -> Any:
        name = type(request).__name__.removesuffix("Request")

        def asked() -> Operation[Any]:
            if node >= 0:
                yield from refresh(self.client.cluster, ["t"])
            return (yield from ask(Call(node, name, request, version)))

        return await self.client.run(asked())

    async def create(self, replicas: dict[int, list[int]], **configs: str) -> None:
        assignments = [CreatableReplicaAssignment(*each) for each in replicas.items()]
        settings = [
            CreatableTopicConfig(name.replace("_", "."), value) for name, value in configs.items()
        ]
        topic = CreatableTopic("t", -1, -1, assignments, settings)
        response = await self.ask(CreateTopicsRequest(topics=[topic]))
        assert response.topics[0].error_code == ErrorCode.NONE
        await self.until(lambda: "t" in self.image.topics)

    async def produce(self, count: int) -> None:
        producer = Producer(self.world.servers, host=self.world.client_host())
        for n in range(count):
            await producer.wait(await producer.send(ProducerRecord("t", b"%d" % n, None)))
        await producer.close()


def simulate(
    script: Callable[[Three], Awaitable[None]], settings: Mapping[str, str] | None = None
) -> None:
    loop = SimulatedLoop(3, limit_seconds=3_600)

    async def main() -> None:
        world = World(loop)
        machines = [world.machine(each, settings) for each in range(3)]
        for machine in machines:
            await machine.start()
        three = Three(world, machines)
        await script(three)
        await three.client.close()
        for machine in machines:
            if machine.is_up:
                await machine.stop()

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
