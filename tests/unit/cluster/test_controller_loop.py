"""The controller's loop: one writer, fenced, durable before it answers, whole or not at all."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.unit.cluster.helpers import ENDPOINTS, running, start_controller
from tests.unit.store.helpers import open_store, opened
from tidelog.cluster import controller_loop, layout
from tidelog.cluster.commands import (
    AllocateProducerIds,
    AlterTopicConfigs,
    ConfigChange,
    CreatedTopic,
    CreateTopic,
    DeleteTopic,
    ProducerIdBlock,
)
from tidelog.cluster.controller_loop import Controller, ControllerLimits
from tidelog.cluster.registration import register_broker
from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.port import (
    Cancel,
    ConnectionLoss,
    Operation,
    SessionCallback,
    SessionState,
    Set,
    Stored,
    StoreError,
    StoreFull,
    WatchCallback,
)


class FaultyStore:
    """A store that counts its transactions and spoils those that it is told to spoil."""

    def __init__(self, inner: EmbeddedStore) -> None:
        self.inner = inner
        self.transactions = 0
        self.spoil: Callable[[Sequence[Operation]], StoreError | None] = lambda operations: None
        # Whether the spoilt transaction is done nevertheless.
        self.done_anyway = False
        self.gate: asyncio.Event | None = None

    @property
    def session(self) -> int:
        return self.inner.session

    @property
    def session_state(self) -> SessionState:
        return self.inner.session_state

    async def read(self, path: str) -> Stored | None:
        return await self.inner.read(path)

    async def children(self, path: str) -> list[str]:
        return await self.inner.children(path)

    async def tree(self, path: str) -> Mapping[str, Stored]:
        return await self.inner.tree(path)

    async def multi(self, operations: Sequence[Operation]) -> int:
        self.transactions += 1
        if self.gate is not None:
            await self.gate.wait()
        error = self.spoil(operations)
        if error is not None:
            if self.done_anyway:
                await self.inner.multi(operations)
            raise error
        return await self.inner.multi(operations)

    def watch(self, path: str, callback: WatchCallback) -> Cancel:
        return self.inner.watch(path, callback)

    def watch_session(self, callback: SessionCallback) -> Cancel:
        return self.inner.watch_session(callback)

    async def close(self) -> None:
        await self.inner.close()


def once(error: StoreError) -> Callable[[Sequence[Operation]], StoreError | None]:
    errors = [error]
    return lambda operations: errors.pop() if errors else None


async def faulty(directory: Path) -> tuple[FaultyStore, Controller]:
    store = FaultyStore(await open_store(directory))
    controller = await start_controller(store)
    await register_broker(store, controller.submit, 0, ENDPOINTS)
    store.transactions = 0
    return store, controller


def test_a_new_cluster_gets_an_id_once(tmp_path: Path) -> None:
    async def run() -> None:
        ids = set()
        epochs = []
        for _ in range(3):
            async with running(tmp_path) as cluster:
                image = cluster.controller.image
                ids.add(image.cluster_id)
                epochs.append(image.controller_epoch)
        (cluster_id,) = ids
        assert len(cluster_id) == 22
        assert len(base64.urlsafe_b64decode(cluster_id + "==")) == 16
        assert epochs == [1, 2, 3]

    asyncio.run(run())


def test_an_answer_is_durable(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            created = await cluster.submit(CreateTopic("orders", 3))
            assert isinstance(created, CreatedTopic)
            stored = await cluster.store.read("/topics/orders")
            assert stored is not None
            fields = layout.decode("/topics/orders", stored.value)
            assert fields == {
                "v": 1,
                "id": created.topic_id.hex,
                "configs": {},
                "replicas": [[0], [0], [0]],
            }

    asyncio.run(run())


def test_leader_epochs_rise_at_every_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            await cluster.submit(CreateTopic("orders", 3))
        epochs = []
        broker_epochs = []
        for _ in range(3):
            async with running(tmp_path) as cluster:
                states = cluster.controller.image.topics["orders"].partitions
                epochs.append({(each.leader_epoch, each.partition_epoch) for each in states})
                broker_epochs.append(cluster.registration.epoch)
        assert epochs == [{(1, 1)}, {(2, 2)}, {(3, 3)}]
        assert broker_epochs == sorted(set(broker_epochs))

    asyncio.run(run())


def test_commands_that_wait_share_a_transaction_and_keep_their_order(tmp_path: Path) -> None:
    async def run() -> None:
        store, controller = await faulty(tmp_path)
        commands = [CreateTopic(f"t{n}") for n in range(1000)]
        commands.insert(500, CreateTopic("t7"))
        commands.append(CreateTopic("t8", validate_only=True))
        answers = await controller.submit_all(commands)
        refused = [each for each in answers if isinstance(each, KafkaError)]
        assert [each.code for each in refused] == [ErrorCode.TOPIC_ALREADY_EXISTS] * 2
        names = [each.name for each in answers if isinstance(each, CreatedTopic)]
        assert names == [f"t{n}" for n in range(1000)]
        assert store.transactions <= 5
        assert len(controller.image.topics) == 1000
        await controller.close()
        await store.close()

    asyncio.run(run())


def test_the_image_changes_only_after_the_store_said_yes(tmp_path: Path) -> None:
    async def run() -> None:
        store, controller = await faulty(tmp_path)
        store.gate = asyncio.Event()
        before = controller.image
        submitted = asyncio.create_task(controller.submit(CreateTopic("orders")))
        while store.transactions < 1:
            await asyncio.sleep(0)
        assert controller.image is before
        assert not submitted.done()
        store.gate.set()
        await submitted
        assert "orders" in controller.image.topics
        assert "orders" not in before.topics
        await controller.close()
        await store.close()

    asyncio.run(run())


def test_a_caller_that_gives_up_before_its_turn_has_done_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        store, controller = await faulty(tmp_path)
        store.gate = asyncio.Event()
        first = asyncio.create_task(controller.submit(CreateTopic("first")))
        while store.transactions < 1:
            await asyncio.sleep(0)
        second = asyncio.create_task(controller.submit(CreateTopic("second")))
        third = asyncio.create_task(controller.submit(CreateTopic("third")))
        await asyncio.sleep(0)
        second.cancel()
        store.gate.set()
        await asyncio.gather(first, third)
        assert sorted(controller.image.topics) == ["first", "third"]
        await controller.close()
        await store.close()

    asyncio.run(run())


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


def test_a_queue_that_is_full_refuses(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, ControllerLimits(queued_commands=10)) as cluster:
            answers = await cluster.controller.submit_all([CreateTopic(f"t{n}") for n in range(12)])
            codes = [each.code for each in answers if isinstance(each, KafkaError)]
            assert codes == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2

    asyncio.run(run())


def test_a_fault_in_planning_harms_its_own_command_only(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            bad = CreateTopic("bad", partitions="many")  # type: ignore[arg-type]
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


def test_changes_are_handed_out_in_order_and_the_whole_image_after_a_gap(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, ControllerLimits(history_changes=3)) as cluster:
            controller = cluster.controller
            start = controller.image
            epoch = start.controller_epoch
            versions = []
            for n in range(3):
                await controller.submit(CreateTopic(f"t{n}"))
                versions.append(controller.image.version)
            update = await controller.changes_after(start.version, 0.0, epoch)
            assert update.image is None
            assert [each.version for each in update.batches] == versions
            assert [len(each.changes) for each in update.batches] == [1, 1, 1]
            update = await controller.changes_after(versions[1], 0.0, epoch)
            assert [each.version for each in update.batches] == versions[2:]
            empty = await controller.changes_after(versions[2], 0.0, epoch)
            assert (empty.image, empty.batches) == (None, ())
            await controller.submit(CreateTopic("t3"))
            for version, asked_epoch in (
                (start.version, epoch),
                (versions[2], epoch - 1),
                (versions[2], controller_loop.UNKNOWN_EPOCH),
                (controller.image.version + 1, epoch),
            ):
                update = await controller.changes_after(version, 0.0, asked_epoch)
                assert update.image is controller.image

    asyncio.run(run())


def test_a_long_poll_ends_with_the_first_change(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            controller = cluster.controller
            image = controller.image
            polls = [
                asyncio.create_task(
                    controller.changes_after(image.version, 60.0, image.controller_epoch)
                )
                for _ in range(3)
            ]
            await asyncio.sleep(0)
            await controller.submit(CreateTopic("orders"))
            for poll in polls:
                update = await poll
                assert [each.version for each in update.batches] == [controller.image.version]

    asyncio.run(run())


def test_a_broker_id_in_use_by_another_session_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            session = await cluster.store.new_session()
            with pytest.raises(KafkaError) as raised:
                await register_broker(session, cluster.submit, 0, ENDPOINTS)
            assert raised.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            again = await register_broker(cluster.store, cluster.submit, 0, ENDPOINTS, "rack-1")
            assert again.epoch > cluster.registration.epoch
            assert cluster.controller.image.brokers[0] == again
            other = await register_broker(session, cluster.submit, 1, ENDPOINTS)
            assert sorted(cluster.controller.image.brokers) == [0, 1]
            assert other.epoch > again.epoch
            await session.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("/topics/orders", b'{"v":2}', "/topics/orders has version 2"),
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
            assert await store.tree("/") == before

    asyncio.run(run())


def test_c12_blocks_of_producer_ids_are_never_given_twice_over_restarts(tmp_path: Path) -> None:
    async def run() -> None:
        firsts: list[int] = []
        for _ in range(4):
            async with running(tmp_path) as cluster:
                command = AllocateProducerIds(0, cluster.registration.epoch)
                answers = await cluster.controller.submit_all([command] * 5)
                firsts += [each.first for each in answers if isinstance(each, ProducerIdBlock)]
                node = await cluster.store.read(layout.PRODUCER_IDS)
                assert node is not None
                # Durable before it is handed out.
                assert layout.decode("", node.value)["next"] == firsts[-1] + 1000
        assert firsts == [n * 1000 for n in range(20)]

    asyncio.run(run())


def test_settings_survive_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            await cluster.submit(CreateTopic("orders", configs={"retention.ms": "1"}))
            change = ConfigChange("segment.bytes", "5")
            await cluster.submit(AlterTopicConfigs("orders", [change]))
        async with running(tmp_path) as cluster:
            configs = cluster.controller.image.topics["orders"].configs
            assert configs == {"retention.ms": "1", "segment.bytes": "5"}

    asyncio.run(run())


def test_closing_refuses_what_still_waits(tmp_path: Path) -> None:
    async def run() -> None:
        store, controller = await faulty(tmp_path)
        store.gate = asyncio.Event()
        first = asyncio.create_task(controller.submit(CreateTopic("first")))
        while store.transactions < 1:
            await asyncio.sleep(0)
        second = asyncio.create_task(controller.submit(CreateTopic("second")))
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
