"""Files of partitions that are not wanted here any more: put aside, never unlinked on absence."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.unit.replication.helpers import read
from tests.unit.replication.node import Node
from tidelog.cluster.commands import CreateTopic, DeleteTopic
from tidelog.cluster.image import MetadataImage
from tidelog.errors import KafkaError
from tidelog.storage.strays import KEPT_MS, SINCE
from tidelog.testing.disk import CrashMode
from tidelog.testing.virtual_loop import run_virtual, virtual_time

LOG = f"{0:020d}.log"


def strays(node: Node) -> list[str]:
    return [name for name in node.disk.list_dir("/data") if name.endswith("-stray")]


async def follow(node: Node, image: MetadataImage) -> None:
    old, node.image = node.image, image
    node.replicas.image_changed(old, image, ())
    await node.replicas.settled()


async def with_record() -> tuple[Node, bytes]:
    node = await Node().start()
    await node.do(CreateTopic("orders", 1))
    node.put(node.find("orders"), b"a")
    await node.find("orders").flush_and_wait()
    return node, node.disk.content(f"/data/orders-0/{LOG}")


def without_topics(image: MetadataImage) -> MetadataImage:
    return replace(image, version=image.version + 1, topics={}, topic_names={})


def without_us(image: MetadataImage) -> MetadataImage:
    topic = image.topics["orders"]
    moved = tuple(each._replace(replicas=(1,), isr=(1,), leader=1) for each in topic.partitions)
    topics = {"orders": topic._replace(partitions=moved)}
    return replace(image, version=image.version + 1, topics=topics)


@pytest.mark.parametrize("why", ["absent", "moved"])
def test_r24_what_nobody_deleted_is_put_aside_with_all_its_records(why: str) -> None:
    @virtual_time
    async def scenario() -> None:
        node, content = await with_record()
        before = node.image
        await follow(node, without_topics(before) if why == "absent" else without_us(before))
        assert len(node.replicas) == 0
        assert not node.disk.exists("/data/orders-0")
        (stray,) = strays(node)
        assert node.disk.content(f"/data/{stray}/{LOG}") == content
        # The topic is back: a new replica begins, and nothing is in its way.
        back = replace(before, version=node.image.version + 1)
        await follow(node, back)
        assert read(node.find("orders")) == []
        assert strays(node) == [stray]
        await node.replicas.close()

    scenario()


@virtual_time
async def test_a_tombstone_still_removes_files() -> None:
    node, _ = await with_record()
    await node.do(DeleteTopic("orders"))
    assert strays(node) == []
    await node.replicas.close()


def test_a_stray_goes_after_seven_days_that_the_broker_has_run() -> None:
    async def scenario() -> None:
        node, _ = await with_record()
        await follow(node, without_topics(node.image))
        loop, clock = asyncio.get_running_loop(), node.data_dir.context.running_clock
        began = loop.time()
        clock.observe()
        # The wall clock may jump: that is not seven days.
        node.clock.jump(30 * KEPT_MS)
        clock.observe()
        assert node.data_dir.remove_old_strays(clock.ages()) == []
        for _ in range(8 * 24 * 60):
            await asyncio.sleep(60)
            clock.observe()
            if node.data_dir.remove_old_strays(clock.ages()):
                break
        assert strays(node) == []
        assert KEPT_MS / 1000 <= loop.time() - began < KEPT_MS / 1000 + 600

    run_virtual(scenario(), limit_seconds=9 * 24 * 3600)


@virtual_time
async def test_a_stray_of_an_older_version_is_counted_from_now_on() -> None:
    node, _ = await with_record()
    await follow(node, without_topics(node.image))
    (stray,) = strays(node)
    node.disk.unlink(f"/data/{stray}/{SINCE}")
    ages = node.data_dir.context.running_clock.ages()
    assert node.data_dir.remove_old_strays(ages) == []
    assert node.disk.content(f"/data/{stray}/{SINCE}") == b"%d\n" % node.clock.wall_ms()


@virtual_time
async def test_a_start_puts_aside_what_the_image_does_not_show_here() -> None:
    node, content = await with_record()
    await node.replicas.close()
    again = await Node(without_us(node.image), node.disk.crash(CrashMode.KEEP_ALL)).start()
    (stray,) = strays(again)
    assert again.disk.content(f"/data/{stray}/{LOG}") == content
    assert again.disk.exists(f"/data/{stray}/{SINCE}")
    with pytest.raises(KafkaError):
        again.find("orders")
