"""What stands between sockets and handlers: handlers of the test, and a peer in memory."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.cluster.image import MetadataImage
from tidelog.protocol.apis import api
from tidelog.protocol.framing import decode_response, encode_request
from tidelog.security.authorizer import OpenAuthorizer
from tidelog.server import dispatch
from tidelog.server.answer_memory import AnswerMemory
from tidelog.server.audit_log import AuditLog, AuditSettings
from tidelog.server.connection import Connection
from tidelog.server.connection_counts import ConnectionCounts
from tidelog.server.dispatch import Dispatcher
from tidelog.server.frontend import Frontend, Limits
from tidelog.server.listener import Listener, ListenerAddress
from tidelog.server.listener_security import OPEN, ListenerSecurity
from tidelog.server.metrics import BrokerMetrics
from tidelog.server.outbox import ScratchBuffer
from tidelog.server.pieces import Turns
from tidelog.server.request_memory import RequestMemory
from tidelog.server.routes import Handler, Route
from tidelog.server.throttling import Throttling
from tidelog.server.tools import (
    ClusterTools,
    DataTools,
    DiskTools,
    GroupTools,
    RequestTools,
    SaslTools,
    TransactionTools,
)
from tidelog.testing.virtual_loop import virtual_host

FRAME_BYTES_MAX = 1 << 20
REQUESTS_MAX = 3


class Middle:
    """A dispatcher whose APIs are served by handlers of the test, and a listener in front of it."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        handlers: Mapping[str, Handler | Route],
        security: ListenerSecurity = OPEN,
    ) -> None:
        self._handlers = dict(handlers)

        def resolve(name: str) -> Route:
            found = self._handlers[name]
            return found if isinstance(found, Route) else Route(found)

        monkeypatch.setattr(dispatch, "route", resolve)
        self.host = virtual_host()
        self.turns = Turns()
        self.metrics = BrokerMetrics()
        self.answer_memory = AnswerMemory()
        self.throttling = Throttling(self.host.clock)
        metadata: Any = SimpleNamespace(image=MetadataImage())
        self.metadata = metadata
        shared = RequestTools(
            self.host.clock,
            OpenAuthorizer(),
            metadata,
            self.turns,
            self.answer_memory,
            self.metrics,
            AuditLog(None, self.host, 0, AuditSettings()),
            self.throttling,
        )
        families = (DataTools, DiskTools, TransactionTools, SaslTools, GroupTools, ClusterTools)
        self.dispatcher = Dispatcher(shared, [object.__new__(each) for each in families])
        limits = Limits(
            frame_bytes_max=FRAME_BYTES_MAX,
            requests_in_flight_max=REQUESTS_MAX,
            connections_max=10,
            connections_per_address_max=10,
            connections_per_address={},
            connections_per_user_max=3,
            idle_ms_max=-1,
            first_byte_ms_max=1_000,
            frame_ms_max=1_000,
        )
        frontend = Frontend(
            limits,
            self.dispatcher,
            RequestMemory(4 * FRAME_BYTES_MAX, FRAME_BYTES_MAX),
            ScratchBuffer(),
            self.host.clock,
            self.host.offload,
            self.host.network,
            self.metrics,
            self.throttling,
        )
        address = ListenerAddress("PLAINTEXT", "127.0.0.1", 0)
        self.listener = Listener(address, frontend, ConnectionCounts(), security)

    def serve(self, name: str, route: Route) -> None:
        """Serve an API otherwise; before it is first asked for."""
        self._handlers[name] = route

    def connect(self) -> Peer:
        return Peer(self.listener.opened("127.0.0.1"))


class MemoryTransport(asyncio.Transport):
    """Holds what is written until it is read, and asks for a pause as a real transport does."""

    def __init__(self, protocol: Any) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.protocol = protocol
        self.writes: list[int] = []
        self.received = bytearray()
        self.is_reading = True
        self.is_closed = False
        self.held_max = 0
        # As they were written, not copied: a buffer must stay as it is until the peer has it.
        self._held: list[memoryview] = []
        self._high = 64 * 1024
        self._is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.writes.append(len(data))
        if self.is_reading:
            self.received += data
        else:
            self._held.append(memoryview(data))
        self.held_max = max(self.held_max, self.get_write_buffer_size())
        self._pause_if_full()

    def read(self, count: int = 1 << 30) -> None:
        """The peer takes some of what waits for it."""
        while self._held and count:
            taken = self._held[0][:count]
            self.received += taken
            count -= len(taken)
            self._held[0] = self._held[0][len(taken) :]
            if not self._held[0]:
                del self._held[0]
        if self._is_paused and self.get_write_buffer_size() <= self._high // 4:
            self._is_paused = False
            self.protocol.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high = high
        self._pause_if_full()

    def _pause_if_full(self) -> None:
        if self.get_write_buffer_size() > self._high and not self._is_paused:
            self._is_paused = True
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._held))

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close


class Peer(MemoryTransport):
    """The client at the other end of a connection."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.connection = connection
        self._sent: dict[int, tuple[str, int]] = {}
        connection.connection_made(self)

    def ask(self, number: int, name: str, version: int, message: object) -> None:
        self.send(self.frame(number, name, version, message))

    def frame(self, number: int, name: str, version: int, message: object) -> bytes:
        self._sent[number] = (name, version)
        parts = encode_request(api(name), version, number, "peer", message)
        return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self.is_closed:
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(view))
            assert count, "the connection is not read, and its buffer is full"
            room[:count] = view[:count]
            del room
            self.connection.buffer_updated(count)
            view = view[count:]

    def exchange(self, token: bytes) -> bytes:
        """Send a message of SASL as it is; the answer to it, empty while there is none."""
        before = len(self.received)
        self.send(struct.pack(">i", len(token)) + token)
        return bytes(self.received[before + 4 :])

    def frames(self) -> list[bytes]:
        """The whole answers that were received."""
        found, left = [], bytes(self.received)
        while len(left) >= 4:
            (length,) = struct.unpack_from(">i", left)
            found.append(left[4 : 4 + length])
            left = left[4 + length :]
        return found

    @property
    def answered(self) -> list[int]:
        """The numbers of the requests that were answered, in the order of the answers."""
        return [int.from_bytes(frame[:4], "big") for frame in self.frames()]

    def answer(self, number: int) -> Any:
        frame = self.frames()[self.answered.index(number)]
        name, version = self._sent[number]
        return decode_response(api(name), version, frame)[1]


async def turns_of_the_loop(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
