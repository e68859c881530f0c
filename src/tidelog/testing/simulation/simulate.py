"""Your calls against simulated brokers: `simulate(seed, calls)`.

    async def calls(cluster: SimulatedCluster) -> None:
        await cluster.create_topic("orders")
        place = await cluster.send("orders", b"first")
        cluster.kill(0)
        await cluster.sleep(20)
        assert [each.value for each in await cluster.read("orders")] == [b"first"]

    simulate(7, calls)

The brokers are the real ones, on a network, disks and clocks that exist in memory only. Hours pass
in an instant, and the same seed gives the same run, down to the order of messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.aio import Consumer, Producer
from tidelog.client.batching import ProducerRecord
from tidelog.client.offsets import LATEST, Start, list_offsets
from tidelog.client.settings import ProducerSettings
from tidelog.model import TopicPartition
from tidelog.testing.disk import CrashMode
from tidelog.testing.simulation.machines import World
from tidelog.testing.simulation.nodes import SimulatedLoop
from tidelog.testing.simulation.schedule import Schedule

T = TypeVar("T")
_DAY_S: Final = 86_400.0


class SimulatedRecord(NamedTuple):
    """A record as it was read."""

    offset: int
    key: bytes | None
    value: bytes | None


class SimulatedCluster:
    """What your calls may do: use the brokers as a client, and let things go wrong."""

    def __init__(self, world: World, schedule: Schedule, producer: Producer) -> None:
        self._world = world
        self._schedule = schedule
        self._producer = producer

    # -- as a client ------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(name, partitions, configs=configs or {})
        await self._producer.run(create_topic(self._producer.cluster, new))

    async def send(
        self, topic: str, value: bytes, *, key: bytes | None = None, partition: int | None = None
    ) -> int:
        """Send a record; its offset once all in-sync replicas have it, or the error raised."""
        record = ProducerRecord(topic, value, key, partition=partition)
        return await self._producer.wait(await self._producer.send(record))

    async def read(self, topic: str, partition: int = 0, offset: int = 0) -> list[SimulatedRecord]:
        """The records of a partition from an offset on, to the end that it has now."""
        place = TopicPartition(topic, partition)
        consumer = Consumer(self._world.servers, host=self._world.client_host())
        try:
            found = await consumer.run(list_offsets(consumer.cluster, {place: LATEST}))
            await consumer.assign({place: Start("offset", offset)})
            records: list[SimulatedRecord] = []
            while consumer.core.positions[place].position < found[place].offset:
                for _, some in await consumer.poll(1.0):
                    records += [SimulatedRecord(each.offset, each.key, each.value) for each in some]
            return records
        finally:
            await consumer.close()

    async def sleep(self, seconds: float) -> None:
        """Let time pass, which takes none."""
        await asyncio.sleep(seconds)

    # -- what goes wrong --------------------------------------------------------------------------

    async def strike(self, seconds: float) -> None:
        """Let faults drawn from the seed strike for a while: kills, cuts, lost sessions."""
        await self._schedule.run(seconds)

    def heal(self) -> None:
        """End every fault and start every broker."""
        self._schedule.heal()

    def kill(self, broker_id: int) -> None:
        """SIGKILL. It stays away until `start` or `heal`."""
        self._world.machines[broker_id].kill()

    def cut_power(self, broker_id: int) -> None:
        """What the broker had not synced may be lost."""
        self._world.machines[broker_id].cut_power(CrashMode.RANDOM)

    async def start(self, broker_id: int) -> None:
        """Start a broker that is away; returns when it serves."""
        await self._world.machines[broker_id].start()

    def isolate(self, broker_id: int) -> Callable[[], None]:
        """Cut a broker off from the others; call what is returned to end it."""
        network = self._world.network
        name = self._world.machines[broker_id].name
        others = [each.name for each in self._world.machines.values() if each.name != name]
        for other in others:
            network.cut(name, other)
            network.cut(other, name)

        def end() -> None:
            for other in others:
                network.heal(name, other)
                network.heal(other, name)

        return end


def simulate(
    seed: int,
    calls: Callable[[SimulatedCluster], Coroutine[Any, Any, T]],
    *,
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
) -> T:
    """Run your calls against as many simulated brokers; what they return, or raise.

    `settings` are brokers' settings, by Kafka's names. Where a seed fails, the same seed fails
    again.
    """
    loop = SimulatedLoop(seed, limit_seconds=_DAY_S)
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_run(loop, seed, calls, (brokers, settings or {})))
    finally:
        loop.close()
        asyncio.set_event_loop(None)


async def _run(
    loop: SimulatedLoop,
    seed: int,
    calls: Callable[[SimulatedCluster], Coroutine[Any, Any, T]],
    size: tuple[int, Mapping[str, str]],
) -> T:
    world = World(loop)
    brokers, settings = size
    factor = str(min(3, brokers))
    for broker_id in range(brokers):
        world.machine(broker_id, {"default.replication.factor": factor, **settings})
    unwhole: set[int] = set()

    def may_lose(machine: Any) -> bool:
        # One machine of all is enough, and none where nobody else has its records.
        unwhole.add(machine.broker_id)
        return brokers >= 3 and len(unwhole) == 1

    schedule = Schedule(world, seed, may_lose)
    await asyncio.gather(*(machine.boot_up() for machine in world.machines.values()))
    options = ProducerSettings(auto_create_topics=False)
    producer = Producer(world.servers, options, world.client_host())
    try:
        return await calls(SimulatedCluster(world, schedule, producer))
    finally:
        with suppress(Exception):
            await producer.close()
