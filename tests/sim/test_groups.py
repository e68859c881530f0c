"""Groups on three brokers: what a coordinator answered survives it and is found at the next."""

from __future__ import annotations

import asyncio

from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.aio import Client
from tidelog.client.faults import NetworkError
from tidelog.client.group_admin import commit_offsets, committed_offsets, find_coordinator
from tidelog.client.operation import retrying
from tidelog.client.settings import ClientSettings
from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.errors import KafkaError
from tidelog.model import TopicPartition
from tidelog.testing.simulation.machines import Machine, World
from tidelog.testing.simulation.nodes import SimulatedLoop

BROKERS = 3
GROUP = "g"
PARTITION = TopicPartition("t", 0)


class CommitLostError(AssertionError):
    """What was answered for is not there any more (I24, K13)."""


class Committers:
    """One client that commits rising offsets, and one that reads them back."""

    def __init__(self, world: World) -> None:
        self._world = world
        # The highest offset that was asked for, that was answered for, and that was read.
        self.asked = self.acknowledged = self.seen = -1
        self.reads = 0
        self.is_over = False
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self._answered = asyncio.Event()

    def client(self) -> Client:
        settings = ClientSettings(request_timeout_ms=3_000, operation_timeout_ms=20_000)
        return Client(self._world.servers, settings, self._world.client_host())

    async def commit(self) -> None:
        async with self.client() as client:
            while not self.is_over:
                await self.may_commit.wait()
                self.asked += 1
                offset = self.asked
                try:
                    await client.run(commit_offsets(client.cluster, GROUP, {PARTITION: offset}))
                except (KafkaError, NetworkError):
                    await asyncio.sleep(0.1)
                    continue
                self.acknowledged = max(self.acknowledged, offset)
                self._answered.set()
                await asyncio.sleep(0.02)

    async def next_answer(self) -> None:
        """Return at the moment at which a commit is answered."""
        self._answered.clear()
        await self._answered.wait()

    async def read(self) -> None:
        async with self.client() as client:
            while not self.is_over:
                await asyncio.sleep(0.05)
                try:
                    await self.read_once(client)
                except (KafkaError, NetworkError):
                    continue

    async def read_once(self, client: Client) -> None:
        """What was answered or read before the question is found, or something later."""
        before = max(self.acknowledged, self.seen)
        found = await client.run(committed_offsets(client.cluster, GROUP, [PARTITION]))
        offset = found.get(PARTITION, -1)
        if not before <= offset <= self.asked:
            raise CommitLostError(f"{before} was known, {offset} is read of {self.asked} asked")
        self.seen = offset
        self.reads += 1


async def coordinator_of(world: World, client: Client) -> Machine:
    node = await client.run(
        retrying(client.cluster, lambda: find_coordinator(client.cluster, GROUP))
    )
    return world.machines[node]


async def kill_after_an_answer(world: World, client: Client, committers: Committers) -> None:
    """And let no new commit hide what the next coordinator does not know."""
    coordinator = await coordinator_of(world, client)
    await committers.next_answer()
    committers.may_commit.clear()
    coordinator.kill()
    await asyncio.sleep(12)
    committers.may_commit.set()
    await coordinator.start()


async def kill_out_of_reach(world: World, client: Client, committers: Committers) -> None:
    """The coordinator is cut off from its followers, not from its clients, and then killed."""
    coordinator = await coordinator_of(world, client)
    others = [each.name for each in world.machines.values() if each is not coordinator]
    await committers.next_answer()
    for name in others:
        world.network.cut(coordinator.name, name)
        world.network.cut(name, coordinator.name)
    await asyncio.sleep(2)
    coordinator.kill()
    world.network.heal_all()
    await asyncio.sleep(12)
    await coordinator.start()


async def scenario(world: World) -> Committers:
    machines = [
        world.machine(each, {"offsets.topic.num.partitions": "2"}) for each in range(BROKERS)
    ]
    await asyncio.gather(*(machine.start() for machine in machines))
    committers = Committers(world)
    async with committers.client() as client:
        await client.run(create_topic(client.cluster, NewTopic("t", partitions=1)))
        await coordinator_of(world, client)
        assert machines[0].broker is not None
        offsets = machines[0].broker.parts.metadata.image.topics[OFFSETS_TOPIC]
        assert all(len(state.replicas) == BROKERS for state in offsets.partitions)
        async with asyncio.TaskGroup() as group:
            group.create_task(committers.commit())
            group.create_task(committers.read())
            for strike in (kill_after_an_answer, kill_out_of_reach):
                await asyncio.sleep(3)
                await strike(world, client, committers)
            await asyncio.sleep(3)
            committers.is_over = True
        await committers.read_once(client)
    return committers


def run(seed: int) -> tuple[str, int, int]:
    loop = SimulatedLoop(seed, limit_seconds=3_600)
    try:
        committers = loop.run_until_complete(scenario(World(loop)))
        return loop.trace, committers.acknowledged, committers.reads
    finally:
        loop.close()


def test_what_was_committed_survives_its_coordinators() -> None:
    _, acknowledged, reads = run(1)
    assert acknowledged > 100 and reads > 50
