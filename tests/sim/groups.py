"""Groups whose members come, go, crash and sleep while brokers fail.

Each group has a few places, and in each place one process at a time, mostly: `Member` in
`group_members`. Some places have an instance id (static members). In a mixed group each process
draws which protocol it speaks, so that the group goes from one to the other and back.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.sim.ghost import Violation
from tests.sim.group_ledger import SESSION_S, GroupLedger
from tests.sim.group_members import TOPIC, ClassicMember, ConsumerMember, Member
from tests.sim.group_watch import RETENTION_S, GroupWatch
from tests.sim.liveness import within
from tests.sim.observer import Observer
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.aio import Client
from tidelog.client.group_admin import commit_offsets, committed_offsets
from tidelog.client.settings import ClientSettings
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model import TopicPartition
from tidelog.testing.simulation.machines import World
from tidelog.testing.simulation.nodes import Node

PARTITIONS: Final = 3
_KINDS: Final = ("classic", "consumer", "mixed")
_ACTIONS: Final = {"crash": 3, "pause": 3, "leave": 2, "replace": 2}
_STABLE_S: Final = 2 * SESSION_S + 5.0
# What brokers are set to, so that what concerns groups happens within a world's time.
SETTINGS: Final = {
    "group.consumer.min.session.timeout.ms": str(int(SESSION_S * 1000)),
    "group.consumer.session.timeout.ms": str(int(SESSION_S * 1000)),
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.retention.minutes": str(int(RETENTION_S / 60)),
    "offsets.retention.check.interval.ms": "1000",
}


class Process(NamedTuple):
    """A member on a machine of its own."""

    node: Node
    member: Member
    task: asyncio.Task[None]


@dataclass(slots=True, eq=False)
class Place:
    """Where one member belongs; the process there, while there is one."""

    ledger: GroupLedger
    kind: str
    number: int
    instance_id: str | None
    lives: int = 0
    process: Process | None = None

    @property
    def is_occupied(self) -> bool:
        process = self.process
        return process is not None and not process.node.is_gone and not process.task.done()

    @property
    def running(self) -> Process:
        assert self.process is not None
        return self.process


class Groups:
    """The groups of one world."""

    def __init__(self, world: World, observer: Observer, seed: int) -> None:
        self._world = world
        self._observer = observer
        self._chance = random.Random(f"{seed}/groups")
        self._seed = seed
        self._is_over = False
        self._nemesis: asyncio.Task[None] | None = None
        self._processes: list[Process] = []
        self.counts: Counter[str] = Counter()
        self.ledgers: list[GroupLedger] = []
        self._places: list[Place] = []
        for kind in self._chance.sample(_KINDS, self._chance.choice((1, 1, 2))):
            ledger = GroupLedger(kind, PARTITIONS, world.loop)
            self.ledgers.append(ledger)
            for number in range(self._chance.choice((2, 3))):
                is_static = self._chance.random() < 0.5
                instance_id = f"{kind}-{number}" if is_static else None
                self._places.append(Place(ledger, kind, number, instance_id))
        observer.also = GroupWatch(world, observer, self.ledgers).stepped

    def _client(self) -> Client:
        settings = ClientSettings(
            connect_timeout_ms=2_000, request_timeout_ms=4_000, operation_timeout_ms=20_000,
            metadata_max_age_ms=5_000,
        )  # fmt: skip
        return Client(self._world.servers, settings, self._world.client_host())

    async def start(self, configs: dict[str, str]) -> None:
        """The topic, the groups with an offset of each partition, and their members."""
        async with self._client() as client:
            try:
                new = NewTopic(TOPIC, PARTITIONS, configs=configs)
                await client.run(create_topic(client.cluster, new))
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            for ledger in self.ledgers:
                operator = ledger.enter(f"{ledger.name}-operator", None, is_classic=True)
                operator.is_alive = False
                asked = ledger.commits(operator, -1, ledger.partitions)
                offsets = {TopicPartition(TOPIC, at): each for at, each in asked.offsets.items()}
                await client.run(commit_offsets(client.cluster, ledger.name, offsets))
                ledger.committed(asked, ErrorCode.NONE)
                ledger.occupied_at = self._world.loop.now
        for place in self._places:
            self._occupy(place)
        self._nemesis = self._world.loop.create_task(self._disturb())

    # -- processes --------------------------------------------------------------------------------

    def _occupy(self, place: Place) -> None:
        """Another process in a place."""
        place.lives += 1
        is_classic = place.kind == "classic"
        if place.kind == "mixed":
            is_classic = self._chance.random() < 0.5
        node = self._world.client_node()
        name = f"{self._seed}/{place.ledger.name}{place.number}.{place.lives}"
        made: type[Member] = ClassicMember if is_classic else ConsumerMember
        member = made(place.ledger, self._client(), name, place.instance_id)
        process = Process(node, member, node.start(self._live(member)))
        place.process = process
        self._processes.append(process)
        self.counts["process"] += 1

    async def _live(self, member: Member) -> None:
        try:
            await member.run()
        except Violation as violation:
            self._observer.fail(violation)

    async def _disturb(self) -> None:
        """Members crash, sleep, go and come again."""
        pause_s = self._chance.choice((0.5, 1.5, 4.0))
        while not self._is_over:
            await asyncio.sleep(self._chance.expovariate(1 / pause_s))
            place = self._chance.choice(self._places)
            if self._is_over:
                break
            if not place.is_occupied:
                self._occupy(place)
                continue
            (action,) = self._chance.choices(list(_ACTIONS), list(_ACTIONS.values()))
            self.counts[action] += 1
            getattr(self, f"_{action}")(place)

    def _crash(self, place: Place) -> None:
        node, member, _ = place.running
        node.crash()
        self._world.network.crash(node.name)
        member.holder.is_alive = False

    def _pause(self, place: Place) -> None:
        node = place.running.node
        node.is_paused = True
        seconds = self._chance.choice((0.5, 3.0, 1.5 * SESSION_S)) * self._chance.uniform(0.5, 1.5)
        self._world.loop.later(seconds, lambda: setattr(node, "is_paused", False))

    def _leave(self, place: Place) -> None:
        place.running.member.is_leaving = True

    def _replace(self, place: Place) -> None:
        """Another process begins while this one goes on; where they have one name, it is fenced."""
        if place.instance_id is not None:
            self._pause(place)
            self._occupy(place)

    # -- the end ----------------------------------------------------------------------------------

    def calm_down(self) -> None:
        """Members crash no more; those that sleep wake up."""
        self._is_over = True
        for process in self._processes:
            process.node.is_paused = False

    async def finish(self) -> None:
        """L5, then everybody leaves, and what was committed is there."""
        assert self._nemesis is not None
        await self._nemesis
        for place in self._places:
            if not place.is_occupied:
                self._occupy(place)
        await within(_STABLE_S, "L5 groups settle", self._unstable)
        for holder in (each for ledger in self.ledgers for each in ledger.holders):
            self.counts["alive at the end"] += holder.is_alive
        await self._end_members()
        async with self._client() as client:
            for ledger in self.ledgers:
                await self._read(client, ledger)
                ledger.check()
                self.counts["generations"] += ledger.generation
                self.counts.update(ledger.counts)

    def _unstable(self) -> str:
        return next((found for each in self.ledgers if (found := each.unstable())), "")

    async def _end_members(self) -> None:
        living = [each for each in self._processes if not each.node.is_gone]
        for process in living:
            process.member.is_leaving = True
        _, pending = await asyncio.wait([each.task for each in living], timeout=60.0)
        if pending:
            raise Violation("L3 calls end", f"members of groups still wait: {len(pending)}")
        for process in living:
            process.task.result()

    async def _read(self, client: Client, ledger: GroupLedger) -> None:
        asked = ledger.order()
        partitions = [TopicPartition(TOPIC, each) for each in ledger.partitions]
        try:
            found = await client.run(committed_offsets(client.cluster, ledger.name, partitions))
        except TidelogError as error:
            raise Violation("L3 calls end", f"offsets of {ledger.name} cannot be read") from error
        for each in ledger.partitions:
            ledger.read(each, found.get(TopicPartition(TOPIC, each), -1), asked)
        self.counts["final reads"] += 1
