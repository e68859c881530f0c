"""The topic of a kind of shard, from the first that asks for it."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.coordinators.helpers import Replicas, turns
from tidelog.cluster.commands import Command, CreateTopic
from tidelog.cluster.image import BrokerRegistration, MetadataImage
from tidelog.coordinators.internal_topic import InternalTopic
from tidelog.errors import ErrorCode, KafkaError
from tidelog.testing.virtual_loop import virtual_time

TOPIC = "__tallies"


class Cluster:
    """A controller whose commands end when `done` is set; the image shows them before."""

    def __init__(self) -> None:
        self.image = MetadataImage(brokers={0: BrokerRegistration(0, 1, None, ())})
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.commands: list[Command] = []
        self.topic = InternalTopic(TOPIC, lambda: self.image, self.submit, self.creation)

    def creation(self, image: MetadataImage) -> CreateTopic:
        return CreateTopic(TOPIC, partitions=1, replication_factor=1, configs={})

    async def submit(self, command: Command) -> None:
        self.commands.append(command)
        self.image = Replicas(TOPIC).image
        await self.done


@virtual_time
async def test_a_client_that_goes_does_not_stop_the_creation_and_the_next_waits_for_it() -> None:
    cluster = Cluster()
    first = asyncio.create_task(cluster.topic.ensure())
    await turns()
    first.cancel()
    second = asyncio.create_task(cluster.topic.ensure())
    await turns()
    assert not second.done(), "its partitions are not led yet"
    cluster.done.set_result(None)
    await second
    await cluster.topic.ensure()
    assert len(cluster.commands) == 1


@virtual_time
async def test_a_creation_that_fails_is_tried_again_by_the_next_who_asks() -> None:
    cluster = Cluster()
    brokers, cluster.image = cluster.image, MetadataImage()
    for _ in range(2):
        with pytest.raises(KafkaError) as raised:
            await cluster.topic.ensure()
        assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.image = brokers
    cluster.done.set_result(None)
    await cluster.topic.ensure()
    assert cluster.topic.led_by(0) == {0: 0}
