"""Changes that are too large for one transaction: written in steps, each may be the last."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.unit.cluster.helpers import join, make_rules
from tidelog.cluster import layout, steps
from tidelog.cluster.commands import AddPartitions, Command, CreateTopic, DeleteTopic
from tidelog.cluster.controller import Controller
from tidelog.cluster.office import Place
from tidelog.errors import KafkaError
from tidelog.store.port import Operation, SessionExpired, StoreError, transaction_bytes
from tidelog.testing.memory_store import MemoryStore, MemoryTree
from tidelog.testing.virtual_loop import run_virtual

PARTITIONS = 600
COMMANDS: dict[str, Command] = {
    "create": CreateTopic("large", partitions=PARTITIONS),
    "grow": AddPartitions("large", 2 * PARTITIONS),
    "delete": DeleteTopic("large"),
}


class DyingStore(MemoryStore):
    """A session that ends after some more transactions."""

    steps_left = 1_000_000

    async def multi(self, operations: Sequence[Operation]) -> int:
        self.steps_left -= 1
        if self.steps_left < 0:
            self.expire()
            raise SessionExpired("the session has ended")
        return await super().multi(operations)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP_BYTES_MAX", 16 * 1024)


async def controlled(tree: MemoryTree) -> tuple[DyingStore, Controller]:
    store = DyingStore(tree, (await tree.connect()).session)
    controller = Controller(store, Place(0), make_rules(1))
    await controller.start()
    await join(store, controller, 0)
    return store, controller


def test_a_large_topic_comes_grows_and_goes_in_several_transactions() -> None:
    async def run() -> None:
        tree = MemoryTree()
        store, controller = await controlled(tree)
        sizes: list[int] = []
        tree.on_transaction = lambda done, session: sizes.append(transaction_bytes(done))
        for command in COMMANDS.values():
            sizes.clear()
            await controller.submit(command)
            assert len(sizes) > 3
            assert max(sizes) < 17 * 1024
            held = layout.load(await store.tree("/")).image
            assert held.same_content(controller.image)
        assert not controller.image.topics
        await controller.close()

    run_virtual(run())


@pytest.mark.parametrize("steps_done", [0, 1, 2, 3, 1_000])
@pytest.mark.parametrize("what", COMMANDS)
def test_c14_the_next_controller_finds_a_large_change_done_or_not_done(
    what: str, steps_done: int
) -> None:
    async def run() -> None:
        tree = MemoryTree()
        store, controller = await controlled(tree)
        if what != "create":
            await controller.submit(COMMANDS["create"])
        before = controller.image
        store.steps_left = steps_done
        try:
            await controller.submit(COMMANDS[what])
            store.expire()
        except KafkaError:
            pass
        with pytest.raises(StoreError):
            await controller.wait_closed()
        session = await tree.connect()
        successor = Controller(session, Place(1), make_rules(2))
        await successor.start()
        held = layout.load(await session.tree("/")).image
        assert held.same_content(successor.image)
        topic = successor.image.topics.get("large")
        after = {"create": PARTITIONS, "grow": 2 * PARTITIONS, "delete": 0}[what]
        count = 0 if topic is None else len(topic.partitions)
        assert count in ({after} if steps_done == 1_000 else {after, before.partition_count})
        for gone in () if topic is not None else before.topics.values():
            # A topic that is gone without a tombstone would leave its files behind.
            assert gone.topic_id in successor.image.deleted
        await successor.close()

    run_virtual(run())
