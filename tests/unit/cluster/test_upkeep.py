"""The controller brings leaders back to preferred replicas by itself, unless it shall not."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.cluster.helpers import join, make_rules, start_controller
from tidelog.cluster.commands import (
    Answer,
    BalanceLeaders,
    Command,
    CreatedTopic,
    CreateTopic,
    Done,
    GiveUpReplicas,
    RaiseInternalTopics,
    ReplicaKey,
)
from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.cluster.upkeep import Upkeep
from tidelog.errors import ErrorCode, KafkaError
from tidelog.testing.memory_store import MemoryTree
from tidelog.testing.virtual_loop import VirtualLoop


class Controller:
    """Notes what it is asked for, and refuses all of it."""

    def __init__(self) -> None:
        self.asked: list[Command] = []

    def enqueue(self, command: Command) -> asyncio.Future[Answer]:
        self.asked.append(command)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if len(self.asked) == 1:
            future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER))
        else:
            future.set_result(Done())
        return future


@pytest.mark.parametrize(("enabled", "times"), [("true", 3), ("false", 0)])
def test_leaders_are_balanced_at_every_interval(enabled: str, times: int) -> None:
    settings = {
        "auto.leader.rebalance.enable": enabled,
        "leader.imbalance.check.interval.seconds": "20",
    }
    controller = Controller()

    async def run() -> None:
        upkeep = Upkeep(controller.enqueue, make_rules(settings=settings).config)
        upkeep.start()
        await asyncio.sleep(70)
        upkeep.stop()
        await asyncio.sleep(100)

    loop = VirtualLoop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    assert controller.asked == [BalanceLeaders()] * times


def test_internal_topics_are_looked_at_when_brokers_join() -> None:
    controller = Controller()

    async def run() -> None:
        Upkeep(controller.enqueue, make_rules().config).brokers_joined()
        await asyncio.sleep(0)

    asyncio.run(run())
    assert controller.asked == [RaiseInternalTopics()]


def test_the_next_controller_raises_internal_topics_that_the_last_one_did_not_get_to() -> None:
    async def run() -> None:
        tree = MemoryTree()
        first, second = await tree.connect(), await tree.connect()
        controller = await start_controller(first)
        for broker_id, store in enumerate((first, second)):
            await join(store, controller, broker_id)
        await controller.submit(CreateTopic(OFFSETS_TOPIC, assignments={0: [0]}))
        await controller.close()
        controller = await start_controller(second)
        while controller.image.topics[OFFSETS_TOPIC].partitions[0].target != (0, 1):
            await controller.changes_after(controller.image.version, 10.0)
            await asyncio.sleep(0)
        await controller.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_internal_partitions_that_nobody_can_lead_do_not_end_the_controller() -> None:
    async def run() -> None:
        tree = MemoryTree()
        stores = [await tree.connect() for _ in range(3)]
        controller = await start_controller(stores[0])
        entries = [await join(store, controller, n) for n, store in enumerate(stores)]
        # Broker 1 alone is in sync, and cannot serve its replica any more.
        created = await controller.submit(CreateTopic(OFFSETS_TOPIC, assignments={0: [1, 2]}))
        assert isinstance(created, CreatedTopic)
        replica = [ReplicaKey(created.topic_id, 0)]
        for broker_id in (2, 1):
            epoch = entries[broker_id].epoch
            await controller.submit(GiveUpReplicas(broker_id, epoch, replica))
        assert not controller.image.topics[OFFSETS_TOPIC].partitions[0].has_leader
        await controller.close()
        controller = await start_controller(stores[0])
        await controller.submit(CreateTopic("orders", assignments={0: [0]}))
        assert controller.running
        await controller.close()

    asyncio.run(asyncio.wait_for(run(), 20))
