"""Accepting connections: counted before they cost anything, and never for the last time.

The servers of the event loops count a connection after it was accepted, and uvloop's closes its
listening socket for good where `accept` fails for want of descriptors. So we accept ourselves: a
connection beyond a limit is closed at once, and after a failure the socket is left alone for a
moment, while the kernel keeps those who wait. Refusals are logged at a rate.

With TLS a connection is counted before its handshake, and handed over after it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl

from tidelog.host.clock import Clock
from tidelog.host.line_rate import LineRate
from tidelog.host.network import (
    TLS_FAREWELL_SECONDS,
    TLS_HANDSHAKE_SECONDS,
    Gate,
    TlsSource,
    no_tls,
)
from tidelog.host.tls_alerts import accepted

_log = logging.getLogger(__name__)

# How many are accepted before others get their turn on the loop.
_ACCEPTED_AT_ONCE = 32
_REST_SECONDS = 0.1


class RefusalLog:
    """Lines about refusals, at a rate."""

    def __init__(self, what: str, name: str, clock: Clock) -> None:
        self._what = what
        self._name = name
        self._rate = LineRate(clock)

    def refused(self, peer: str, reason: str) -> None:
        count = self._rate.count()
        if count:
            _log.warning(
                "%s listener=%s count=%d last_peer=%s reason=%s",
                self._what, self._name, count, peer, reason,
            )  # fmt: skip


class SocketAcceptor:
    """The listening sockets of one address."""

    def __init__(self, name: str, gate: Gate, clock: Clock, tls: TlsSource = no_tls) -> None:
        self._gate = gate
        self._tls = tls
        self._handshakes = RefusalLog("TLS handshakes failed", name, clock)
        self._refusals = RefusalLog("connections refused", name, clock)
        self._sockets: list[socket.socket] = []
        self._opening: set[asyncio.Task[None]] = set()
        # Those of them that wait for their peers.
        self._handshaking: set[asyncio.Task[None]] = set()
        self._rest: asyncio.TimerHandle | None = None
        self.refused = 0

    @property
    def port(self) -> int:
        port: int = self._sockets[0].getsockname()[1]
        return port

    async def bind(self, host: str, port: int) -> None:
        """Take the port, without accepting yet; OSError where it is taken."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        unsupported: OSError | None = None
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                try:
                    stream = socket.socket(family, kind, protocol)
                except OSError as error:
                    if error.errno != errno.EAFNOSUPPORT:
                        raise
                    # Names resolve to IPv6 addresses even where the kernel has no IPv6.
                    unsupported = error
                    continue
                self._sockets.append(stream)
                stream.setblocking(False)
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    stream.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                # Where port 0 takes a free one, every address gets the same.
                stream.bind((address[0], port or self.port, *address[2:]))
            if unsupported is not None and not self._sockets:
                raise unsupported
        except OSError as error:
            self._close_sockets()
            reason = error.strerror or str(error)
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {reason}") from error

    def serve(self, backlog: int) -> None:
        """Begin to accept."""
        for stream in self._sockets:
            stream.listen(backlog)
        self._resume()

    def close(self) -> None:
        """Accept no more; connections that are open stay so."""
        if self._rest is not None:
            self._rest.cancel()
        else:
            self._pause()
        self._close_sockets()
        for task in self._handshaking:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return once every connection that was accepted has been handed over."""
        while self._opening:
            await asyncio.wait(self._opening)

    def _resume(self) -> None:
        self._rest = None
        loop = asyncio.get_running_loop()
        for stream in self._sockets:
            loop.add_reader(stream, self._accept, stream)

    def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        for stream in self._sockets:
            loop.remove_reader(stream)

    def _close_sockets(self) -> None:
        for stream in self._sockets:
            stream.close()
        self._sockets.clear()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                stream, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No descriptors or no memory, as a rule: those who wait are kept by the kernel.
                self._refusals.refused("?", f"cannot accept: {error.strerror or error}")
                self._pause()
                self._rest = asyncio.get_running_loop().call_later(_REST_SECONDS, self._resume)
                return
            reason = self._gate.refusal(address[0])
            if reason is not None:
                stream.close()
                self.refused += 1
                self._refusals.refused(f"{address[0]}:{address[1]}", reason)
                continue
            stream.setblocking(False)
            connection = self._gate.opened(address[0])
            tls = self._tls()
            opening = (
                self._open(connection, stream)
                if tls is None
                else self._shake_hands(connection, stream, tls)
            )
            task = asyncio.get_running_loop().create_task(opening)
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
            if tls is not None:
                self._handshaking.add(task)
                task.add_done_callback(self._handshaking.discard)

    async def _shake_hands(
        self, connection: asyncio.BaseProtocol, stream: socket.socket, tls: ssl.SSLContext
    ) -> None:
        host = _host_of(stream)
        accepted.set(stream)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                stream,
                ssl=tls,
                ssl_handshake_timeout=TLS_HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=TLS_FAREWELL_SECONDS,
            )
        except BaseException as error:
            stream.close()
            self._gate.forget(connection)
            if not isinstance(error, Exception):
                raise
            self._handshakes.refused(host, str(error) or type(error).__name__)

    async def _open(self, connection: asyncio.BaseProtocol, stream: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: connection, stream)
        except Exception as error:
            stream.close()
            self._gate.forget(connection)
            _log.warning("connection not opened error=%s", error)


def _host_of(stream: socket.socket) -> str:
    try:
        return str(stream.getpeername()[0])
    except OSError:
        return "?"
