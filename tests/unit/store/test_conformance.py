"""Every store keeps the promises of the port: memory, SQLite, SQLite over a socket, ZooKeeper."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.store.helpers import open_store
from tidelog.host.clock import SystemClock
from tidelog.host.offload import ThreadOffload
from tidelog.store.ensemble import Ensemble
from tidelog.store.port import (
    TRANSACTION_BYTES_MAX,
    Check,
    Conflict,
    ConflictReason,
    Create,
    Delete,
    Operation,
    SessionExpired,
    SessionState,
    Set,
    Store,
    TransactionTooLarge,
    WatchEvent,
)
from tidelog.store.remote import connect_remote
from tidelog.store.served import StoreServer
from tidelog.store.zookeeper import connect
from tidelog.testing.memory_store import MemoryTree
from tidelog.testing.zookeeper import ZooKeeper

WAIT_S = 20.0
R = ConflictReason


@dataclass
class Backend:
    """Opens sessions on one tree, and closes them at the end."""

    connect: Callable[[], Awaitable[Store]]


class Kind:
    """One kind of store: a tree of its own for each test."""

    def __init__(self, name: str, directory: Path, ensemble: ZooKeeper | None) -> None:
        self.name = name
        self._directory = directory
        self._ensemble = ensemble

    @asynccontextmanager
    async def tree(self) -> AsyncIterator[Backend]:
        opened: list[Store] = []
        if self.name == "memory":
            memory = MemoryTree()
            backend = Backend(memory.connect)
        elif self.name == "sqlite":
            first = await open_store(self._directory)
            opened.append(first)
            backend = Backend(first.new_session)
        elif self.name == "served":
            first = await open_store(self._directory)
            opened.append(first)
            path = str(self._directory / "store.sock")
            server = StoreServer(first, path, lease_s=5.0)
            await server.start()
            backend = Backend(lambda: connect_remote(path))
        else:
            assert self._ensemble is not None
            address = Ensemble(self._ensemble.hosts, f"/{uuid.uuid4()}", session_s=4.0)
            backend = Backend(
                lambda: connect(address, SystemClock(), ThreadOffload("zookeeper", 1))
            )

        async def open_session() -> Store:
            store = await backend.connect()
            opened.append(store)
            return store

        try:
            yield Backend(open_session)
        finally:
            for store in reversed(opened):
                if self.name == "served" and store is opened[0]:
                    await server.close()
                await store.close()


@pytest.fixture(
    scope="module",
    params=["memory", "sqlite", "served", pytest.param("zookeeper", marks=pytest.mark.spark)],
)
def ensemble(request: pytest.FixtureRequest) -> Iterator[ZooKeeper | str]:
    """The kind of store; of ZooKeeper, the ensemble that all tests share."""
    if request.param != "zookeeper":
        yield request.param
        return
    with ZooKeeper() as running:
        yield running


@pytest.fixture
def kind(ensemble: ZooKeeper | str, tmp_path: Path) -> Kind:
    if isinstance(ensemble, str):
        return Kind(ensemble, tmp_path, None)
    return Kind("zookeeper", tmp_path, ensemble)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


def test_what_was_written_is_read_by_another_session(kind: Kind) -> None:
    async def run() -> None:
        async with kind.tree() as tree:
            writer, reader = await tree.connect(), await tree.connect()
            first = await writer.multi([Create("/a", b"one"), Create("/a/b", b"two")])
            second = await writer.multi([Set("/a/b", b"three", 0)])
            assert second > first
            await reader.sync()
            node = await reader.read("/a/b")
            assert node is not None
            assert (node.value, node.version) == (b"three", 1)
            assert (node.created, node.modified) == (first, second)
            assert await reader.read("/a/c") is None

    asyncio.run(run())


def test_children_and_tree_take_exactly_what_lies_below(kind: Kind) -> None:
    async def run() -> None:
        async with kind.tree() as tree:
            store = await tree.connect()
            paths = ["/a", "/a/b", "/a/b/c", "/a/d", "/a-b", "/a-b/x", "/a0", "/ab"]
            await store.multi([Create(path, path.encode()) for path in paths])
            assert await store.children("/a") == ["b", "d"]
            assert await store.children("/") == ["a", "a-b", "a0", "ab"]
            assert await store.children("/a/d") == []
            assert await store.children("/nothing") == []
            assert set(await store.tree("/a")) == {"/a", "/a/b", "/a/b/c", "/a/d"}
            assert set(await store.tree("/a/b/c")) == {"/a/b/c"}
            assert set(await store.tree("/nothing")) == set()
            everything = await store.tree("/")
            assert {path: node.value for path, node in everything.items()} == {
                path: path.encode() for path in paths
            }

    asyncio.run(run())


@pytest.mark.parametrize(
    ("operations", "index", "reason"),
    [
        ([Create("/a", b"")], 0, R.NODE_EXISTS),
        ([Create("/x", b""), Create("/x", b"")], 1, R.NODE_EXISTS),
        ([Create("/x/y", b"")], 0, R.NO_PARENT),
        ([Create("/mine/child", b"")], 0, R.EPHEMERAL_PARENT),
        ([Set("/x", b"")], 0, R.NO_NODE),
        ([Set("/a", b"", 1)], 0, R.BAD_VERSION),
        ([Set("/a", b"", 0), Set("/a", b"", 0)], 1, R.BAD_VERSION),
        ([Delete("/x")], 0, R.NO_NODE),
        ([Delete("/a", 0)], 0, R.NOT_EMPTY),
        ([Delete("/a/b", 3)], 0, R.BAD_VERSION),
        ([Check("/x")], 0, R.NO_NODE),
        ([Check("/a", 7)], 0, R.BAD_VERSION),
        ([Create("/x", b""), Delete("/a/b"), Check("/a", 1)], 2, R.BAD_VERSION),
    ],
)
def test_a_refused_transaction_names_its_operation_and_does_nothing(
    kind: Kind, operations: Sequence[Operation], index: int, reason: ConflictReason
) -> None:
    async def run() -> None:
        async with kind.tree() as tree:
            store = await tree.connect()
            await store.multi([Create("/a", b""), Create("/a/b", b"")])
            await store.multi([Create("/mine", b"", ephemeral=True)])
            before = await store.tree("/")
            with pytest.raises(Conflict) as raised:
                await store.multi(operations)
            assert (raised.value.index, raised.value.reason) == (index, reason)
            assert raised.value.operation == operations[index]
            assert await store.tree("/") == before
            # The refusal left no open transaction behind.
            await store.multi([Check("/a", 0), Delete("/a/b", 0), Delete("/a")])

    asyncio.run(run())


def test_ephemeral_nodes_go_with_their_session_and_no_other(kind: Kind) -> None:
    async def run() -> None:
        async with kind.tree() as tree:
            first, second = await tree.connect(), await tree.connect()
            assert second.session != first.session
            await first.multi([Create("/first", b"", ephemeral=True), Create("/lasting", b"")])
            await second.multi([Create("/second", b"", ephemeral=True)])
            node = await second.read("/second")
            assert node is not None and node.session == second.session
            told: list[SessionState] = []
            second.watch_session(told.append)
            events: list[WatchEvent] = []
            first.watch("/second", events.append)
            await first.sync()
            await second.close()
            await until(lambda: bool(events))
            assert told == [SessionState.LOST]
            await first.sync()
            assert await first.children("/") == ["first", "lasting"]
            with pytest.raises(SessionExpired):
                await second.read("/lasting")
            await second.close()

    asyncio.run(run())


def test_a_watch_tells_of_the_node_and_of_children_that_come_and_go(kind: Kind) -> None:
    async def run() -> None:
        async with kind.tree() as tree:
            store, other = await tree.connect(), await tree.connect()
            await store.multi([Create("/a", b""), Create("/ab", b"")])
            events: list[WatchEvent] = []
            cancel = store.watch("/a", events.append)
            steps: list[list[Operation]] = [
                [Set("/a", b"x")],
                [Create("/a/b", b""), Set("/ab", b"x"), Check("/a")],
                [Delete("/a/b")],
                [Delete("/a")],
                [Create("/a", b"again")],
            ]
            for step in steps:
                await store.sync()
                events.clear()
                await other.multi(step)
                await until(lambda: bool(events))
                assert {event.path for event in events} == {"/a"}
            cancel()
            await store.sync()
            events.clear()
            await other.multi([Set("/a", b"y")])
            await store.sync()
            assert events == []

    asyncio.run(run())


def test_revisions_rise_and_the_created_one_names_an_incarnation(kind: Kind) -> None:
    async def run() -> None:
        async with kind.tree() as tree:
            created: list[int] = []
            for _ in range(3):
                store = await tree.connect()
                revision = await store.multi([Create("/mine", b"", ephemeral=True)])
                node = await store.read("/mine")
                assert node is not None and node.created == revision
                created.append(node.created)
                await store.close()
            assert created == sorted(set(created))

    asyncio.run(run())


def test_a_transaction_above_the_bound_is_refused_and_one_at_it_is_done(kind: Kind) -> None:
    async def run() -> None:
        async with kind.tree() as tree:
            store = await tree.connect()
            with pytest.raises(TransactionTooLarge):
                await store.multi([Create("/a", bytes(TRANSACTION_BYTES_MAX))])
            await store.multi([Create("/a", bytes(TRANSACTION_BYTES_MAX - 1024))])
            node = await store.read("/a")
            assert node is not None and len(node.value) == TRANSACTION_BYTES_MAX - 1024

    asyncio.run(run())


def test_of_two_writers_with_one_version_one_is_refused(kind: Kind) -> None:
    async def run() -> None:
        async with kind.tree() as tree:
            first, second = await tree.connect(), await tree.connect()
            await first.multi([Create("/a", b"")])
            await second.sync()
            outcomes = await asyncio.gather(
                *(store.multi([Set("/a", b"x", 0)]) for store in (first, second)),
                return_exceptions=True,
            )
            assert {type(each) for each in outcomes} == {Conflict, int}

    asyncio.run(run())
