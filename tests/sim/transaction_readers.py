"""Readers of committed records and of groups' offsets, and the verdict over what they find.

Readers must find committed transactions entirely, unknown ones entirely or not at all, others
never: in all partitions, and in the offset of the group that belongs to it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.sim.ghost import Violation
from tests.sim.transaction_clients import PARTITIONS, TOPIC, Fate, Written, find_coordinator
from tests.sim.transaction_observer import TransactionObserver
from tidelog.client.aio import Client, Consumer
from tidelog.client.connection import Call
from tidelog.client.offsets import LATEST, Start, list_offsets
from tidelog.client.settings import ClientSettings, ConsumerSettings
from tidelog.errors import TidelogError
from tidelog.model import Isolation, TopicPartition
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tidelog.testing.simulation.machines import World

_PLACES = [TopicPartition(TOPIC, each) for each in range(PARTITIONS)]
_PATIENCE_S = 60.0


class Readers:
    """Clients that read what producers write in transactions."""

    def __init__(
        self, world: World, settings: ClientSettings, observer: TransactionObserver
    ) -> None:
        self._world = world
        self._settings = settings
        self._observer = observer
        self.is_over = False
        # Which offset of each partition follows the last record that was read.
        self._next: dict[TopicPartition, int] = dict.fromkeys(_PLACES, 0)

    async def read_on(self) -> None:
        """Read committed records as they come; I20 after every poll."""
        consumer = await self._consumer()
        while not self.is_over:
            try:
                await self._poll(consumer, self._next)
            except TidelogError:
                continue
        await consumer.close()

    async def ask_for_offsets(self, groups: Sequence[str]) -> None:
        """I22: ask for the offsets of groups over and over."""
        client = Client(self._world.servers, self._settings, self._world.client_host())
        stable = False
        while not self.is_over:
            stable = not stable
            for group in groups:
                try:
                    offset = await self._ask(client, group, stable=stable)
                except TidelogError:
                    continue
                if offset is not None:
                    self._observer.fetched(group, offset)
            await asyncio.sleep(0.2)
        await client.close()

    async def look_at_offset(self, group: str) -> None:
        """I22: ask for the offset of a group as it is."""
        client = Client(self._world.servers, self._settings, self._world.client_host())
        offset = await self._ask(client, group, stable=False)
        await client.close()
        if offset is not None:
            self._observer.fetched(group, offset)

    async def offset_of(self, group: str) -> int:
        """The offset of a group, which nothing pending hides any more."""
        client = Client(self._world.servers, self._settings, self._world.client_host())
        offset = None
        async with asyncio.timeout(_PATIENCE_S):
            while offset is None:
                offset = await self._ask(client, group, stable=True)
                if offset is None:
                    await asyncio.sleep(0.2)
        await client.close()
        self._observer.fetched(group, offset)
        committed = self._observer.offsets(group)
        meant = committed[-1].value if committed else -1
        if offset != meant:
            raise Violation("I22 offsets", f"{group} is told {offset}, and {meant} was committed")
        return offset

    async def _ask(self, client: Client, group: str, *, stable: bool) -> int | None:
        """A group's offset; None where none is told now."""
        node = await find_coordinator(client, group, of_group=True)
        request = OffsetFetchRequest(
            group, [OffsetFetchRequestTopic(TOPIC, [0])], require_stable=stable
        )
        if node < 0:
            return None
        outcome: Any = await client.network.request(Call(node, "OffsetFetch", request, 7))
        if isinstance(outcome, TidelogError) or outcome.error_code:
            return None
        told = outcome.topics[0].partitions[0]
        return None if told.error_code else int(told.committed_offset)

    async def read_all(self) -> dict[int, list[int]]:
        """All that readers of committed records find, by partition."""
        consumer = await self._consumer()
        latest = dict.fromkeys(_PLACES, LATEST)
        ends = await consumer.run(list_offsets(consumer.cluster, latest))
        found: dict[int, list[int]] = {each: [] for each in range(PARTITIONS)}
        following = dict.fromkeys(_PLACES, 0)
        async with asyncio.timeout(_PATIENCE_S):
            while any(
                consumer.core.positions[each].position < ends[each].offset for each in _PLACES
            ):
                for partition, values in await self._poll(consumer, following):
                    found[partition.partition] += values
        await consumer.close()
        return found

    async def _consumer(self) -> Consumer:
        settings = ConsumerSettings(
            max_wait_ms=200, isolation=Isolation.READ_COMMITTED, client=self._settings
        )
        consumer = Consumer(self._world.servers, settings, self._world.client_host())
        while True:
            try:
                await consumer.assign(dict.fromkeys(_PLACES, Start("start")))
            except TidelogError:
                await asyncio.sleep(0.2)
                continue
            return consumer

    async def _poll(
        self, consumer: Consumer, following: dict[TopicPartition, int]
    ) -> list[tuple[TopicPartition, list[int]]]:
        found = []
        for partition, records in await consumer.poll(0.5):
            read = [(each.offset, int(bytes(each.value or b""))) for each in records]
            self._observer.read(partition, following[partition], read)
            if read:
                following[partition] = read[-1][0] + 1
            found.append((partition, [value for _, value in read]))
        return found


def judge(
    all_written: Sequence[Written],
    found: Mapping[int, Sequence[int]],
    offsets: Mapping[str, int],
) -> Counter[str]:
    """Hold what producers know against what readers found; how many of each fate there were."""
    tally: Counter[str] = Counter()
    counts = Counter((place, value) for place, values in found.items() for value in values)
    for written in all_written:
        if not written.values:
            continue
        seen = [counts.pop(each, 0) for each in written.values]
        if any(each > 1 for each in seen):
            raise Violation("I14 once", f"{written} is there {seen} times")
        if written.fate is Fate.ABORTED and any(seen):
            raise Violation("I20 aborted read", f"{written} shows: {seen}")
        if written.fate is Fate.COMMITTED and not all(seen):
            raise Violation("I17 lost commit", f"{written} is there {seen} times")
        if any(seen) != all(seen):
            raise Violation("I17 torn", f"{written} is there {seen} times")
        if written.group and offsets[written.group] == written.offset and not any(seen):
            raise Violation("I22 offsets", f"{written} shows, and its records do not")
        if all(seen) and offsets.get(written.group, 0) < written.offset:
            raise Violation("I22 offsets", f"{written} shows, and its offset does not: {offsets}")
        tally[f"fate {written.fate.value}"] += 1
        tally["with an offset"] += bool(written.group)
    if +counts:
        raise Violation("I20", f"nobody wrote {+counts}")
    return tally
