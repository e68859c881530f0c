"""A feed has what the controller has, in order, and tells its subscribers."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.cluster.helpers import image_with, running, start_controller
from tidelog.client.faults import NetworkError
from tidelog.cluster.changes import Change, ChangeBatch, TopicCreated, TopicDeleted, Update
from tidelog.cluster.commands import CreateTopic, DeleteTopic
from tidelog.cluster.controller import ControllerLimits
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.image_feed import ImageFeed
from tidelog.errors import ErrorCode, KafkaError
from tidelog.testing.virtual_loop import run_virtual, virtual_time


def test_a_feed_ends_where_the_controller_is(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            controller = cluster.controller
            await controller.submit(CreateTopic("before"))
            feed = ImageFeed(controller.changes_after)
            await feed.start()
            assert feed.image == controller.image
            steps: list[tuple[MetadataImage, MetadataImage, tuple[Change, ...]]] = []
            feed.subscribe(lambda old, new, changes: steps.append((old, new, changes)))
            start = feed.image
            for n in range(20):
                await controller.submit(CreateTopic(f"t{n}", 2))
            await controller.submit(DeleteTopic("before"))
            await feed.wait_for_version(controller.image.version)
            assert feed.image == controller.image
            # An unbroken chain of images, each the one before with its changes.
            assert steps[0][0] is start
            assert steps[-1][1] is feed.image
            for (_, new, _), (old, _, _) in pairwise(steps):
                assert new is old
            for old, new, changes in steps:
                assert old.apply_all(changes, new.version) == new
            assert sum(len(changes) for _, _, changes in steps) == 21
            await feed.close()

    asyncio.run(run())


def test_subscribers_are_done_before_those_who_wait_go_on(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            feed = ImageFeed(cluster.controller.changes_after)
            await feed.start()
            created: list[str] = []

            def subscriber(
                old: MetadataImage, new: MetadataImage, changes: tuple[Change, ...]
            ) -> None:
                assert feed.image is new
                created.extend(
                    each.topic.name for each in changes if isinstance(each, TopicCreated)
                )

            cancel = feed.subscribe(subscriber)
            await cluster.submit(CreateTopic("orders"))
            await feed.wait_for_version(cluster.controller.image.version)
            assert created == ["orders"]
            await feed.wait_for_version(0)
            cancel()
            await cluster.submit(CreateTopic("more"))
            await feed.wait_for_version(cluster.controller.image.version)
            assert created == ["orders"]
            await feed.close()

    asyncio.run(run())


def test_after_a_gap_the_changes_are_those_between_the_images(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, ControllerLimits(history_size=1)) as cluster:
            controller = cluster.controller
            gate = asyncio.Event()

            async def slow_poll(version: int, timeout_s: float, epoch: int) -> Update:
                if version >= 0 and epoch >= 0:
                    await gate.wait()
                return await controller.changes_after(version, timeout_s, epoch)

            await controller.submit(CreateTopic("gone"))
            gone = controller.image.topics["gone"]
            feed = ImageFeed(slow_poll)
            await feed.start()
            seen: list[Change] = []
            feed.subscribe(lambda old, new, changes: seen.extend(changes))
            await controller.submit(CreateTopic("a"))
            await controller.submit(DeleteTopic("gone"))
            await controller.submit(CreateTopic("b"))
            gate.set()
            await feed.wait_for_version(controller.image.version)
            assert feed.image == controller.image
            topics = controller.image.topics
            assert seen == [
                TopicDeleted("gone", gone.topic_id, 1),
                TopicCreated(topics["a"]),
                TopicCreated(topics["b"]),
            ]
            await feed.close()

    asyncio.run(run())


def test_a_feed_outlives_its_controller_and_takes_up_the_next(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            controllers = [cluster.controller]
            await cluster.submit(CreateTopic("first"))

            async def poll(version: int, timeout_s: float, epoch: int) -> Update:
                return await controllers[-1].changes_after(version, timeout_s, epoch)

            feed = ImageFeed(poll)
            await feed.start()
            seen: list[Change] = []
            feed.subscribe(lambda old, new, changes: seen.extend(changes))
            await cluster.controller.close()
            successor = await start_controller(await cluster.store.new_session())
            await successor.submit(CreateTopic("second"))
            controllers.append(successor)
            await feed.wait_for_version(successor.image.version)
            assert feed.image == successor.image
            assert seen == [TopicCreated(successor.image.topics["second"])]
            await feed.close()
            await successor.close()
            await successor._store.close()

    asyncio.run(run())


def test_those_who_wait_are_told_when_the_feed_stops() -> None:
    async def run() -> None:
        image = image_with((0,))

        async def poll(version: int, timeout_s: float, epoch: int) -> Update:
            if epoch < 0:
                return Update(image=image)
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        feed = ImageFeed(poll)
        await feed.start()
        waiting = asyncio.create_task(feed.wait_for_version(image.version + 1))
        given_up = asyncio.create_task(feed.wait_for_version(image.version + 1))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        await feed.close()
        for attempt in (waiting, feed.wait_for_version(image.version + 1)):
            with pytest.raises(KafkaError) as raised:
                await attempt
            assert raised.value.code is ErrorCode.NOT_CONTROLLER
        await feed.wait_closed()

    asyncio.run(run())


def test_a_subscriber_that_fails_is_not_passed_over() -> None:
    async def run() -> None:
        first = image_with((0,))
        second = image_with((0,), [CreateTopic("a")])
        images = [first, second]

        async def poll(version: int, timeout_s: float, epoch: int) -> Update:
            return Update(image=images.pop(0))

        feed = ImageFeed(poll)
        await feed.start()

        def fail(old: MetadataImage, new: MetadataImage, changes: tuple[Change, ...]) -> None:
            raise RuntimeError("subscriber")

        feed.subscribe(fail)
        with pytest.raises(RuntimeError, match="subscriber"):
            await feed.wait_closed()

    asyncio.run(run())


@virtual_time
async def test_a_subscriber_that_failed_hears_of_the_deletions_at_its_second_try() -> None:
    with_topic = image_with((0,), [CreateTopic("gone")])
    commands = [CreateTopic("gone"), CreateTopic("kept"), DeleteTopic("gone")]
    images = [with_topic, image_with((0,), commands)]
    heard: list[tuple[MetadataImage, tuple[Change, ...]]] = []

    async def poll(version: int, timeout_s: float, epoch: int) -> Update:
        if not images:
            await asyncio.sleep(timeout_s)
            return Update()
        return Update(image=images.pop(0))

    def fail_once(old: MetadataImage, new: MetadataImage, changes: tuple[Change, ...]) -> None:
        heard.append((old, changes))
        if len(heard) == 1:
            raise RuntimeError("not yet")

    feed = ImageFeed(poll)
    await feed.start()
    feed.subscribe(fail_once)
    await asyncio.sleep(1)
    await feed.close()
    (_, _), (old, changes) = heard
    assert not old.topics, "the second time it is given everything"
    topic_id = with_topic.topics["gone"].topic_id
    assert changes[0] == TopicDeleted("gone", topic_id, 1)
    assert any(isinstance(each, TopicCreated) for each in changes)


class Script:
    """A controller that says what it is told to say, one update for every poll."""

    def __init__(self, *updates: Update) -> None:
        self.updates = list(updates)
        self.asked: list[tuple[int, int]] = []
        self.all_taken = asyncio.Event()

    async def poll(self, version: int, timeout_s: float, controller_epoch: int) -> Update:
        self.asked.append((version, controller_epoch))
        if self.updates:
            return self.updates.pop(0)
        self.all_taken.set()
        return await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    "older",
    [
        Update(image=MetadataImage(9, controller_epoch=3)),
        Update(image=MetadataImage(12, controller_epoch=2)),
        Update(batches=(ChangeBatch(9, ()), ChangeBatch(10, ()))),
    ],
    ids=["an older version", "an older controller", "batches that it has"],
)
def test_i28_the_image_never_goes_back(older: Update) -> None:
    async def run() -> None:
        script = Script(Update(image=MetadataImage(10, controller_epoch=3)), older)
        feed = ImageFeed(script.poll)
        seen: list[int] = []
        feed.subscribe(lambda before, after, changes: seen.append(after.version))
        await feed.start()
        await script.all_taken.wait()
        assert feed.image.version == 10
        assert script.asked[-1] == (10, 3)
        assert seen == [10]
        await feed.close()

    run_virtual(run())


def test_a_whole_image_of_a_new_controller_is_taken_also_at_the_same_version() -> None:
    async def run() -> None:
        script = Script(
            Update(image=MetadataImage(10, controller_epoch=3)),
            Update(image=MetadataImage(10, controller_id=2, controller_epoch=4)),
        )
        feed = ImageFeed(script.poll)
        await feed.start()
        await script.all_taken.wait()
        assert (feed.image.version, feed.image.controller_epoch) == (10, 4)
        await feed.close()

    run_virtual(run())


def test_a_feed_asks_the_next_controller_at_once_however_long_there_was_none() -> None:
    async def run() -> None:
        elected = asyncio.Event()

        async def poll(version: int, timeout_s: float, controller_epoch: int) -> Update:
            if not elected.is_set():
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            if version:
                await asyncio.sleep(timeout_s)
                return Update()
            return Update(image=MetadataImage(5, controller_epoch=1))

        feed = ImageFeed(poll)
        starting = asyncio.create_task(feed.start())
        await asyncio.sleep(60)
        loop = asyncio.get_running_loop()
        elected_at = loop.time()
        elected.set()
        feed.hurry()
        await starting
        assert loop.time() == elected_at
        await feed.close()

    run_virtual(run())


def test_a_feed_waits_for_a_controller_that_cannot_be_reached() -> None:
    async def run() -> None:
        errors: list[Exception] = [
            KafkaError(ErrorCode.NOT_CONTROLLER),
            NetworkError("b1:9092", "gone"),
            ConnectionRefusedError(),
        ]

        async def poll(version: int, timeout_s: float, controller_epoch: int) -> Update:
            if errors:
                raise errors.pop()
            return Update(image=MetadataImage(5, controller_epoch=1))

        feed = ImageFeed(poll)
        await feed.start()
        assert feed.image.version == 5
        await feed.close()

    run_virtual(run())
