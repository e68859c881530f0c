"""A broker's end of connections, on any network: answers as a test says, or holds its answers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tests.unit.client.helpers import Peer, Respond
from tidelog.cluster.image import Endpoint
from tidelog.host.host import Host
from tidelog.protocol.framing import RequestHeader


class ScriptedBroker:
    """Listens at one address; `respond` gives the answer to each request."""

    def __init__(self, respond: Respond, delay_s: float = 0.0) -> None:
        self.respond = respond
        self.delay_s = delay_s
        self.connections: list[ScriptedConnection] = []
        # While False, answers are made and kept.
        self.answers_now = True

    async def listen(self, host: Host, address: str = "127.0.0.1") -> Endpoint:
        self._acceptor = host.network.acceptor("test", self, host.clock)
        await self._acceptor.bind(address, 0)
        self._acceptor.serve(16)
        return Endpoint("BROKER", address, self._acceptor.port)

    async def close(self) -> None:
        self._acceptor.close()
        await self._acceptor.wait_closed()
        for connection in self.connections:
            connection.transport.abort()

    def answer_held(self) -> None:
        """Send what was kept, and keep nothing more."""
        self.answers_now = True
        for connection in self.connections:
            connection.answer_held()

    @property
    def requests(self) -> list[tuple[RequestHeader, Any]]:
        """Everything that was asked, ApiVersions left out."""
        asked = [each for connection in self.connections for each in connection.peer.requests]
        return [each for each in asked if each[0].api_key != 18]

    # -- the gate ---------------------------------------------------------------------------------

    def refusal(self, host: str) -> str | None:
        return None

    def opened(self, host: str) -> asyncio.BaseProtocol:
        self.connections.append(ScriptedConnection(self))
        return self.connections[-1]

    def forget(self, connection: asyncio.BaseProtocol) -> None:
        pass


class ScriptedConnection(asyncio.Protocol):
    """One connection to a scripted broker."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self.peer = Peer(broker.respond)
        self.held: list[bytes] = []
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True

    def data_received(self, data: bytes) -> None:
        output = self.peer.answers(data)
        if self._broker.delay_s:
            asyncio.get_running_loop().call_later(self._broker.delay_s, self._answer, output)
        else:
            self._answer(output)

    def _answer(self, output: bytes) -> None:
        self.held.append(output)
        if self._broker.answers_now:
            self.answer_held()

    def answer_held(self) -> None:
        while self.held:
            self.answer_next()

    def answer_next(self) -> None:
        """Send the oldest answer that was kept."""
        output = self.held.pop(0)
        if output and not self.transport.is_closing():
            self.transport.write(output)
