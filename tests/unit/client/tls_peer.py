"""A broker's end behind TLS, on a thread: as much of one as a handshake and metadata need."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from typing import Self

from tests.unit.client.helpers import Peer, Respond
from tidelog.errors import ProtocolError


class TlsPeer:
    """Serves one connection after another; `context` None is plaintext."""

    def __init__(self, context: ssl.SSLContext | None, respond: Respond) -> None:
        self._context = context
        self._respond = respond
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listening.accept()
            except OSError:
                return
            with plain:
                plain.settimeout(10)
                try:
                    self._talk(plain)
                except (OSError, ProtocolError):
                    continue

    def _talk(self, plain: socket.socket) -> None:
        if self._context is None:
            answer(plain.recv, plain.sendall, self._respond)
            return
        with self._context.wrap_socket(plain, server_side=True) as stream:
            answer(stream.recv, stream.sendall, self._respond)


def answer(
    receive: Callable[[int], bytes], send: Callable[[bytes], None], respond: Respond
) -> None:
    """Answer until the client closes."""
    peer = Peer(respond)
    while data := receive(1 << 16):
        send(peer.answers(data))
