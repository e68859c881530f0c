"""What a new controller finds half done, or written by an older version, and puts right."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.unit.cluster.helpers import running, start_controller
from tests.unit.store.helpers import opened
from tidelog.cluster import layout
from tidelog.cluster.commands import AlterConfigs, ConfigChange, CreateTopic
from tidelog.errors import StorageError
from tidelog.model import ConfigResourceType
from tidelog.store.port import Create, Delete, Set

ID = "00000000000000000000000000000001"


async def make_old(directory: Path) -> None:
    """A store as the first version left it: one topic with two partitions on broker 0."""
    async with running(directory):
        pass
    async with opened(directory) as store:
        state = (
            b'{"v":1,"leader":0,"leader_epoch":3,"isr":[0],"elr":[],"last_known_elr":[],'
            b'"controller_epoch":7}'
        )
        await store.multi(
            [
                Create(
                    "/topics/old",
                    f'{{"v":1,"id":"{ID}","configs":{{}},"replicas":[[0],[0]]}}'.encode(),
                ),
                Create("/topics/old/partitions", b""),
                Create("/topics/old/partitions/0", state),
                Create("/topics/old/partitions/1", state),
                Set(
                    "/brokers/seen/0",
                    b'{"v":1,"epoch":2,"alive":true,"rack":null,"endpoints":[["PLAINTEXT","h",1]]}',
                ),
            ]
        )


def test_a_store_of_the_first_version_keeps_its_replicas_when_it_is_written_again(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        await make_old(tmp_path)
        async with opened(tmp_path) as store:
            held = layout.load(await store.tree("/")).image
        assert [each.replicas for each in held.topics["old"].partitions] == [(0,), (0,)]
        async with running(tmp_path) as cluster:
            states = cluster.controller.image.topics["old"].partitions
            assert [(each.replicas, each.leader, each.isr) for each in states] == [
                ((0,), 0, (0,)),
                ((0,), 0, (0,)),
            ]
            assert cluster.controller.unclean_elections == 0
            change = ConfigChange("retention.ms", "1")
            await cluster.submit(AlterConfigs(ConfigResourceType.TOPIC, "old", [change]))
            held = layout.load(await cluster.store.tree("/")).image
            assert held.same_content(cluster.controller.image)
            assert [each.replicas for each in held.topics["old"].partitions] == [(0,), (0,)]

    asyncio.run(run())


@pytest.mark.parametrize("written", ["a topic", "partitions"])
def test_c14_what_was_not_created_wholly_is_removed_by_the_next_controller(
    tmp_path: Path, written: str
) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            await cluster.submit(CreateTopic("orders", 2))
            state = await cluster.store.read("/topics/orders/partitions/0")
            assert state is not None
        async with opened(tmp_path) as store:
            if written == "a topic":
                await store.multi(
                    [
                        Create("/topics/half", layout.encode(id=ID, configs={}, partitions=0)),
                        Create("/topics/half/partitions", b""),
                        Create("/topics/half/partitions/0", state.value),
                    ]
                )
            else:
                await store.multi([Create("/topics/orders/partitions/2", state.value)])
            held = layout.load(await store.tree("/")).image
            assert list(held.topics) == ["orders"]
            assert len(held.topics["orders"].partitions) == 2
        async with running(tmp_path) as cluster:
            assert sorted(await cluster.store.tree("/topics")) == [
                "/topics",
                "/topics/orders",
                "/topics/orders/partitions",
                "/topics/orders/partitions/0",
                "/topics/orders/partitions/1",
            ]

    asyncio.run(run())


def test_a_deletion_that_ended_before_its_last_node_is_finished(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            await cluster.store.multi(
                [Create("/topics/half", layout.encode(id=ID, configs={}, partitions=0))]
            )
        async with running(tmp_path) as cluster:
            assert await cluster.store.children("/topics") == []

    asyncio.run(run())


def test_a_topic_that_lacks_a_partition_is_not_repaired_but_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster:
            await cluster.submit(CreateTopic("orders", 2))
        async with opened(tmp_path) as store:
            await store.multi([Delete("/topics/orders/partitions/1")])
            with pytest.raises(StorageError, match="is not understood"):
                await start_controller(store)

    asyncio.run(run())
