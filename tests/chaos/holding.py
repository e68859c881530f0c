"""A proxy before a broker that keeps a request back, as a slow network does, and delivers it later.

It passes on whole requests. The first that is asked for is kept, and the connection that it came on
is cut, so that the sender asks again on another one; what was kept may arrive at any time after.
`watch` is called with every request that comes.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

_SECONDS = 30.0


@dataclass(slots=True)
class Hold:
    """The first request of this API that has these bytes in it, wherever it goes."""

    api_key: int
    marked: bytes = b""
    frame: bytes = b""
    kept: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def takes(self, frame: bytes) -> bool:
        (api_key,) = struct.unpack_from(">h", frame)
        with self._lock:
            if self.kept.is_set() or api_key != self.api_key or self.marked not in frame:
                return False
            self.frame = frame
            self.kept.set()
            return True

    def deliver(self, address: tuple[str, int]) -> bytes:
        """Send it to a broker at last, on a connection of its own; what that answers."""
        assert self.kept.is_set(), "no such request came"
        with socket.create_connection(address, _SECONDS) as connection:
            connection.sendall(struct.pack(">i", len(self.frame)) + self.frame)
            answer = _frame(connection)
        assert answer is not None, "the broker closed the connection"
        return answer


class HoldingProxy:
    """Before one broker, at an address of its own; `hold` is what it keeps back."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.hold: Hold | None = None
        self.watch: Callable[[bytes], None] = lambda frame: None
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # A thread that waits for connections wakes up by this alone.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            answers = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
            answers.start()
            while (frame := _frame(client)) is not None:
                self.watch(frame)
                if self.hold is not None and self.hold.takes(frame):
                    break
                server.sendall(struct.pack(">i", len(frame)) + frame)
            for each in (server, client):
                each.shutdown(socket.SHUT_RDWR)
            answers.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def _frame(source: socket.socket) -> bytes | None:
    """The next request or answer without its length; None at the end."""
    head = _exactly(source, 4)
    return None if head is None else _exactly(source, struct.unpack(">i", head)[0])


def _exactly(source: socket.socket, count: int) -> bytes | None:
    received = bytearray()
    while len(received) < count:
        piece = source.recv(count - len(received))
        if not piece:
            return None
        received += piece
    return bytes(received)
