"""A follower has what the controller has, in order, and tells its subscribers."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.cluster.helpers import image_with, running, start_controller
from tidelog.cluster.changes import Change, TopicCreated, TopicDeleted, Update
from tidelog.cluster.commands import CreateTopic, DeleteTopic
from tidelog.cluster.controller_loop import ControllerLimits
from tidelog.cluster.follower import MetadataFollower
from tidelog.cluster.image import MetadataImage
from tidelog.errors import ErrorCode, KafkaError


def test_a_follower_ends_where_the_controller_is(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            controller = cluster.controller
            await controller.submit(CreateTopic("before"))
            follower = MetadataFollower(controller.changes_after)
            await follower.start()
            assert follower.image == controller.image
            steps: list[tuple[MetadataImage, MetadataImage, tuple[Change, ...]]] = []
            follower.subscribe(lambda old, new, changes: steps.append((old, new, changes)))
            start = follower.image
            for n in range(20):
                await controller.submit(CreateTopic(f"t{n}", 2))
            await controller.submit(DeleteTopic("before"))
            await follower.wait_for_version(controller.image.version)
            assert follower.image == controller.image
            # An unbroken chain of images, each the one before with its changes.
            assert steps[0][0] is start
            assert steps[-1][1] is follower.image
            for (_, new, _), (old, _, _) in pairwise(steps):
                assert new is old
            for old, new, changes in steps:
                assert old.apply_all(changes, new.version) == new
            assert sum(len(changes) for _, _, changes in steps) == 21
            await follower.close()

    asyncio.run(run())


def test_subscribers_are_done_before_those_who_wait_go_on(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            follower = MetadataFollower(cluster.controller.changes_after)
            await follower.start()
            created: list[str] = []

            def subscriber(
                old: MetadataImage, new: MetadataImage, changes: tuple[Change, ...]
            ) -> None:
                assert follower.image is new
                created.extend(
                    each.topic.name for each in changes if isinstance(each, TopicCreated)
                )

            cancel = follower.subscribe(subscriber)
            await cluster.submit(CreateTopic("orders"))
            await follower.wait_for_version(cluster.controller.image.version)
            assert created == ["orders"]
            await follower.wait_for_version(0)
            cancel()
            await cluster.submit(CreateTopic("more"))
            await follower.wait_for_version(cluster.controller.image.version)
            assert created == ["orders"]
            await follower.close()

    asyncio.run(run())


def test_after_a_gap_the_changes_are_those_between_the_images(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, ControllerLimits(history_changes=1)) as cluster:
            controller = cluster.controller
            gate = asyncio.Event()

            async def slow_poll(version: int, timeout_s: float, epoch: int) -> Update:
                if version >= 0 and epoch >= 0:
                    await gate.wait()
                return await controller.changes_after(version, timeout_s, epoch)

            await controller.submit(CreateTopic("gone"))
            gone = controller.image.topics["gone"]
            follower = MetadataFollower(slow_poll)
            await follower.start()
            seen: list[Change] = []
            follower.subscribe(lambda old, new, changes: seen.extend(changes))
            await controller.submit(CreateTopic("a"))
            await controller.submit(DeleteTopic("gone"))
            await controller.submit(CreateTopic("b"))
            gate.set()
            await follower.wait_for_version(controller.image.version)
            assert follower.image == controller.image
            topics = controller.image.topics
            assert seen == [
                TopicDeleted("gone", gone.topic_id, 1),
                TopicCreated(topics["a"]),
                TopicCreated(topics["b"]),
            ]
            await follower.close()

    asyncio.run(run())


def test_a_follower_outlives_its_controller_and_takes_up_the_next(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            controllers = [cluster.controller]
            await cluster.submit(CreateTopic("first"))

            async def poll(version: int, timeout_s: float, epoch: int) -> Update:
                return await controllers[-1].changes_after(version, timeout_s, epoch)

            follower = MetadataFollower(poll)
            await follower.start()
            seen: list[Change] = []
            follower.subscribe(lambda old, new, changes: seen.extend(changes))
            await cluster.controller.close()
            successor = await start_controller(await cluster.store.new_session())
            await successor.submit(CreateTopic("second"))
            controllers.append(successor)
            await follower.wait_for_version(successor.image.version)
            assert follower.image == successor.image
            assert seen == [TopicCreated(successor.image.topics["second"])]
            await follower.close()
            await successor.close()
            await successor._store.close()

    asyncio.run(run())


def test_those_who_wait_are_told_when_the_follower_stops() -> None:
    async def run() -> None:
        image = image_with((0,))

        async def poll(version: int, timeout_s: float, epoch: int) -> Update:
            if epoch < 0:
                return Update(image=image)
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        follower = MetadataFollower(poll)
        await follower.start()
        waiting = asyncio.create_task(follower.wait_for_version(image.version + 1))
        given_up = asyncio.create_task(follower.wait_for_version(image.version + 1))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        await follower.close()
        for attempt in (waiting, follower.wait_for_version(image.version + 1)):
            with pytest.raises(KafkaError) as raised:
                await attempt
            assert raised.value.code is ErrorCode.NOT_CONTROLLER
        await follower.wait_closed()

    asyncio.run(run())


def test_a_subscriber_that_fails_is_not_passed_over() -> None:
    async def run() -> None:
        first = image_with((0,))
        second = image_with((0,), [CreateTopic("a")])
        images = [first, second]

        async def poll(version: int, timeout_s: float, epoch: int) -> Update:
            return Update(image=images.pop(0))

        follower = MetadataFollower(poll)
        await follower.start()

        def fail(old: MetadataImage, new: MetadataImage, changes: tuple[Change, ...]) -> None:
            raise RuntimeError("subscriber")

        follower.subscribe(fail)
        with pytest.raises(RuntimeError, match="subscriber"):
            await follower.wait_closed()

    asyncio.run(run())
