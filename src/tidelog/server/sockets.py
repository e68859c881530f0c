"""What a connection asks of its socket."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.server.frontend import Limits


def address_of(peername: object) -> str:
    """Host and port of a peer, for the log."""
    if isinstance(peername, tuple) and len(peername) >= 2:
        return f"{peername[0]}:{peername[1]}"
    return str(peername)


def size_buffers(transport: asyncio.BaseTransport, limits: Limits) -> None:
    """Give the socket buffers of the sizes that were asked for, if any were."""
    if limits.send_buffer_bytes < 0 and limits.receive_buffer_bytes < 0:
        return
    stream = transport.get_extra_info("socket")
    for option, size in (
        (socket.SO_SNDBUF, limits.send_buffer_bytes),
        (socket.SO_RCVBUF, limits.receive_buffer_bytes),
    ):
        if size >= 0:
            stream.setsockopt(socket.SOL_SOCKET, option, size)
