"""Requests and answers over a plain socket, one at a time, and what their bytes are made of."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

TIMEOUT_S = 40.0
Address = tuple[str, int]


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def array(items: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(">" + layout, self.data, self.position)
        self.position += struct.calcsize(">" + layout)
        return values

    def raw(self, length: int) -> bytes:
        start = self.position
        self.position += length
        return self.data[start : self.position]

    def string(self) -> str | None:
        (length,) = self.take("h")
        return None if length < 0 else self.raw(length).decode()

    def varint(self) -> int:
        zigzag = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            zigzag |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (zigzag >> 1) ^ -(zigzag & 1)

    def sized(self) -> bytes | None:
        length = self.varint()
        return None if length < 0 else self.raw(length)

    def ints(self) -> tuple[int, ...]:
        (count,) = self.take("i")
        return self.take(f"{count}i")


class Connection:
    """To one broker, opened on first use."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._socket: socket.socket | None = None
        self._correlation_id = 0

    def connect(self) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self.address, TIMEOUT_S)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(self, api_key: int, version: int, body: bytes) -> Reader:
        self.connect()
        try:
            return self._call(api_key, version, body)
        except OSError:
            # What is still to come of the answer must not be taken for the next one.
            self.close()
            raise

    def _call(self, api_key: int, version: int, body: bytes) -> Reader:
        assert self._socket is not None
        self._correlation_id += 1
        header = struct.pack(">hhi", api_key, version, self._correlation_id)
        message = header + string("tidelog-compat") + body
        self._socket.sendall(struct.pack(">i", len(message)) + message)
        (size,) = struct.unpack(">i", self._exactly(4))
        reader = Reader(self._exactly(size))
        assert reader.take("i") == (self._correlation_id,), "answers came out of order"
        return reader

    def _exactly(self, count: int) -> bytes:
        assert self._socket is not None
        received = bytearray()
        while len(received) < count:
            piece = self._socket.recv(count - len(received))
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            received += piece
        return bytes(received)
