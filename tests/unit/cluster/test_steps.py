"""Work that is larger than a transaction: in valid steps, which the next controller finishes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.unit.cluster.helpers import join, make_rules, start_controller
from tidelog.cluster import layout, steps
from tidelog.cluster.commands import AddPartitions, Command, CreateTopic, DeleteTopic
from tidelog.cluster.controller import Controller
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.planner import plan
from tidelog.cluster.steps import STEP_BYTES_MAX, Steps
from tidelog.errors import KafkaError
from tidelog.store.port import TRANSACTION_BYTES_MAX, Create, Operation, transaction_bytes
from tidelog.testing.memory_store import MemoryStore, MemoryTree

BROKERS = (0, 1, 2)


class Cluster:
    """A controller on a store in memory, with three brokers."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.sizes: list[int] = []
        self.stop_after = -1
        self.brokers: dict[int, MemoryStore] = {}
        self.controller: Controller

    async def start(self) -> None:
        self.controller = await start_controller(await self.tree.connect())
        for broker in BROKERS:
            self.brokers[broker] = await self.tree.connect()
            await join(self.brokers[broker], self.controller, broker)
        self.tree.on_transaction = self._done

    def _done(self, operations: Sequence[Operation], session: int) -> None:
        self.sizes.append(transaction_bytes(operations))
        self.stop_after -= 1
        if self.stop_after == 0:
            self.controller.abandon()

    async def take_over(self) -> None:
        self.stop_after = -1
        self.controller.abandon()
        self.controller = await start_controller(await self.tree.connect())

    @property
    def stored(self) -> MetadataImage:
        return layout.load(self.tree.nodes).image

    async def settled(self) -> MetadataImage:
        """The image once all that is in the store is in it."""
        there = {each for each in BROKERS if f"/brokers/ids/{each}" in self.tree.nodes}
        while (image := self.controller.image).brokers.keys() != there:
            await self.controller.changes_after(image.version, 10.0, image.controller_epoch)
        return image


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP_BYTES_MAX", 6_000)
    monkeypatch.setattr(layout, "PARTITIONS_AT_ONCE", 10)


def test_a_large_topic_and_the_death_of_its_broker_take_no_transaction_above_the_bound() -> None:
    async def run() -> None:
        cluster = Cluster()
        await cluster.start()
        await cluster.controller.submit(CreateTopic("large", 3_000, 3))
        assert len(cluster.sizes) > 1
        cluster.sizes.clear()
        await cluster.controller.submit(AddPartitions("large", 6_000))
        assert len(cluster.sizes) > 1
        assert cluster.stored.same_content(cluster.controller.image)
        assert max(cluster.sizes) <= TRANSACTION_BYTES_MAX
        cluster.sizes.clear()
        await cluster.brokers[1].close()
        image = await cluster.settled()
        assert len(cluster.sizes) > 2
        assert cluster.stored.same_content(image)
        assert all(state.leader in (0, 2) for state in image.topics["large"].partitions)
        assert max(cluster.sizes) <= TRANSACTION_BYTES_MAX
        deletion = plan(image, DeleteTopic("large"), make_rules()).changes[0]
        cut = Steps()
        cut.add(layout.operations_of(deletion, image, 1), deletion)
        *others, last = [each.changes for each in cut]
        assert others and not any(others) and last == [deletion]
        assert max(each.size for each in cut) <= STEP_BYTES_MAX
        await cluster.controller.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("command", "before", "after"),
    [
        (CreateTopic("orders", 100, 2), None, 100),
        (AddPartitions("orders", 120), 20, 120),
        (DeleteTopic("orders"), 100, None),
    ],
    ids=["create", "add", "delete"],
)
@pytest.mark.usefixtures("small_steps")
def test_c14_a_controller_that_ends_between_two_steps_leaves_no_half_topic(
    command: Command, before: int | None, after: int | None
) -> None:
    async def run(stop_after: int) -> bool:
        """Whether the command was done before the controller ended."""
        cluster = Cluster()
        await cluster.start()
        if before is not None:
            await cluster.controller.submit(CreateTopic("orders", before, 2))
        cluster.stop_after = stop_after
        try:
            await cluster.controller.submit(command)
            done = True
        except (KafkaError, asyncio.CancelledError):
            done = False
        await cluster.take_over()
        topic = cluster.controller.image.topics.get("orders")
        count = None if topic is None else len(topic.partitions)
        assert count == after if done else count in (before, after)
        if isinstance(command, DeleteTopic):
            # From the first step on it is gone, with a tombstone.
            assert count is None
            assert len(cluster.controller.image.deleted) == 1
        assert cluster.stored.same_content(cluster.controller.image)
        nodes = [path for path in cluster.tree.nodes if path.startswith("/topics/orders/")]
        assert len(nodes) == (0 if count is None else count + 1)
        # Whatever it was, it can be done now.
        if count is None:
            await cluster.controller.submit(CreateTopic("orders", 100, 2))
        await cluster.controller.close()
        return done

    ended = 0
    for stop_after in range(1, 100):
        if asyncio.run(run(stop_after)):
            break
        ended += 1
    assert ended >= 2


@pytest.mark.usefixtures("small_steps")
def test_c14_the_next_controller_finishes_the_failover_of_the_one_before() -> None:
    async def run(stop_after: int) -> bool:
        cluster = Cluster()
        await cluster.start()
        await cluster.controller.submit(CreateTopic("orders", 100, 3))
        await cluster.controller.submit(CreateTopic("alone", 100, 1))
        cluster.stop_after = stop_after
        # Its own deletion is a transaction, too.
        await cluster.brokers[1].close()
        try:
            await cluster.settled()
            done = True
        except KafkaError:
            done = False
        await cluster.take_over()
        image = await cluster.settled()
        assert cluster.stored.same_content(image)
        states = [state for topic in image.topics.values() for state in topic.partitions]
        assert all(1 not in state.isr and state.leader != 1 for state in states)
        assert all(state.has_leader for state in image.topics["orders"].partitions)
        # And it comes back: what only it has, it leads again.
        await join(await cluster.tree.connect(), cluster.controller, 1)
        image = cluster.controller.image
        assert all(state.has_leader for state in image.topics["alone"].partitions)
        await cluster.controller.close()
        return done

    ended = 0
    for stop_after in range(1, 100):
        if asyncio.run(run(stop_after)):
            break
        ended += 1
    assert ended >= 3


def test_steps_keep_the_order_and_stay_below_the_bound() -> None:
    operations: list[Operation] = [Create(f"/{n}", b"x" * 40_000) for n in range(40)]
    cut = Steps()
    cut.add(operations[:3])
    # What fits into one step is not cut.
    cut.add(operations[3:14])
    cut.add(operations[14:])
    assert [each for step in cut for each in step.operations] == operations
    assert [len(step.operations) for step in cut] == [3, 11, 12, 12, 2]
    assert all(transaction_bytes(step.operations) <= STEP_BYTES_MAX for step in cut)
    assert list(Steps()) == []
