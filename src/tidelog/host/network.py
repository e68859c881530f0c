"""The seam for the network: who listens, and who connects to whom.

What flows over a connection is asyncio's: protocols and transports. Clients of other processes are
not behind this seam; brokers reach each other through it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from tidelog.host.clock import Clock

P = TypeVar("P", bound=asyncio.BaseProtocol)

# What new connections of a listener are secured with; None for a listener without TLS.
TlsSource = Callable[[], ssl.SSLContext | None]
# How long a peer has for the handshake of TLS, and for the farewell.
TLS_HANDSHAKE_SECONDS: Final = 10.0
TLS_FAREWELL_SECONDS: Final = 2.0


def no_tls() -> None:
    """For a listener without TLS."""


class Gate(Protocol):
    """Decides who comes in, and speaks with those who do."""

    def refusal(self, host: str) -> str | None:
        """Why an address may not have another connection; None where it may."""
        ...

    def opened(self, host: str) -> asyncio.BaseProtocol:
        """A protocol for a new connection, counted from here on."""
        ...

    def forget(self, connection: asyncio.BaseProtocol) -> None:
        """The connection is gone; a second call does nothing."""
        ...


class Acceptor(Protocol):
    """A listening address."""

    # How many connections were refused at the gate.
    refused: int

    @property
    def port(self) -> int: ...

    async def bind(self, host: str, port: int) -> None:
        """Take the port, without accepting yet; OSError where it is taken."""
        ...

    def serve(self, backlog: int) -> None:
        """Begin to accept."""
        ...

    def close(self) -> None:
        """Accept no more; connections that are open stay so."""
        ...

    async def wait_closed(self) -> None:
        """Return once every connection that was accepted has been handed over."""
        ...


class Network(Protocol):
    """Where connections come from and go to."""

    def acceptor(self, name: str, gate: Gate, clock: Clock, tls: TlsSource = no_tls) -> Acceptor:
        """An address to be bound; `name` labels its lines in the log."""
        ...

    async def connect(
        self, factory: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> P:
        """A connection to another broker; OSError where there is none to be had."""
        ...


class SystemNetwork:
    """The sockets of the operating system, on the running event loop."""

    def acceptor(self, name: str, gate: Gate, clock: Clock, tls: TlsSource = no_tls) -> Acceptor:
        from tidelog.host.acceptor import SocketAcceptor

        return SocketAcceptor(name, gate, clock, tls)

    async def connect(
        self, factory: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> P:
        loop = asyncio.get_running_loop()
        if tls is None:
            _, protocol = await loop.create_connection(factory, host, port)
        else:
            _, protocol = await loop.create_connection(
                factory,
                host,
                port,
                ssl=tls,
                ssl_handshake_timeout=TLS_HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=TLS_FAREWELL_SECONDS,
            )
        return protocol
