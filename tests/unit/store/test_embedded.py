"""What is the embedded store's alone; test_conformance.py has the promises of every store."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.store.helpers import FILE, open_store, opened
from tidelog.errors import StorageError
from tidelog.store import database
from tidelog.store.port import (
    ConnectionLoss,
    Create,
    Operation,
    SessionExpired,
    SessionState,
    Set,
    StoreFull,
    WatchEvent,
)


def test_a_node_is_read_back_after_reopening(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as store:
            first = await store.multi([Create("/a", b"one"), Create("/a/b", b"two")])
            second = await store.multi([Set("/a/b", b"three", 0)])
        assert second == first + 1
        async with opened(tmp_path) as store:
            node = await store.read("/a/b")
            assert node is not None
            assert (node.value, node.version, node.created, node.modified) == (
                b"three",
                1,
                first,
                second,
            )
            assert await store.read("/a/c") is None

    asyncio.run(run())


def test_revisions_rise_over_restarts_so_broker_epochs_do(tmp_path: Path) -> None:
    async def run() -> list[int]:
        created = []
        for _ in range(3):
            async with opened(tmp_path) as store:
                await store.multi([Create("/mine", b"", ephemeral=True)])
                node = await store.read("/mine")
                assert node is not None and node.session == store.session
                created.append(node.created)
        return created

    created = asyncio.run(run())
    assert created == sorted(set(created))


def test_ephemeral_nodes_go_with_their_session_and_no_other(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as first:
            second = await first.new_session()
            assert second.session != first.session
            await first.multi([Create("/first", b"", ephemeral=True), Create("/lasting", b"")])
            await second.multi([Create("/second", b"", ephemeral=True)])
            told: list[SessionState] = []
            second.watch_session(told.append)
            events: list[WatchEvent] = []
            first.watch("/second", events.append)
            await second.expire()
            assert told == [SessionState.LOST]
            assert [event.path for event in events] == ["/second"]
            assert await first.children("/") == ["first", "lasting"]
            with pytest.raises(SessionExpired):
                await second.read("/lasting")
            await second.close()
            assert await first.children("/") == ["first", "lasting"]

    asyncio.run(run())


def test_ephemeral_nodes_of_a_killed_process_are_gone_at_the_next_start(tmp_path: Path) -> None:
    async def run() -> None:
        store = await open_store(tmp_path)
        await store.multi([Create("/mine", b"", ephemeral=True), Create("/lasting", b"")])
        # What a SIGKILL leaves: the lock is free, the log is not folded in.
        for name in (FILE, FILE + "-wal"):
            (tmp_path / "copy").mkdir(exist_ok=True)
            (tmp_path / "copy" / name).write_bytes((tmp_path / name).read_bytes())
        await store.close()
        async with opened(tmp_path / "copy") as reopened:
            assert await reopened.children("/") == ["lasting"]

    asyncio.run(run())


def test_nothing_of_the_store_runs_on_the_loops_thread(tmp_path: Path) -> None:
    async def run() -> None:
        threads: set[int] = set()
        original = database.Database.multi

        def recording(
            self: database.Database, operations: Sequence[Operation], session: int
        ) -> int:
            threads.add(threading.get_ident())
            return original(self, operations, session)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(database.Database, "multi", recording)
            async with opened(tmp_path) as store:
                await store.multi([Create("/a", b"")])
        assert len(threads) == 1
        assert threading.get_ident() not in threads

    asyncio.run(run())


class _FailingConnection:
    """Passes everything on, but fails the next commit."""

    def __init__(self, real: sqlite3.Connection, error_code: int) -> None:
        self._real = real
        self._error_code = error_code

    @property
    def in_transaction(self) -> bool:
        return self._real.in_transaction

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
        if sql == "COMMIT" and self._error_code:
            error = sqlite3.OperationalError("injected")
            error.sqlite_errorcode = self._error_code
            self._error_code = 0
            raise error
        return self._real.execute(sql, parameters)

    def close(self) -> None:
        self._real.close()


def test_a_full_disk_refuses_the_transaction_and_the_next_one_succeeds(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as store:
            inner = store._shared.database
            real = inner._connection
            inner._connection = _FailingConnection(real, sqlite3.SQLITE_FULL)  # type: ignore[assignment]
            with pytest.raises(StoreFull, match=FILE):
                await store.multi([Create("/a", b"")])
            assert await store.read("/a") is None
            await store.multi([Create("/a", b"")])
            assert store.session_state is SessionState.CONNECTED

    asyncio.run(run())


def test_a_failing_disk_makes_the_outcome_unknown_and_ends_every_session(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as store:
            other = await store.new_session()
            told: list[SessionState] = []
            other.watch_session(told.append)
            inner = store._shared.database
            code = sqlite3.SQLITE_IOERR_FSYNC
            inner._connection = _FailingConnection(inner._connection, code)  # type: ignore[assignment]
            with pytest.raises(ConnectionLoss):
                await store.multi([Create("/a", b"")])
            assert told == [SessionState.LOST]
            with pytest.raises(SessionExpired):
                await store.multi([Create("/a", b"")])

    asyncio.run(run())


def test_a_full_disk_does_not_keep_a_store_from_closing(tmp_path: Path) -> None:
    async def run() -> None:
        store = await open_store(tmp_path)
        await store.multi([Create("/mine", b"", ephemeral=True)])
        inner = store._shared.database
        inner._connection = _FailingConnection(inner._connection, sqlite3.SQLITE_FULL)  # type: ignore[assignment]
        await store.close()
        async with opened(tmp_path) as reopened:
            assert await reopened.children("/") == []

    asyncio.run(run())


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"missing/metadata\.db"):
        asyncio.run(open_store(tmp_path / "missing"))
    (tmp_path / FILE).mkdir()
    with pytest.raises(StorageError, match=r"metadata\.db cannot be"):
        asyncio.run(open_store(tmp_path))


def test_a_second_opening_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path):
            with pytest.raises(StorageError, match=r"metadata\.db is in use by another process"):
                await open_store(tmp_path)
        async with opened(tmp_path) as store:
            assert await store.children("/") == []

    asyncio.run(run())
