"""The store over a Unix socket, on the event loop that brokers use."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.unit.store.helpers import opened
from tidelog.server.process import new_event_loop
from tidelog.store import served
from tidelog.store.port import Create
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
