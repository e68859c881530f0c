"""The store over a Unix socket, on the event loop that brokers use."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import tempfile
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.unit.store.helpers import opened
from tidelog.errors import StorageError
from tidelog.server.process import new_event_loop
from tidelog.store import served
from tidelog.store.database import Database
from tidelog.store.port import ConnectionLoss, Create, SessionState
from tidelog.store.remote import connect_remote
from tidelog.store.served import StoreServer


def test_a_socket_that_was_removed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "_LOOK_S", 0.01)
    path = tmp_path / "store.sock"

    async def run() -> None:
        async with opened(tmp_path) as store:
            server = StoreServer(store, str(path), lease_s=5.0)
            await server.start()
            before = await connect_remote(str(path))
            path.unlink()
            while not path.exists():
                await asyncio.sleep(0.01)
            after = await connect_remote(str(path))
            await after.multi([Create("/a", b"1")])
            assert await before.children("/") == ["a"], "sessions that were there go on"
            await before.close()
            await after.close()
            await server.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(run(), 10))


def test_a_broker_on_uvloop_uses_a_served_store(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as store:
            server = StoreServer(store, str(tmp_path / "store.sock"), lease_s=5.0)
            await server.start()
            session = await connect_remote(str(tmp_path / "store.sock"))
            await session.multi([Create("/a", b"1")])
            assert await store.children("/") == ["a"]
            await session.close()
            await server.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


def test_whoever_gives_up_waiting_for_a_session_leaves_no_connection(tmp_path: Path) -> None:
    async def run() -> None:
        ended = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            ended.set()

        server = await asyncio.start_unix_server(silent, tmp_path / "store.sock")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connect_remote(str(tmp_path / "store.sock")), 0.05)
        await asyncio.wait_for(ended.wait(), 10)
        server.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


def test_what_a_client_wrote_before_it_was_killed_is_told_to_the_others(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as store:
            server = StoreServer(store, str(tmp_path / "store.sock"), lease_s=5.0)
            await server.start()
            watcher = await connect_remote(str(tmp_path / "store.sock"))
            told = asyncio.Event()
            watcher.watch("/", lambda event: told.set())
            await watcher.sync()
            killed = await connect_remote(str(tmp_path / "store.sock"))
            writing = asyncio.ensure_future(killed.multi([Create("/a", b"1")]))
            # The server has begun to do it when its connection goes.
            while not store._shared.database._connection.in_transaction and not told.is_set():
                await asyncio.sleep(0)
            killed._transport.abort()
            await asyncio.wait([writing])
            writing.exception()
            await told.wait()
            await watcher.close()
            await server.close()

    asyncio.run(asyncio.wait_for(run(), 10))


def test_a_session_that_the_server_cannot_go_on_with_is_ended_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client would wait for answers for the time of a lease."""

    def rotten(self: Database, path: str) -> None:
        raise StorageError("a node fails its checksum")

    monkeypatch.setattr(Database, "read", rotten)

    async def run() -> None:
        async with opened(tmp_path) as store:
            server = StoreServer(store, str(tmp_path / "store.sock"), lease_s=3600.0)
            await server.start()
            session = await connect_remote(str(tmp_path / "store.sock"))
            with pytest.raises(ConnectionLoss):
                await session.read("/a")
            assert session.session_state is SessionState.LOST
            await server.close()

    asyncio.run(asyncio.wait_for(run(), 10))


def test_a_client_that_is_silent_for_a_lease_loses_its_session(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as store:
            server = StoreServer(store, str(tmp_path / "store.sock"), lease_s=0.2)
            await server.start()
            session = await connect_remote(str(tmp_path / "store.sock"))
            await session.multi([Create("/mine", b"", ephemeral=True)])
            assert session._timer is not None
            # As a process that is stopped: its socket stays open, and nothing is sent.
            session._timer.cancel()
            lost, gone = asyncio.Event(), asyncio.Event()
            session.watch_session(lambda state: lost.set())
            store.watch("/", lambda event: gone.set())
            await lost.wait()
            assert session.session_state is SessionState.LOST
            await gone.wait()
            assert await store.children("/") == []
            await server.close()

    asyncio.run(asyncio.wait_for(run(), 10))


_AS_ANOTHER_USER = """
import os, socket, sys
os.setuid(65534)
client = socket.socket(socket.AF_UNIX)
try:
    client.connect(sys.argv[1])
    print("connected", len(client.recv(1)))
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.root
@pytest.mark.parametrize("is_open", [False, True])
def test_another_user_gets_no_session(is_open: bool) -> None:
    """The mode of the socket keeps others out, and the kernel tells who comes in all the same."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "store.sock")

        async def run() -> str:
            async with opened(Path(directory)) as store:
                server = StoreServer(store, path, lease_s=5.0)
                await server.start()
                assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
                if is_open:
                    os.chmod(directory, 0o755)
                    os.chmod(path, 0o666)
                arguments = [sys.executable, "-c", _AS_ANOTHER_USER, path]
                process = await asyncio.create_subprocess_exec(*arguments, stdout=PIPE)
                said, _ = await process.communicate()
                assert not server.connections
                await server.close()
                return said.decode().strip()

        said = asyncio.run(run())
        assert said in (["connected 0", "ConnectionResetError"] if is_open else ["PermissionError"])
