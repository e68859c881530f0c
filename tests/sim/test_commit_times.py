"""How long a write to three brokers takes, in the time of the simulation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.aio import Client, Producer
from tidelog.client.batching import ProducerRecord
from tidelog.testing.simulation.machines import Machine, World
from tidelog.testing.simulation.nodes import SimulatedLoop

# What a fetch waits for news; a write that has to wait for one to end takes about that long.
FETCH_WAIT_S = 0.5


class Cluster:
    """Three brokers and a producer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machines: list[Machine] = [world.machine(each) for each in range(3)]

    async def start(self) -> None:
        for machine in self.machines:
            await machine.start()
        self.producer = Producer(self.world.servers, host=self.world.client_host())

    async def create(self, name: str, **configs: str) -> None:
        topic = NewTopic(name, partitions=1, replication_factor=3, configs=configs)
        async with Client(self.world.servers, host=self.world.client_host()) as client:
            await client.run(create_topic(client.cluster, topic))

    async def write(self, topic: str) -> float:
        """Write a record with acks=all; the seconds until it is acknowledged."""
        began = self.world.loop.time()
        await self.producer.wait(await self.producer.send(ProducerRecord(topic, b"x", None)))
        return self.world.loop.time() - began

    async def stop(self) -> None:
        await self.producer.close()
        for machine in self.machines:
            await machine.stop()


def simulate(scenario: Callable[[Cluster], Awaitable[None]]) -> None:
    loop = SimulatedLoop(7, limit_seconds=3_600)

    async def main() -> None:
        cluster = Cluster(World(loop))
        await cluster.start()
        await scenario(cluster)
        await cluster.stop()

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_the_first_write_to_a_new_topic_does_not_wait_for_a_fetch_to_end() -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(4):
            await cluster.create(f"t{number}")
            assert await cluster.write(f"t{number}") < FETCH_WAIT_S / 2

    simulate(scenario)


def test_a_write_to_a_synced_topic_takes_the_disks_time_and_not_a_fetchs() -> None:
    async def scenario(cluster: Cluster) -> None:
        # Others of the same leader, whose fetch waits meanwhile.
        for number in range(6):
            await cluster.create(f"other{number}")
        await cluster.create("t", durability="fsync")
        await cluster.write("t")
        times = [await cluster.write("t") for _ in range(20)]
        # Two syncs, of at most 10 ms each, and four messages.
        assert max(times) < FETCH_WAIT_S / 5

    simulate(scenario)
