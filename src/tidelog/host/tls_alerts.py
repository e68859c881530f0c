"""TLS alerts: a client whose handshake is refused learns why.

The event loops close the connection without sending what OpenSSL has to say. Clients then take a
certificate that was refused for a broker that is down, and try again for ever.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from contextvars import ContextVar
from typing import Any, Final, cast

# The connection whose handshake the current task waits for.
accepted: ContextVar[socket.socket | None] = ContextVar("accepted", default=None)

# What the client has sent after the message that was refused: unread, it would make the kernel
# reset the connection, and the alert might be lost.
_UNREAD_BYTES_MAX: Final = 1 << 16


class _Tls(ssl.SSLObject):
    """Sends the alert of a refused handshake."""

    outgoing: ssl.MemoryBIO
    stream: socket.socket | None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            self._send_alert()
            raise
        self.stream = None

    def _send_alert(self) -> None:
        alert = self.outgoing.read()
        if self.stream is not None and alert:
            with contextlib.suppress(OSError):
                self.stream.send(alert)
                self.stream.recv(_UNREAD_BYTES_MAX)


class ListeningContext(ssl.SSLContext):
    """The context of one who listens; `accepted` names the connection of each handshake."""

    sslobject_class = _Tls

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *arguments: Any, **options: Any
    ) -> ssl.SSLObject:
        made = cast(_Tls, super().wrap_bio(incoming, outgoing, *arguments, **options))
        made.outgoing, made.stream = outgoing, accepted.get()
        return made
