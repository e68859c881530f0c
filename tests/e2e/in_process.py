"""A broker in the event loop of the test, and connections that go nowhere.

Nothing runs beside the broker, so that what it does between two turns of the loop can be counted.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidelog.config import load
from tidelog.host.host import system_host
from tidelog.protocol.apis import api
from tidelog.protocol.framing import decode_response, encode_request
from tidelog.server.broker import Broker
from tidelog.server.connection import Connection
from tidelog.server.listener import ConnectionCounts, Listener, ListenerAddress
from tidelog.server.parts import Parts


class InProcessBroker:
    """Runs from `async with` to its end."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        overrides = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory),
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        self._broker = Broker(load(overrides=overrides), system_host("broker", 2))

    async def __aenter__(self) -> InProcessBroker:
        await self._broker.start()
        address = ListenerAddress("PLAINTEXT", "127.0.0.1", 0)
        self._listener = Listener(address, self._broker.parts.frontend, ConnectionCounts())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._broker.stop(drain=False)

    @property
    def parts(self) -> Parts:
        return self._broker.parts

    def connect(self) -> RawConnection:
        return RawConnection(self._listener)


class RawConnection(asyncio.Transport):
    """A connection of the broker, and the client at the other end of it."""

    def __init__(self, listener: Listener) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.client_id = "raw"
        self._answer = bytearray()
        self._answered = asyncio.Event()
        self.is_closed = False
        self._is_paused = False
        self._unread_bytes = 0
        self.connection = Connection(listener)
        self.connection.connection_made(self)

    def encode(self, name: str, version: int, message: object) -> bytes:
        parts = encode_request(api(name), version, 1, self.client_id, message)
        return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]

    async def call(self, name: str, version: int, message: object) -> Any:
        await self.ask(self.encode(name, version, message))
        return self.decode(name, version)

    def decode(self, name: str, version: int) -> Any:
        """The last answer."""
        return decode_response(api(name), version, bytes(self._answer[4:]))[1]

    @property
    def last_answer(self) -> bytes:
        return bytes(self._answer)

    async def ask(self, frame: bytes) -> int:
        """Send a request and wait for its answer or the end of the connection; its bytes."""
        self.send(frame)
        await self._answered.wait()
        return len(self._answer)

    def send(self, frame: bytes) -> None:
        self._answer.clear()
        self._answered.clear()
        view = memoryview(frame)
        while view and not self.is_closed:
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(view))
            room[:count] = view[:count]
            del room
            self.connection.buffer_updated(count)
            view = view[count:]

    def stop_reading(self) -> None:
        """Be a client that does not read its answers."""
        self._unread_bytes = 1
        self.connection.pause_writing()

    # -- the transport that the broker writes to ------------------------------------------------

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self._unread_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._answer += data
        if len(self._answer) >= 4:
            (length,) = struct.unpack_from(">i", self._answer)
            if len(self._answer) >= 4 + length:
                self._answered.set()

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._answered.set()
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    abort = close
