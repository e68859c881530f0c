"""A TLS connection in the place of a plain socket, for the blocking shell.

What would wait is a `BlockingIOError`, as with a socket that does not block. `pending` says how
much is decrypted and not read yet: the operating system knows nothing of that.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Final

# What fits into one record of TLS; smaller parts are joined to it.
_RECORD_BYTES: Final = 16 << 10


class TlsStream:
    """See the module's docstring; the handshake is done when this is built."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._stream = context.wrap_socket(plain, server_hostname=host)

    def fileno(self) -> int:
        return self._stream.fileno()

    def setblocking(self, flag: bool, /) -> None:
        self._stream.setblocking(flag)

    def pending(self) -> int:
        return self._stream.pending()

    def sendmsg(self, parts: Sequence[memoryview], /) -> int:
        """Write some of the parts; how many bytes.

        Called again after a BlockingIOError it must begin with the same bytes, as OpenSSL wants.
        """
        data: memoryview | bytes = parts[0]
        if parts[0].nbytes < _RECORD_BYTES and len(parts) > 1:
            size, count = 0, 0
            while count < len(parts) and size < _RECORD_BYTES:
                size += parts[count].nbytes
                count += 1
            data = b"".join(parts[:count])
        try:
            return self._stream.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def recv(self, size: int, /) -> bytes:
        try:
            return self._stream.recv(size)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def recv_into(self, buffer: memoryview, /) -> int:
        try:
            return self._stream.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def last_words(self, error: OSError) -> OSError:
        """Why the peer closed, where it said so before a write failed; else `error` itself."""
        try:
            self._stream.recv(1)
        except ssl.SSLEOFError:
            return error
        except OSError as said:
            return said
        return error

    def close(self) -> None:
        self._stream.close()
