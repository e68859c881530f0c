"""Real brokers on simulated machines, which share a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from tidelog.cluster.commands import Answer, Command
from tidelog.cluster.image import MetadataImage
from tidelog.server.parts import Parts
from tidelog.testing.simulation.machines import PORT, SESSION_S, Machine, World
from tidelog.testing.simulation.nodes import SimulatedLoop

T = TypeVar("T")


def simulate(main: Callable[[World], Coroutine[Any, Any, T]], seed: int = 1) -> T:
    loop = SimulatedLoop(seed, limit_seconds=3_600)
    try:
        return loop.run_until_complete(main(World(loop)))
    finally:
        loop.close()


def add_machine(world: World, broker_id: int) -> Machine:
    """A machine whose brokers share their listener with clients."""
    return world.machine(
        broker_id,
        {
            "listeners": f"PLAINTEXT://b{broker_id}:{PORT}",
            "inter.broker.listener.name": "PLAINTEXT",
            "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
        },
    )


async def start_all(world: World, count: int) -> list[Machine]:
    machines = [add_machine(world, broker_id) for broker_id in range(count)]
    await asyncio.gather(*(machine.start() for machine in machines))
    return machines


def parts(machine: Machine) -> Parts:
    assert machine.broker is not None
    return machine.broker.parts


def image(machine: Machine) -> MetadataImage:
    return parts(machine).metadata.image


async def submit(machine: Machine, command: Command) -> Answer:
    """Have a broker hand a command on."""
    assert machine.node is not None
    return await machine.node.start(parts(machine).submitter.submit(command))


async def until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    """Wait for something to come about in virtual time."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.05)


def agree(machines: Sequence[Machine], alive: Sequence[int]) -> bool:
    """Whether all of them have the same image, with these brokers."""
    images = [image(machine) for machine in machines]
    return all(
        sorted(each.brokers) == sorted(alive) and each.version == images[0].version
        for each in images
    )


def controllers(machines: Sequence[Machine]) -> list[Machine]:
    return [
        each for each in machines if each.is_up and parts(each).membership.controller is not None
    ]
