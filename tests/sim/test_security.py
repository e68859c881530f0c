"""Rules and users change while brokers die, hang and are cut off: nobody may do more than was said.

An administrator adds and removes rules and users, one command after the other, through any broker.
After every step of every broker its image is held to what the administrator was told:

- what was acknowledged up to the image's version counts in it, and what is still open may or may
  not; so no broker is ever wider than the latest acknowledged set that it follows;
- an image never goes back, and one version says the same on all brokers;
- what the broker's authorizer decides is what the rules of that very image say.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from tests.unit.server.clusters import agree, image, parts, simulate, submit, until
from tidelog.cluster.commands import AlterScramCredentials, Command, CreateAcls, DeleteAcls
from tidelog.cluster.image import MetadataImage
from tidelog.security.acl import AclBinding, AclFilter
from tidelog.security.authorizer import Operation, Principal, Resource, ResourceType
from tidelog.security.credentials import ScramCredential
from tidelog.testing.simulation.faults import Faults
from tidelog.testing.simulation.machines import PORT, SESSION_S, Machine, World

SEEDS = range(200 if os.environ.get("TIDELOG_LONG") else 4)
CHANGES = 60
# Longer than a cut of the network lasts, which holds messages back.
UNDER_WAY_S_MAX = 30.0
SHA_256 = "SCRAM-SHA-256"
CREDENTIAL = ScramCredential(b"salt" * 4, b"stored", b"server", 4096)
TOPICS = ("a", "b")
USERS = ("User:alice", "User:bob")
RULES = tuple(
    AclBinding(2, 3, topic, user, "*", operation, 3)
    for topic in TOPICS
    for user in USERS
    for operation in (3, 4)
)

# A rule, or the name of a user that can log in.
Fact = AclBinding | str


def facts_of(held: MetadataImage) -> frozenset[Fact]:
    return frozenset((*held.acls, *(user for user, _ in held.scram_credentials)))


class Told(NamedTuple):
    """What was so when an acknowledgement came, of which it is known."""

    version: int
    facts: dict[Fact, bool]


@dataclass(slots=True)
class Ledger:
    """What the administrator was told, and what brokers have shown."""

    told: list[Told] = field(default_factory=lambda: [Told(0, {})])
    # What a command that has no answer, or none that says, may have changed.
    open: set[Fact] = field(default_factory=set)
    # Between these versions nobody could know what was so of a fact.
    unsettled: list[tuple[Fact, int, int]] = field(default_factory=list)
    by_version: dict[int, frozenset[Fact]] = field(default_factory=dict)
    # Of each life of a broker, the image that was looked at last.
    seen: dict[int, tuple[object, MetadataImage]] = field(default_factory=dict)
    looks: int = 0
    decisions: int = 0

    def acknowledged(self, version: int, fact: Fact, holds: bool) -> None:
        self.told.append(Told(version, {**self.told[-1].facts, fact: holds}))
        self.open.discard(fact)

    def settled(self, version: int, fact: Fact) -> None:
        """A fact whose last change had no answer is gone for certain."""
        self.unsettled.append((fact, self.told[-1].version, version))
        self.acknowledged(version, fact, False)

    def look(self, machine: Machine) -> None:
        broker = machine.broker
        if broker is None or broker._parts is None:
            return
        now = broker._parts.metadata.image
        life, before = self.seen.get(machine.broker_id, (None, None))
        if now is before or not now.version:
            return
        if life is broker and before is not None:
            assert now.version >= before.version, "an image went back"
        self.seen[machine.broker_id] = (broker, now)
        self.looks += 1
        facts = facts_of(now)
        assert self.by_version.setdefault(now.version, facts) == facts
        self._check(now.version, facts)
        self._check_decisions(machine, now)

    def _check(self, version: int, facts: frozenset[Fact]) -> None:
        latest = max(n for n, each in enumerate(self.told) if each.version <= version)
        for fact in (*RULES, *USERS):
            if fact in self.open or any(
                fact == each and low <= version < high for each, low, high in self.unsettled
            ):
                continue
            # Later ones may be in the image already: their versions are those of answers.
            possible = {each.facts.get(fact, False) for each in self.told[latest:]}
            assert (fact in facts) in possible, f"{fact} at version {version}"

    def _check_decisions(self, machine: Machine, now: MetadataImage) -> None:
        authorizer = parts(machine).requests.authorizer
        for user in USERS:
            for topic in TOPICS:
                for operation in (Operation.READ, Operation.WRITE):
                    asked = Resource(ResourceType.TOPIC, topic)
                    rule = AclBinding(2, 3, topic, user, "*", operation, 3)
                    may = authorizer.authorize(Principal(user, False), "h", operation, asked)
                    assert may == (rule in now.acls)
                    self.decisions += 1


def add_machine(world: World, broker_id: int) -> Machine:
    return world.machine(
        broker_id,
        {
            "listeners": f"PLAINTEXT://b{broker_id}:{PORT}",
            "inter.broker.listener.name": "PLAINTEXT",
            "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
            "authorizer.class.name": "acl",
        },
    )


def next_change(source: random.Random, facts: dict[Fact, bool]) -> tuple[Command, Fact, bool]:
    if source.random() < 0.25:
        user = source.choice(USERS)
        holds = not facts.get(user, False)
        return AlterScramCredentials(user, {SHA_256: CREDENTIAL if holds else None}), user, holds
    rule = source.choice(RULES)
    if facts.get(rule, False):
        one = AclFilter(2, 3, rule.resource_name, rule.principal, "*", rule.operation, 3)
        return DeleteAcls([one]), rule, False
    return CreateAcls([rule]), rule, True


async def is_done(machine: Machine, *commands: Command) -> bool:
    """Whether a broker acknowledges commands in time, and lives to tell."""
    for command in commands:
        submitted = asyncio.ensure_future(submit(machine, command))
        # Not awaited itself: what runs on a machine that is gone does not even end when cancelled.
        await asyncio.wait([submitted], timeout=60)
        if not submitted.done() or submitted.cancelled() or submitted.exception() is not None:
            submitted.cancel()
            return False
    return machine.broker is not None and machine.broker._parts is not None


async def administrate(world: World, ledger: Ledger, source: random.Random) -> int:
    """Change one thing after the other; how many were acknowledged."""
    done = 0
    for _ in range(CHANGES):
        await asyncio.sleep(source.uniform(0.0, 1.0))
        serving = [each for each in world.machines.values() if each.is_serving]
        if not serving:
            continue
        machine = source.choice(serving)
        command, fact, holds = next_change(source, ledger.told[-1].facts)
        ledger.open.add(fact)
        if await is_done(machine, command):
            ledger.acknowledged(image(machine).version, fact, holds)
            done += 1
        else:
            await settle(world, ledger, fact)
    return done


async def settle(world: World, ledger: Ledger, fact: Fact) -> None:
    """Find out what became of a fact: have it gone, through whichever broker does it.

    A command without an answer may still be on its way, and be done after a later one: the fact
    is gone for certain once nothing that was sent before can arrive any more.
    """
    if isinstance(fact, str):
        commands: tuple[Command, ...] = (
            AlterScramCredentials(fact, {SHA_256: CREDENTIAL}),
            AlterScramCredentials(fact, {SHA_256: None}),
        )
    else:
        one = AclFilter(2, 3, fact.resource_name, fact.principal, "*", fact.operation, 3)
        commands = (DeleteAcls([one]),)
    while True:
        for machine in list(world.machines.values()):
            if not machine.is_serving or not await is_done(machine, *commands):
                continue
            await asyncio.sleep(UNDER_WAY_S_MAX)
            # Done again, now that nothing else can be.
            if machine.is_serving and await is_done(machine, *commands):
                ledger.settled(image(machine).version, fact)
                return
        await asyncio.sleep(0.5)


class Weather:
    """Strikes one broker at a time, and has those that are down start again."""

    def __init__(self, world: World, source: random.Random) -> None:
        self._world = world
        self._source = source
        faults = Faults(world, source, lambda machine: True)
        self._duration = faults.duration
        self._kinds = (
            faults.kill, faults.kill, faults.cut_power, faults.stop, faults.pause, faults.isolate,
            faults.cut_one_way, faults.expire_session, faults.cut_store, faults.lose_transaction,
            faults.break_connections, faults.lag_store,
        )  # fmt: skip
        self.strikes = 0

    async def blow(self) -> None:
        while True:
            await asyncio.sleep(self._source.uniform(0.1, 2.0))
            machine = self._source.choice(list(self._world.machines.values()))
            if not machine.is_steady:
                continue
            end = self._source.choice(self._kinds)(machine)
            self.strikes += 1
            try:
                await asyncio.sleep(self._duration())
            finally:
                if end is not None:
                    end()
            await self._start_all()

    async def _start_all(self) -> None:
        for machine in self._world.machines.values():
            if not machine.is_up:
                await asyncio.wait([machine.boot_up()], timeout=30)

    async def clear(self) -> None:
        """Heal everything; returns when all brokers serve and agree."""
        self._world.network.heal_all()
        machines = list(self._world.machines.values())
        for machine in machines:
            machine.heal_store()
            if machine.node is not None and machine.node.is_paused:
                machine.resume()

        def calm() -> bool:
            return all(each.is_serving and each.is_steady for each in machines)

        while not calm():
            await self._start_all()
            await asyncio.sleep(0.5)
        await until(lambda: calm() and agree(machines, range(len(machines))))


async def one_world(world: World, seed: int) -> Ledger:
    source = random.Random(seed)
    ledger = Ledger()
    machines = [add_machine(world, broker_id) for broker_id in range(3)]
    await asyncio.gather(*(machine.start() for machine in machines))
    world.on_step = ledger.look
    weather = Weather(world, source)
    blowing = asyncio.ensure_future(weather.blow())
    done = await administrate(world, ledger, source)
    blowing.cancel()
    await asyncio.wait([blowing])
    if not blowing.cancelled():
        blowing.result()
    await weather.clear()
    expected = {fact for fact, holds in ledger.told[-1].facts.items() if holds}
    for machine in machines:
        assert facts_of(image(machine)) == expected
    # All of it is in the store: a cluster that was off altogether comes back the same.
    for machine in machines:
        machine.kill()
    await asyncio.gather(*(machine.start() for machine in machines))
    await until(lambda: agree(machines, range(3)))
    for machine in machines:
        assert facts_of(image(machine)) == expected
    assert done > CHANGES // 3
    assert weather.strikes >= 2
    return ledger


@pytest.mark.parametrize("seed", SEEDS)
def test_no_broker_allows_more_than_the_latest_acknowledged_set_it_follows(seed: int) -> None:
    ledger = simulate(lambda world: one_world(world, seed), seed)
    assert ledger.looks > 100
    assert ledger.decisions == 8 * ledger.looks


def test_removal_of_one_of_two_acls_leaves_the_other_through_restarts() -> None:
    async def main(world: World) -> None:
        machines = [add_machine(world, broker_id) for broker_id in range(2)]
        await asyncio.gather(*(machine.start() for machine in machines))
        read, write = RULES[:2]
        await submit(machines[0], CreateAcls([read, write]))
        for rule, left in ((write, {read}), (read, set[AclBinding]())):
            one = AclFilter(2, 3, rule.resource_name, rule.principal, "*", rule.operation, 3)
            await submit(machines[1], DeleteAcls([one]))
            assert image(machines[1]).acls == left
            for machine in machines:
                machine.kill()
            await asyncio.gather(*(machine.start() for machine in machines))
            assert [image(machine).acls for machine in machines] == [left, left]

    simulate(main)
