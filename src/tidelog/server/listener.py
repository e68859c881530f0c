"""A listening address: accepts connections within the limits, sweeps and drains them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.server.connection import Connection

if TYPE_CHECKING:
    from tidelog.server.context import Services

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ListenerAddress:
    """A listener as configured: its name, where it binds, and what it tells clients."""

    name: str
    host: str
    port: int
    advertised: tuple[str, int] | None = None
    is_inter_broker: bool = False


class ConnectionCounts:
    """Connections of all listeners together, in all and per address."""

    def __init__(self) -> None:
        self.total = 0
        self.per_address: Counter[str] = Counter()


class Listener:
    """One bound address and its connections."""

    def __init__(
        self, address: ListenerAddress, services: Services, counts: ConnectionCounts
    ) -> None:
        self.name = address.name
        self.address = address
        self.is_inter_broker = address.is_inter_broker
        self.services = services
        self.connections: set[Connection] = set()
        self._counts = counts
        self._server: asyncio.Server | None = None
        self._emptied = asyncio.Event()
        self.port = address.port

    async def bind(self, backlog: int) -> None:
        """Take the port, without accepting yet: the broker must be ready first."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self),
            self.address.host or None,
            self.address.port,
            backlog=backlog,
            start_serving=False,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def serve(self) -> None:
        assert self._server is not None
        await self._server.start_serving()

    def admit(self, connection: Connection) -> bool:
        """Count a new connection, or say why there is no room for it."""
        counts, limits = self._counts, self.services.limits
        host = connection.peer.rpartition(":")[0]
        if counts.total >= limits.connections_max:
            reason = f"max.connections={limits.connections_max} reached"
        elif counts.per_address[host] >= limits.per_address(host):
            reason = f"max.connections.per.ip={limits.per_address(host)} reached"
        else:
            counts.total += 1
            counts.per_address[host] += 1
            self.connections.add(connection)
            self.services.metrics.connections_opened += 1
            return True
        self.services.metrics.connections_refused += 1
        _log.warning("connection refused peer=%s reason=%s", connection.peer, reason)
        return False

    def forget(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        host = connection.peer.rpartition(":")[0]
        self._counts.total -= 1
        self._counts.per_address[host] -= 1
        if self._counts.per_address[host] <= 0:
            del self._counts.per_address[host]
        if not self.connections:
            self._emptied.set()

    def sweep(self, now: float) -> None:
        """Close what is idle or stalled past its deadline; give back unused memory."""
        limits = self.services.limits
        for connection in tuple(self.connections):
            quiet_ms = (now - connection.last_active_at) * 1000
            if connection.bytes_received == 0:
                if quiet_ms > limits.first_byte_ms_max:
                    connection.close(f"no byte within {limits.first_byte_ms_max} ms")
            elif connection.is_receiving_frame and quiet_ms > limits.frame_ms_max:
                connection.close(f"frame unfinished for {limits.frame_ms_max} ms")
            elif connection.delays_others(now):
                connection.close("its frame keeps others waiting for memory")
            elif quiet_ms > limits.idle_ms_max:
                connection.close(f"idle for {limits.idle_ms_max} ms")
            elif quiet_ms > 1000:
                connection.shrink_if_idle()

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()

    async def drain(self, deadline: float) -> None:
        """Answer what was asked before `deadline` (of the loop), then close everything."""
        for connection in tuple(self.connections):
            connection.drain()
        if self.connections:
            self._emptied.clear()
            timeout = max(0.0, deadline - asyncio.get_running_loop().time())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), timeout)
        for connection in tuple(self.connections):
            connection.close("not drained in time", level=logging.WARNING)
        if self._server is not None:
            await self._server.wait_closed()
