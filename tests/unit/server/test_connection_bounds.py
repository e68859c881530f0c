"""Bounds of connections that a hostile client runs into."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.server.middle import Middle
from tidelog.config import BrokerConfig
from tidelog.protocol.messages.heartbeat import HeartbeatResponse
from tidelog.testing.virtual_loop import virtual_time

HANDLERS: dict[str, Any] = {"Heartbeat": lambda *_: HeartbeatResponse()}
FRAME_BYTES = 200_000


async def feed(made: Middle, piece_bytes: int) -> float:
    """Send a frame in a piece for each half second; how long the connection stays open."""
    peer = made.connect()
    peer.send(FRAME_BYTES.to_bytes(4, "big"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    sent = 0
    while not peer.is_closed and sent + piece_bytes < FRAME_BYTES and loop.time() - began < 60:
        peer.send(bytes(piece_bytes))
        sent += piece_bytes
        await asyncio.sleep(0.5)
        made.listener.sweep(loop.time())
    if not peer.is_closed:
        peer.connection.connection_lost(None)
    return loop.time() - began


@virtual_time
async def test_x27_a_frame_that_comes_byte_by_byte_closes_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Middle(monkeypatch, HANDLERS)
    assert await feed(made, 1) < 3, "though it never pauses for as long as it may"
    assert await feed(made, 400) < 3
    assert await feed(made, 5_000) > 18, "slow, and faster than it must be"
    assert made.listener._arriving == {}


@virtual_time
async def test_x27_bounds_that_are_altered_count_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Middle(monkeypatch, HANDLERS).listener
    for count in (2, 1):
        opened = [listener.opened("10.0.0.1") for _ in range(count)]
        config = BrokerConfig(dynamic={"max.connections.per.ip": str(count)})
        assert listener.refusal("10.0.0.1") is None
        listener.configure(config)
        assert listener.refusal("10.0.0.1") == f"max.connections.per.ip={count} reached"
        assert listener.refusal("10.0.0.2") is None
        for connection in opened:
            listener.forget(connection)
