"""What the store in memory does wrong when it is asked to."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.store.port import ConnectionLoss, Create, SessionExpired, SessionState, WatchEvent
from tidelog.testing.memory_store import MemoryTree
from tidelog.testing.virtual_loop import virtual_time


@virtual_time
async def test_a_session_that_ends_while_out_of_reach_is_lost_only_on_return() -> None:
    tree = MemoryTree()
    store, other = await tree.connect(), await tree.connect()
    await store.multi([Create("/mine", b"", ephemeral=True)])
    states: list[SessionState] = []
    store.watch_session(states.append)
    store.suspend()
    with pytest.raises(ConnectionLoss):
        await store.read("/mine")
    store.expire_unseen()
    assert await other.read("/mine") is None
    assert states == [SessionState.SUSPENDED]
    store.resume()
    assert states == [SessionState.SUSPENDED, SessionState.LOST]
    with pytest.raises(SessionExpired):
        await store.read("/mine")


@virtual_time
async def test_a_connection_that_comes_back_counts_as_a_change() -> None:
    tree = MemoryTree()
    store, other = await tree.connect(), await tree.connect()
    events: list[WatchEvent] = []
    store.watch("/seen", events.append)
    store.suspend()
    await other.multi([Create("/seen", b"")])
    assert events == []
    store.resume()
    assert [event.path for event in events] == ["/seen"]


@virtual_time
async def test_a_dead_owner_is_told_nothing_and_its_session_lives_on() -> None:
    tree = MemoryTree()
    store, other = await tree.connect(), await tree.connect()
    await store.multi([Create("/mine", b"", ephemeral=True)])
    told: list[object] = []
    store.watch("/mine", told.append)
    store.watch_session(told.append)
    store.abandon()
    await asyncio.sleep(1)
    assert await other.read("/mine") is not None
    store.expire_unseen()
    assert await other.read("/mine") is None
    assert told == []
