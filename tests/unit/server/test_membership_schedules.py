"""Brokers come to terms again after any mixture of lost sessions, answers, links and processes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from tests.unit.server.clusters import agree, controllers, image, parts, simulate, start_all, until
from tidelog.cluster import layout
from tidelog.cluster.commands import CreatedTopic, CreateTopic
from tidelog.errors import KafkaError
from tidelog.store.port import Operation, Set
from tidelog.testing.memory_store import Loss
from tidelog.testing.simulation.machines import Machine, World

# The last ones found something once.
SEEDS: Final = (0, 1, 105, 159)
FAULTS: Final = 40


class Ledger:
    """What brokers were promised, and what the store was told."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.created: set[str] = set()
        self.epochs: list[int] = []
        world.tree.on_transaction = self._note

    def _note(self, operations: Sequence[Operation], session: int) -> None:
        for each in operations:
            if isinstance(each, Set) and each.path == layout.CONTROLLER_EPOCH:
                self.epochs.append(json.loads(each.value)["epoch"])

    async def create(self, machine: Machine, name: str) -> None:
        node = machine.node
        if node is None or machine.broker is None or not machine.is_serving:
            return
        submitting = parts(machine).submitter.submit(CreateTopic(name, 1, 1))
        try:
            answer = await asyncio.wait_for(asyncio.shield(node.start(submitting)), 60)
        except (KafkaError, TimeoutError):
            return
        assert isinstance(answer, CreatedTopic)
        self.created.add(name)


def expire(machine: Machine, chance: random.Random) -> None:
    if machine.session is not None:
        machine.session.expire()


def lose_answers(machine: Machine, chance: random.Random) -> None:
    if machine.session is not None:
        machine.session.losses = [chance.choice([None, *Loss]) for _ in range(4)]


def lag(machine: Machine, chance: random.Random) -> None:
    if machine.session is not None:
        machine.session.lag = chance.randrange(8)


def cut(machine: Machine, chance: random.Random) -> None:
    machine.cut_store()


def heal(machine: Machine, chance: random.Random) -> None:
    machine.heal_store()


def kill(machine: Machine, chance: random.Random) -> None:
    if machine.is_up:
        machine.kill()


def boot(machine: Machine, chance: random.Random) -> None:
    if not machine.is_up:
        machine.boot_up()


STEPS: Final[tuple[Callable[[Machine, random.Random], None], ...]] = (
    expire, lose_answers, lag, cut, heal, heal, kill, boot, boot,
)  # fmt: skip


async def disturb(world: World, machines: Sequence[Machine], chance: random.Random) -> Ledger:
    ledger = Ledger(world)
    creating = []
    for number in range(FAULTS):
        chance.choice(STEPS)(chance.choice(machines), chance)
        creating.append(asyncio.ensure_future(ledger.create(chance.choice(machines), f"t{number}")))
        await asyncio.sleep(chance.choice([0.01, 0.3, 1.0, 4.0]))
    for machine in machines:
        machine.heal_store()
        boot(machine, chance)
    await asyncio.gather(*creating)
    return ledger


@pytest.mark.parametrize("seed", SEEDS)
def test_after_any_faults_there_is_one_controller_one_image_and_nothing_promised_is_lost(
    seed: int,
) -> None:
    async def main(world: World) -> None:
        machines = await start_all(world, 3)
        deaths: list[str] = []
        for machine in machines:
            machine.on_death = lambda dead: deaths.append(dead.name)
        ledger = await disturb(world, machines, random.Random(seed))
        await until(lambda: all(each.is_serving for each in machines))
        await until(lambda: agree(machines, [0, 1, 2]))
        await until(lambda: len(controllers(machines)) == 1)
        assert deaths == []
        assert ledger.epochs == sorted(set(ledger.epochs))
        held = layout.load(world.tree.nodes).image
        assert held.same_content(image(machines[0]))
        assert ledger.created <= held.topics.keys()
        assert ledger.created

    simulate(main, seed)
