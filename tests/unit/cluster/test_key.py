"""The cluster's key: made once, kept in the store, known to brokers alone."""

from __future__ import annotations

import pytest

from tidelog.cluster import layout
from tidelog.cluster.key import read_identity
from tidelog.cluster.office import Place, resign, take_office
from tidelog.errors import StorageError
from tidelog.store.port import Delete, Set
from tidelog.testing.memory_store import MemoryTree
from tidelog.testing.virtual_loop import SeededRandom, virtual_time


@virtual_time
async def test_a_cluster_has_its_key_from_the_beginning_and_keeps_it() -> None:
    tree = MemoryTree()
    store = await tree.connect()
    assert await read_identity(store) is None
    term = await take_office(store, Place(0), SeededRandom(1))
    first = await read_identity(store)
    await resign(store, term.epoch_version)
    await take_office(store, Place(1), SeededRandom(2))
    second = await read_identity(store)
    assert first is not None and second is not None
    assert first.password == second.password


@virtual_time
async def test_the_next_controller_gives_an_older_store_its_key() -> None:
    tree = MemoryTree()
    store = await tree.connect()
    term = await take_office(store, Place(0), SeededRandom(1))
    await store.multi([Delete(layout.CLUSTER_KEY)])
    assert await read_identity(store) is None
    await resign(store, term.epoch_version)
    await take_office(store, Place(1), SeededRandom(2))
    assert await read_identity(store) is not None


@virtual_time
async def test_two_clusters_have_two_keys_and_no_image_shows_one() -> None:
    passwords = set()
    for seed in (1, 2):
        store = await MemoryTree().connect()
        term = await take_office(store, Place(0), SeededRandom(seed))
        node = await store.read(layout.CLUSTER_KEY)
        assert node is not None
        key = layout.decode(layout.CLUSTER_KEY, node.value)["key"]
        assert len(key) == 64
        assert key not in repr(term.image)
        identity = await read_identity(store)
        assert identity is not None
        passwords.add(identity.password)
    assert len(passwords) == 2


@pytest.mark.parametrize(
    "value", [b"", b"{}", b'{"v":1}', b'{"v":1,"key":"abc"}', b'{"v":1,"key":7}']
)
def test_a_key_that_is_damaged_is_refused_and_not_shown(value: bytes) -> None:
    @virtual_time
    async def run() -> None:
        store = await MemoryTree().connect()
        await take_office(store, Place(0), SeededRandom(1))
        await store.multi([Set(layout.CLUSTER_KEY, value)])
        with pytest.raises(StorageError, match="/cluster/key") as caught:
            await read_identity(store)
        assert "abc" not in str(caught.value)

    run()
