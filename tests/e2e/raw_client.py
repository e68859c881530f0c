"""A bare socket that speaks the protocol, for tests that must control every byte."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any

from tidelog.protocol.apis import api
from tidelog.protocol.framing import decode_response, encode_request


class RawClient:
    """Sends requests and reads answers, in whatever order the test says."""

    def __init__(self, servers: str, *, receive_buffer_bytes: int | None = None) -> None:
        host, _, port = servers.rpartition(":")
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(30)
        self.socket.connect((host, int(port)))
        self._sent: dict[int, tuple[Any, int]] = {}
        self._next = 0

    def encode(self, name: str, version: int, message: object) -> bytes:
        self._next += 1
        self._sent[self._next] = (api(name), version)
        parts = encode_request(api(name), version, self._next, "raw", message)
        return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]

    def send(self, name: str, version: int, message: object) -> None:
        self.socket.sendall(self.encode(name, version, message))

    def receive_frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._read(4))
        return self._read(length)

    def receive(self) -> tuple[int, Any]:
        """The next answer: its correlation id and message."""
        frame = self.receive_frame()
        (correlation_id,) = struct.unpack_from(">i", frame)
        found, version = self._sent.pop(correlation_id)
        return decode_response(found, version, frame)

    def call(self, name: str, version: int, message: object) -> Any:
        self.send(name, version, message)
        return self.receive()[1]

    def is_closed(self) -> bool:
        """Wait for the other side to close; False where it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()

    def _read(self, count: int) -> bytes:
        pieces = []
        while count:
            piece = self.socket.recv(min(count, 1 << 20))
            if not piece:
                raise ConnectionResetError("closed by the broker")
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
