"""The controller's loop: one writer, fenced, durable before it answers, whole or not at all."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from tests.unit.cluster.faults import faulty
from tests.unit.cluster.helpers import join, running
from tidelog.cluster import layout
from tidelog.cluster.commands import (
    AllocateProducerIds,
    AlterConfigs,
    ConfigChange,
    CreatedTopic,
    CreateTopic,
    ProducerIdBlock,
)
from tidelog.cluster.controller import UNKNOWN_EPOCH, ControllerLimits
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import ConfigResourceType


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
                "v": layout.VALUE_VERSION,
                "id": created.topic_id.hex,
                "configs": {},
                "partitions": 3,
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
        # One when the broker is seen to be gone, one when it is back.
        assert epochs == [{(2, 2)}, {(4, 4)}, {(6, 6)}]
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


def test_large_settings_do_not_make_a_large_transaction(tmp_path: Path) -> None:
    name = "leader.replication.throttled.replicas"
    settings = {name: "0:" + "0" * 32_000}

    async def run() -> None:
        async with running(tmp_path) as cluster:
            before = cluster.controller.image.version
            commands = [CreateTopic(f"t{n}", configs=settings) for n in range(20)]
            answers = await cluster.controller.submit_all(commands)
            assert all(isinstance(each, CreatedTopic) for each in answers)
            update = await cluster.controller.changes_after(before, 0, 1)
            assert [len(each.changes) for each in update.batches] == [7, 7, 6]

    asyncio.run(run())


def test_the_image_changes_only_after_the_store_said_yes(tmp_path: Path) -> None:
    async def run() -> None:
        store, controller = await faulty(tmp_path)
        store.gate = asyncio.Event()
        before = controller.image
        submitted = controller.submit(CreateTopic("orders"))
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
        first = controller.submit(CreateTopic("first"))
        while store.transactions < 1:
            await asyncio.sleep(0)
        second = controller.submit(CreateTopic("second"))
        third = controller.submit(CreateTopic("third"))
        await asyncio.sleep(0)
        second.cancel()
        store.gate.set()
        await asyncio.gather(first, third)
        assert sorted(controller.image.topics) == ["first", "third"]
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


def test_changes_are_handed_out_in_order_and_the_whole_image_after_a_gap(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, ControllerLimits(history_size=3)) as cluster:
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
                (versions[2], UNKNOWN_EPOCH),
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
                await join(session, cluster.controller, 0)
            assert raised.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            again = await join(cluster.store, cluster.controller, 0, "rack-1")
            assert again.epoch > cluster.registration.epoch
            assert cluster.controller.image.brokers[0] == again
            other = await join(session, cluster.controller, 1)
            assert sorted(cluster.controller.image.brokers) == [0, 1]
            assert other.epoch > again.epoch
            await session.close()

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
            change = ConfigChange("segment.bytes", "2000000")
            await cluster.submit(AlterConfigs(ConfigResourceType.TOPIC, "orders", [change]))
        async with running(tmp_path) as cluster:
            configs = cluster.controller.image.topics["orders"].configs
            assert configs == {"retention.ms": "1", "segment.bytes": "2000000"}

    asyncio.run(run())
