"""What goes wrong around the controller: deposed, cut off, killed, out of space, out of sense."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.cluster.faults import FaultyStore, faulty, once
from tests.unit.cluster.helpers import join, make_rules, running, start_controller
from tests.unit.store.helpers import opened
from tidelog.cluster import layout
from tidelog.cluster.commands import (
    AllocateProducerIds,
    CreatedTopic,
    CreateTopic,
    DeleteTopic,
    ProducerIdBlock,
)
from tidelog.cluster.controller import Controller
from tidelog.cluster.office import Place
from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.store.port import (
    ConnectionLoss,
    Create,
    Operation,
    Set,
    StoreError,
    StoreFull,
)
from tidelog.testing.memory_store import MemoryTree


def test_a_full_disk_refuses_and_the_controller_goes_on(tmp_path: Path) -> None:
    async def run() -> None:
        store, controller = await faulty(tmp_path)
        store.spoil = once(StoreFull("no space left"))
        answers = await controller.submit_all([CreateTopic("a"), CreateTopic("b")])
        assert [each.code for each in answers if isinstance(each, KafkaError)] == [
            ErrorCode.KAFKA_STORAGE_ERROR
        ] * 2
        assert not controller.image.topics
        await controller.submit(CreateTopic("a"))
        await controller.close()
        await store.close()

    asyncio.run(run())


def test_a_broker_whose_entry_met_a_full_disk_is_let_in_later(tmp_path: Path) -> None:
    async def run() -> None:
        store, controller = await faulty(tmp_path)

        def full_once(operations: Sequence[Operation]) -> StoreError | None:
            if any(each.path == "/brokers/seen/1" for each in operations):
                store.spoil = lambda others: None
                return StoreFull("no space left")
            return None

        store.spoil = full_once
        async with asyncio.timeout(30):
            await join(store, controller, 1)
        await controller.close()
        await store.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "value"), [("x", b""), ("7", b"{}"), ("7", layout.encode(rack=None))]
)
def test_a_node_that_is_no_brokers_does_not_end_the_controller(
    tmp_path: Path, name: str, value: bytes
) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            await cluster.store.multi([Create(f"{layout.BROKER_IDS}/{name}", value)])
            await join(cluster.store, cluster.controller, 1)
            assert sorted(cluster.controller.image.brokers) == [0, 1]

    asyncio.run(run())


def test_a_fault_in_planning_harms_its_own_command_only(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            bad = CreateTopic(7)  # type: ignore[arg-type]
            answers = await cluster.controller.submit_all([CreateTopic("a"), bad, CreateTopic("b")])
            assert isinstance(answers[1], KafkaError)
            assert answers[1].code is ErrorCode.UNKNOWN_SERVER_ERROR
            assert sorted(cluster.controller.image.topics) == ["a", "b"]

    asyncio.run(run())


def test_c1_a_deposed_controller_cannot_write(tmp_path: Path) -> None:
    """The old one slept through its succession: its next write is refused, and it stops."""

    async def run() -> None:
        async with running(tmp_path) as cluster:
            await cluster.submit(CreateTopic("before"))
            session = await cluster.store.new_session()
            successor = await start_controller(session)
            assert successor.image.controller_epoch == 2
            with pytest.raises(KafkaError) as raised:
                await cluster.submit(CreateTopic("zombie"))
            assert raised.value.code is ErrorCode.NOT_CONTROLLER
            with pytest.raises(KafkaError) as raised:
                await cluster.controller.wait_closed()
            assert raised.value.code is ErrorCode.NOT_CONTROLLER
            for refused in (
                cluster.submit(CreateTopic("later")),
                cluster.controller.changes_after(0, 1.0),
            ):
                with pytest.raises(KafkaError) as raised:
                    await refused
                assert raised.value.code is ErrorCode.NOT_CONTROLLER
            await successor.submit(CreateTopic("after"))
            assert sorted(await session.children("/topics")) == ["after", "before"]
            await successor.close()
            await session.close()

    asyncio.run(run())


@pytest.mark.parametrize("done_anyway", [False, True])
def test_c3_after_a_lost_connection_each_command_is_done_exactly_once(
    tmp_path: Path, done_anyway: bool
) -> None:
    async def run() -> None:
        store, controller = await faulty(tmp_path)
        spoilt = 0
        for n in range(5):
            store.spoil = once(ConnectionLoss("lost"))
            store.done_anyway = done_anyway
            spoilt += 1
            block = await controller.submit(
                AllocateProducerIds(0, controller.image.brokers[0].epoch)
            )
            assert block == ProducerIdBlock(n * 1000, 1000)
            created = await controller.submit(CreateTopic(f"t{n}"))
            assert isinstance(created, CreatedTopic)
        assert spoilt == 5
        held = layout.load(await store.tree("/")).image
        assert held.same_content(controller.image)
        assert held.next_producer_id == 5000
        await controller.close()
        await store.close()

    asyncio.run(run())


def test_c3_a_transaction_that_arrives_late_and_its_repetition_are_done_once(
    tmp_path: Path,
) -> None:
    """The lost transaction is still on its way while it is sent again, and arrives first."""

    async def run() -> None:
        store, controller = await faulty(tmp_path)
        late: list[Sequence[Operation]] = []

        def lose_then_deliver(operations: Sequence[Operation]) -> StoreError | None:
            if not late:
                late.append(operations)
                return ConnectionLoss("lost")
            return None

        class Overtaken(FaultyStore):
            async def multi(self, operations: Sequence[Operation]) -> int:
                if late and late[0] is operations:
                    await self.inner.multi(late[0])
                return await super().multi(operations)

        overtaken = Overtaken(store.inner)
        overtaken.spoil = lose_then_deliver
        controller._store = overtaken
        created = await controller.submit(CreateTopic("orders"))
        assert isinstance(created, CreatedTopic)
        assert controller.image.topics["orders"].topic_id == created.topic_id
        await controller.submit(CreateTopic("more"))
        held = layout.load(await store.tree("/")).image
        assert held.same_content(controller.image)
        await controller.close()
        await store.close()

    asyncio.run(run())


def test_c3_whoever_was_deposed_while_the_connection_was_lost_does_not_know(tmp_path: Path) -> None:
    async def run() -> None:
        store, controller = await faulty(tmp_path)
        session = await store.inner.new_session()
        successor = await start_controller(session)
        store.spoil = once(ConnectionLoss("lost"))
        with pytest.raises(KafkaError) as raised:
            await controller.submit(CreateTopic("orders"))
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert not controller.running
        assert not await session.children("/topics")
        await successor.close()
        await session.close()
        await controller.close()
        await store.close()

    asyncio.run(run())


def test_c14_a_controller_that_takes_over_finds_no_half_of_anything(tmp_path: Path) -> None:
    """Killed between planning and writing, or right after writing: all of the round or nothing."""

    async def run() -> None:
        outcomes = set()
        for n, (done_anyway, delete) in enumerate(
            [(False, False), (True, False), (False, True), (True, True)]
        ):
            directory = tmp_path / str(n)
            directory.mkdir()
            store, controller = await faulty(directory)
            await controller.submit(CreateTopic("old", 3))
            store.spoil = once(StoreError("killed"))
            store.done_anyway = done_anyway
            commands = (
                [CreateTopic("new", 5), DeleteTopic("old")] if delete else [CreateTopic("new", 5)]
            )
            answers = await controller.submit_all(commands)
            assert all(
                isinstance(each, KafkaError) and each.code is ErrorCode.REQUEST_TIMED_OUT
                for each in answers
            )
            with pytest.raises(StoreError, match="killed"):
                await controller.wait_closed()
            successor = await start_controller(await store.inner.new_session())
            topics = successor.image.topics
            expected = {"new"} if delete else {"old", "new"}
            assert set(topics) == (expected if done_anyway else {"old"})
            assert all(len(topics[name].partitions) in (3, 5) for name in topics)
            outcomes.add(frozenset(topics))
            await successor.submit(CreateTopic("next"))
            await successor.close()
            await successor._store.close()
            await store.close()
        assert len(outcomes) == 3

    asyncio.run(run())


def test_a_lost_session_stops_the_controller(tmp_path: Path) -> None:
    async def run() -> None:
        store, controller = await faulty(tmp_path)
        poll = asyncio.create_task(
            controller.changes_after(
                controller.image.version, 60.0, controller.image.controller_epoch
            )
        )
        await asyncio.sleep(0)
        await store.inner.expire()
        with pytest.raises(StoreError, match="session"):
            await controller.wait_closed()
        with pytest.raises(KafkaError) as raised:
            await poll
        assert raised.value.code is ErrorCode.NOT_CONTROLLER
        await store.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("/topics/orders", b'{"v":99}', "/topics/orders has version 99"),
        ("/topics/orders", b"{", "/topics/orders is not readable"),
        ("/topics/orders", b'{"v":1}', "/topics/orders is not understood"),
        ("/topics/orders/partitions/1", b'{"v":9}', "/topics/orders/partitions/1 has version 9"),
        ("/cluster/id", b'{"v":7,"id":"x"}', "/cluster/id has version 7"),
        ("/topics/orders", b'{"v":1,"id":"x","configs":{},"replicas":[]}', "/topics/orders is not"),
        (
            "/topics/orders",
            b'{"v":1,"id":"00000000000000000000000000000001","configs":{},"replicas":[[0],[0],[0]]}',
            "/topics/orders is not understood: KeyError.'/topics/orders/partitions/2'.",
        ),
    ],
)
def test_c11_metadata_that_is_not_understood_refuses_the_start(
    tmp_path: Path, path: str, value: bytes, message: str
) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            await cluster.submit(CreateTopic("orders", 2))
        async with opened(tmp_path) as store:
            await store.multi([Set(path, value)])
            before = await store.tree("/")
            with pytest.raises(StorageError, match=message):
                await start_controller(store)
            after = await store.tree("/")
            # Whoever looks takes the office first, in a new epoch, and gives it back.
            assert after.keys() == before.keys()
            changed = {path for path in after if after[path] != before[path]}
            assert changed == {layout.CONTROLLER_EPOCH}

    asyncio.run(run())


def test_closing_refuses_what_still_waits(tmp_path: Path) -> None:
    async def run() -> None:
        store, controller = await faulty(tmp_path)
        store.gate = asyncio.Event()
        first = controller.submit(CreateTopic("first"))
        while store.transactions < 1:
            await asyncio.sleep(0)
        second = controller.submit(CreateTopic("second"))
        await asyncio.sleep(0)
        closing = asyncio.create_task(controller.close())
        await asyncio.sleep(0)
        store.gate.set()
        await closing
        assert isinstance(await first, CreatedTopic)
        with pytest.raises(KafkaError) as raised:
            await second
        assert raised.value.code is ErrorCode.NOT_CONTROLLER
        await controller.wait_closed()
        await store.close()

    asyncio.run(run())


def test_c7_what_was_written_before_the_claim_is_read_after_it() -> None:
    """The last controller writes while the next one is about to claim; then its session ends."""

    async def run() -> None:
        tree = MemoryTree()
        last_session, next_session = await tree.connect(), await tree.connect()
        last = await start_controller(last_session)
        await join(await tree.connect(), last, 2)
        sync = next_session.sync

        async def written_meanwhile() -> None:
            next_session.sync = sync  # type: ignore[method-assign]
            await last.submit(CreateTopic("late"))
            last_session.expire()
            await sync()

        next_session.sync = written_meanwhile  # type: ignore[method-assign]
        controller = Controller(next_session, Place(1), make_rules(1))
        await controller.start()
        assert "late" in controller.image.topics
        await controller.close()
        last.abandon()

    asyncio.run(run())
