"""An operator who moves replicas, elects leaders and takes brokers out while faults go on."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final

from tidelog.client import replica_admin
from tidelog.client.admin import alter_configs, describe_cluster, list_topics
from tidelog.client.aio import Client
from tidelog.client.replica_admin import Spread
from tidelog.errors import TidelogError
from tidelog.model import ConfigOperation, ConfigResourceType, TopicPartition

_ACTIONS: Final = {"move": 6, "elect": 3, "cancel": 1, "drain": 1, "forget": 1, "limit": 1}
_SIDES: Final = ("leader", "follower")


class Moves:
    """What one operator does, from its own random numbers."""

    def __init__(self, client: Client, brokers: int, seed: int) -> None:
        self._client = client
        self._brokers = range(brokers)
        self._chance = random.Random(f"{seed}/moves")
        self._limited: set[str] = set()
        self.is_over = False
        # What was done, and what was refused or not answered.
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        pause_s = self._chance.choice((0.3, 1.0))
        while not self.is_over:
            await asyncio.sleep(self._chance.expovariate(1 / pause_s))
            (name,) = self._chance.choices(list(_ACTIONS), list(_ACTIONS.values()))
            action: Coroutine[Any, Any, None] = getattr(self, f"_{name}")()
            await self._attempt(name, action)
        # A limit may be so low that nothing is ever in sync.
        while self._limited and not await self._attempt("unlimit", self._unlimit()):
            await asyncio.sleep(0.5)
        await self._client.close()

    async def _attempt(self, name: str, action: Coroutine[Any, Any, None]) -> bool:
        try:
            await action
        except TidelogError:
            self.counts[f"{name} refused"] += 1
            return False
        self.counts[name] += 1
        return True

    async def _replicas(self) -> dict[TopicPartition, list[int]]:
        topics = await self._client.run(list_topics(self._client.cluster))
        return {
            TopicPartition(topic.name, number): state.replicas
            for topic in topics
            for number, state in sorted(topic.partitions.items())
        }

    async def _move(self) -> None:
        places = sorted(await self._replicas())
        if places:
            count = self._chance.choice((2, 3, 3))
            wanted = self._chance.sample(self._brokers, min(count, len(self._brokers)))
            await self._reassign({self._chance.choice(places): wanted})

    async def _reassign(self, places: dict[TopicPartition, Any]) -> None:
        outcomes = await self._client.run(replica_admin.reassign(self._client.cluster, places))
        self.counts["moved"] += sum(error is None for error in outcomes.values())

    async def _cancel(self) -> None:
        moving = await self._client.run(replica_admin.list_moves(self._client.cluster))
        if moving:
            await self._reassign({self._chance.choice(moving).partition: None})

    async def _elect(self) -> None:
        await self._client.run(replica_admin.elect_leaders(self._client.cluster, None))

    async def _drain(self) -> None:
        """Everything goes from one broker to the others."""
        broker = self._chance.choice(self._brokers)
        topics = await self._client.run(list_topics(self._client.cluster))
        described = await self._client.run(describe_cluster(self._client.cluster))
        spread = Spread([each for each in described.brokers if each.id != broker], topics)
        places = {
            place: spread.without(replicas, broker)
            for place, replicas in (await self._replicas()).items()
            if broker in replicas
        }
        if places:
            await self._reassign(places)

    async def _forget(self) -> None:
        """Refused of a broker that is there or holds something."""
        broker = self._chance.choice(self._brokers)
        await self._client.run(replica_admin.forget_broker(self._client.cluster, broker))

    async def _limit(self) -> None:
        """From now on all copying is slow, to replicas that are not in sync."""
        for topic in sorted({place.topic for place in await self._replicas()}):
            self._limited.add(topic)
            await self._alter_topic(topic, ConfigOperation.SET, "*")
        rate = str(self._chance.choice((0, 100, 1_000)))
        changes = [
            (f"{side}.replication.throttled.rate", ConfigOperation.SET, rate) for side in _SIDES
        ]
        cluster = self._client.cluster
        await self._client.run(alter_configs(cluster, ConfigResourceType.BROKER, "", changes))

    async def _unlimit(self) -> None:
        there = {place.topic for place in await self._replicas()}
        for topic in sorted(self._limited & there):
            await self._alter_topic(topic, ConfigOperation.DELETE, None)
        self._limited.clear()

    async def _alter_topic(self, topic: str, operation: ConfigOperation, value: str | None) -> None:
        changes = [(f"{side}.replication.throttled.replicas", operation, value) for side in _SIDES]
        cluster = self._client.cluster
        await self._client.run(alter_configs(cluster, ConfigResourceType.TOPIC, topic, changes))
