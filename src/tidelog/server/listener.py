"""A listening address: keeps its connections within the limits, sweeps and drains them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tidelog.config.broker_config import BrokerConfig
from tidelog.host.acceptor import RefusalLog
from tidelog.host.line_rate import LineRate
from tidelog.security.authorizer import Principal
from tidelog.server.audit_connections import record_failed_login
from tidelog.server.configured import connection_limits
from tidelog.server.connection import Connection
from tidelog.server.connection_counts import ConnectionCounts
from tidelog.server.listener_security import OPEN, ListenerSecurity

if TYPE_CHECKING:
    from tidelog.server.frontend import Frontend

_log = logging.getLogger(__name__)

# From the beginning, or the handshake, to the last message of SASL.
_AUTHENTICATION_SECONDS_MAX = 10.0
# How slowly the rest of a frame may come.
_BYTES_PER_SECOND_MIN = 1024


@dataclass(slots=True)
class ListenerAddress:
    """A listener as configured: its name, where it binds, and what it tells clients."""

    name: str
    host: str
    port: int
    advertised: tuple[str, int] | None = None


class Listener:
    """One bound address and its connections."""

    def __init__(
        self,
        address: ListenerAddress,
        frontend: Frontend,
        counts: ConnectionCounts,
        security: ListenerSecurity = OPEN,
    ) -> None:
        self.name = address.name
        self.security = security
        self.address = address
        self.frontend = frontend
        # In the order in which they came.
        self.connections: dict[Connection, None] = {}
        # Those whose address opens them too fast, until they are there to be closed.
        self._late: dict[Connection, float] = {}
        # Those with half a frame: since when, and how much they had sent by then.
        self._arriving: dict[Connection, tuple[float, int]] = {}
        self._counts = counts
        self._acceptor = frontend.network.acceptor(address.name, self, frontend.clock, security.tls)
        self._drops = RefusalLog("slow requests dropped", address.name, frontend.clock)
        self._unread = RefusalLog("unread answers dropped", address.name, frontend.clock)
        self._strangers = RefusalLog("authentications failed", address.name, frontend.clock)
        # Of lines about requests that closed their connection.
        self.refusals = LineRate(frontend.clock)
        self._stopping = False
        # What the bounds were taken of last.
        self._config: BrokerConfig | None = None
        frontend.throttling.on_timing.append(self._time_requests)
        self._emptied = asyncio.Event()
        self.port = address.port

    def _time_requests(self, is_timed: bool) -> None:
        for connection in self.connections:
            connection.is_timed = is_timed

    async def bind(self) -> None:
        """Take the port, without accepting yet: the broker must be ready first."""
        await self._acceptor.bind(self.address.host, self.address.port)
        self.port = self._acceptor.port

    def serve(self, backlog: int) -> None:
        self._acceptor.serve(backlog)

    def refusal(self, host: str) -> str | None:
        """Why there is no room for another connection of that address, or None."""
        counts, limits = self._counts, self.frontend.limits
        if counts.total >= limits.connections_max:
            reason = f"max.connections={limits.connections_max} reached"
        elif counts.per_address[host] >= limits.per_address(host):
            reason = f"max.connections.per.ip={limits.per_address(host)} reached"
        else:
            return None
        self.frontend.metrics.connections_refused += 1
        return reason

    def user_refusal(self, connection: Connection, principal: Principal) -> str | None:
        """Why a user that has proved its name may not have another connection, or None."""
        counts, limit = self._counts, self.frontend.limits.connections_per_user_max
        if principal.is_broker or counts.has_user(connection):
            return None
        if counts.per_user[principal.name] >= limit:
            self.frontend.metrics.connections_refused += 1
            return f"{principal.name} has max.connections.per.user={limit} connections already"
        counts.add_user(connection, principal.name)
        return None

    def opened(self, host: str) -> Connection:
        connection = Connection(self)
        delay_s = self.frontend.throttling.connected(host)
        if delay_s:
            self._late[connection] = delay_s
        self._counts.add(connection, host)
        self.frontend.metrics.connections_opened += 1
        return connection

    def connected(self, connection: Connection) -> bool:
        """False where no connection is wanted any more."""
        delay_s = self._late.pop(connection, 0.0)
        if not self._stopping:
            self.connections[connection] = None
            if delay_s:
                # As in Kafka it is kept for a moment: its client does not come again at once.
                connection.close_later(delay_s, "its address opens connections too fast")
        return not self._stopping

    def forget(self, connection: asyncio.BaseProtocol) -> None:
        if not self._counts.remove(connection):
            return
        self.connections.pop(cast(Connection, connection), None)
        self._late.pop(cast(Connection, connection), None)
        self._arriving.pop(cast(Connection, connection), None)
        if not self.connections:
            self._emptied.set()

    def frame_dropped(self, connection: Connection) -> None:
        self.frontend.metrics.frames_dropped += 1
        self._drops.refused(connection.peer, "others waited for the memory they held")

    def answer_dropped(self, connection: Connection) -> None:
        self._unread.refused(connection.peer, "others waited for the memory they held")

    def authentication_failed(self, connection: Connection, reason: str) -> None:
        self.frontend.metrics.authentications_failed += 1
        self._strangers.refused(connection.peer, reason)
        record_failed_login(self.frontend.dispatcher.audit, connection, reason)

    def configure(self, config: BrokerConfig) -> None:
        """Take up settings that were altered while the broker runs."""
        self.security.refresh(config)
        if config is not self._config:
            self._config = config
            self.frontend.limits = connection_limits(config)

    def sweep(self, now: float) -> None:
        """Close what is idle or stalled past its deadline; give back unused memory."""
        limits = self.frontend.limits
        for connection in tuple(self.connections):
            if connection.is_muted:
                continue
            quiet_ms = (now - connection.last_active_at) * 1000
            if connection.is_unproven_for(now) > _AUTHENTICATION_SECONDS_MAX:
                connection.close("not authenticated in time")
            elif connection.bytes_received == 0:
                if quiet_ms > limits.first_byte_ms_max:
                    connection.close(f"no byte within {limits.first_byte_ms_max} ms")
            elif connection.is_receiving_frame and quiet_ms > limits.frame_ms_max:
                connection.close(f"frame unfinished for {limits.frame_ms_max} ms")
            elif connection.login is not None and not connection.login.is_current():
                connection.close("its user was deleted or has another password")
            elif self._trickles(connection, now):
                connection.close(f"less than {_BYTES_PER_SECOND_MIN} bytes of a frame a second")
            elif 0 <= limits.idle_ms_max < quiet_ms:
                connection.close(f"idle for {limits.idle_ms_max} ms")
            elif quiet_ms > 1000:
                connection.shrink_if_idle()

    def _trickles(self, connection: Connection, now: float) -> bool:
        """Whether a peer keeps a frame open with a byte now and then."""
        if not connection.is_receiving:
            self._arriving.pop(connection, None)
            return False
        since, received = self._arriving.setdefault(connection, (now, connection.bytes_received))
        if (now - since) * 1000 <= self.frontend.limits.frame_ms_max:
            return False
        del self._arriving[connection]
        return connection.bytes_received - received < (now - since) * _BYTES_PER_SECOND_MIN

    def stop_accepting(self) -> None:
        self._stopping = True
        self._acceptor.close()
        self.security.close()

    async def drain(self, deadline: float) -> None:
        """Answer what was asked before `deadline` (of the loop), then close everything."""
        await self._acceptor.wait_closed()
        for connection in tuple(self.connections):
            connection.drain()
        if self.connections:
            self._emptied.clear()
            timeout = max(0.0, deadline - asyncio.get_running_loop().time())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), timeout)
        for connection in tuple(self.connections):
            connection.close("not drained in time", level=logging.WARNING)
            connection.abort()
