"""A cluster is upgraded broker by broker: tried with a next version that does not exist."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.unit.cluster.helpers import ENDPOINTS, make_rules
from tidelog.cluster import layout, wire
from tidelog.cluster.changes import ChangeBatch, TopicCreated, Update
from tidelog.cluster.commands import CreateTopic
from tidelog.cluster.controller import UNKNOWN_EPOCH, Controller
from tidelog.cluster.controller_link import ControllerLink
from tidelog.cluster.image import BrokerRegistration, Endpoint, MetadataImage, TopicImage
from tidelog.cluster.membership import Membership
from tidelog.cluster.office import Owner, Place
from tidelog.cluster.registration import register_broker
from tidelog.errors import ProtocolError, StorageError
from tidelog.protocol.messages.follow_metadata import FollowMetadataRequest, FollowMetadataResponse
from tidelog.store.port import Store, StoreError
from tidelog.testing.memory_store import MemoryStore, MemoryTree
from tidelog.testing.virtual_loop import run_virtual, virtual_host

THIS = layout.VALUE_VERSION
NEXT = THIS + 1


@contextmanager
def next_version() -> Iterator[None]:
    """The software of the next version, which reads and writes one more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "VALUE_VERSION", NEXT)
        patch.setattr(layout, "_READ_VERSIONS", (*layout._READ_VERSIONS, NEXT))
        layout._encode_state.cache_clear()
        yield
    layout._encode_state.cache_clear()


async def control(store: Store, broker_id: int) -> Controller:
    controller = Controller(store, Place(broker_id), make_rules(broker_id))
    await controller.start()
    return controller


async def enter(store: MemoryStore, broker_id: int, version: int) -> BrokerRegistration:
    entry = BrokerRegistration(broker_id, -1, None, ENDPOINTS, metadata_version=version)
    return await register_broker(store, entry)


async def knows(controller: Controller, registration: BrokerRegistration) -> None:
    while controller.image.brokers.get(registration.id) != registration:
        image = controller.image
        await controller.changes_after(image.version, 10.0, image.controller_epoch)


def versions(tree: MemoryTree, topic: str) -> set[int]:
    """Those in which a topic's nodes are written."""
    return {
        json.loads(node.value)["v"]
        for path, node in tree.nodes.items()
        if path.startswith(layout.topic_path(topic)) and node.value
    }


def test_the_store_is_written_in_the_highest_version_that_all_brokers_read() -> None:
    async def run() -> None:
        tree = MemoryTree()
        stores = [await tree.connect() for _ in range(2)]
        first = await control(stores[0], 0)
        for broker_id, store in enumerate(stores):
            await knows(first, await enter(store, broker_id, THIS))
        await first.submit(CreateTopic("before"))
        # Broker 1 is upgraded, and is the controller next.
        stores[1].expire()
        stores[1] = await tree.connect()
        await knows(first, upgraded := await enter(stores[1], 1, NEXT))
        await first.close()
        with next_version():
            second = await control(stores[1], 1)
            assert second.image.brokers[1] == upgraded
            await second.submit(CreateTopic("during"))
            assert versions(tree, "during") == {THIS}
            await second.close()
        # Whoever is not upgraded can still control.
        first = await control(stores[0], 0)
        assert sorted(first.image.topics) == ["before", "during"]
        # While it is away it counts: it may come back as it was.
        stores[0].expire()
        with pytest.raises(StoreError):
            await first.wait_closed()
        with next_version():
            second = await control(stores[1], 1)
            while second.image.brokers.keys() != {1}:
                await second.changes_after(second.image.version, 10.0, 4)
            await second.submit(CreateTopic("away"))
            assert versions(tree, "away") == {THIS}
            stores[0] = await tree.connect()
            await knows(second, await enter(stores[0], 0, NEXT))
            await second.submit(CreateTopic("after"))
            assert versions(tree, "after") == {NEXT}
            await second.close()
        with pytest.raises(StorageError, match=f"has version {NEXT}.*start the version that wrote"):
            await control(stores[0], 0)

    run_virtual(run())


def test_a_broker_that_reads_less_than_is_written_is_refused_in_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        tree = MemoryTree()
        stores = [await tree.connect() for _ in range(2)]
        with next_version():
            controller = await control(stores[0], 0)
            await knows(controller, await enter(stores[0], 0, NEXT))
            await enter(stores[1], 1, THIS)
            await controller.changes_after(controller.image.version, 1.0, 1)
            assert sorted(controller.image.brokers) == [0]
            # Nor does it stay among those who are there where it was one of them before.
            stores[1].expire()
            stores[1] = await tree.connect()
            await knows(controller, await enter(stores[1], 1, NEXT))
            await enter(stores[1], 1, THIS)
            await controller.changes_after(controller.image.version, 1.0, 1)
            assert sorted(controller.image.brokers) == [0]
        assert f"broker 1 reads the metadata up to version {THIS}" in caplog.text
        with pytest.raises(StorageError, match=f"written in version {NEXT}.*start a newer version"):
            layout.check_version(controller.image)
        await controller.close()

    run_virtual(run())


class NewerController:
    """A peer that knows a kind of change which this version does not know."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.epochs: list[int] = []

    async def request(self, api_name: str, message: object, timeout_s: float) -> Any:
        assert isinstance(message, FollowMetadataRequest)
        self.epochs.append(message.controller_epoch)
        if message.controller_epoch == UNKNOWN_EPOCH:
            plain = json.loads(wire.encode(Update(image=self._image)))
            plain["image"]["a field of the next version"] = [1, 2, 3]
        else:
            topic = next(iter(self._image.topics.values()))
            batch = ChangeBatch(self._image.version, (TopicCreated(topic),))
            plain = json.loads(wire.encode(Update(batches=(batch,))))
            plain["batches"][0]["changes"][0]["_"] = "TopicBlessed"
        return FollowMetadataResponse(update=json.dumps(plain).encode())

    def close(self) -> None:
        pass


def test_a_kind_of_change_that_is_not_known_here_makes_the_broker_take_a_whole_image() -> None:
    async def run() -> None:
        topic = TopicImage("new", make_rules().random.uuid(), (), {})
        image = MetadataImage(7, "cluster", 1, 3, topics={"new": topic})
        peer = NewerController(image)
        host = virtual_host()
        tree = MemoryTree()
        membership = Membership(0, tree.connect, make_rules(), host)
        membership._take_owner(Owner(1, 3, Endpoint("PLAINTEXT", "b1", 9092)))
        link = ControllerLink(membership, make_rules(), lambda endpoint: peer, host.offload)
        update = await link.changes_after(5, 1.0, 3)
        assert update.image == image
        assert peer.epochs == [3, UNKNOWN_EPOCH]

    run_virtual(run())


def test_bytes_that_are_no_update_are_refused() -> None:
    with pytest.raises(ProtocolError):
        wire.decode(Update, b'{"_":"Update","image":7}')
