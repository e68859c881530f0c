"""A network between nodes: connections with delay, cuts in one or both directions, and resets.

It is a network of streams, as TCP gives them: bytes arrive in order and whole, or not yet, or the
connection breaks. A lost packet is a delay. While a link is cut, what is sent waits at the sender,
who does not notice; when it heals, all of it arrives, late: requests of long ago among it. A node
that crashes resets its connections, unless the link is cut: then the other side holds half a
connection until the link heals.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tidelog.host.clock import Clock
from tidelog.host.network import Gate
from tidelog.testing.simulation.nodes import Node, SimulatedLoop, current_node

P = TypeVar("P", bound=asyncio.BaseProtocol)

_HIGH_WATER: Final = 64 * 1024
_WINDOW: Final = 64 * 1024
_CONNECT_TIMEOUT_S: Final = 60.0
WORLD_HOST: Final = "world"


@dataclass(slots=True)
class Link:
    """One direction between two hosts."""

    delay_s: tuple[float, float] = (0.0001, 0.002)
    is_cut: bool = False
    # Held back until the link heals: called again then.
    waiting: list[Callable[[], None]] = field(default_factory=list)


class SimulatedNetwork:
    """All hosts, their listening ports, and the links between them."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._links: dict[tuple[str, str], Link] = {}
        self._listening: dict[tuple[str, int], SimulatedAcceptor] = {}
        self._transports: dict[str, list[SimulatedTransport]] = {}
        self._next_port = 20_000

    def link(self, source: str, target: str) -> Link:
        return self._links.setdefault((source, target), Link())

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from one host to another, until `heal`."""
        self.link(source, target).is_cut = True

    def heal(self, source: str, target: str) -> None:
        link = self.link(source, target)
        link.is_cut = False
        waiting, link.waiting = link.waiting, []
        for send in waiting:
            send()

    def heal_all(self) -> None:
        for source, target in tuple(self._links):
            self.heal(source, target)

    def crash(self, host: str) -> None:
        """The host's connections break, and its ports are closed."""
        for address in [each for each in self._listening if each[0] == host]:
            del self._listening[address]
        for transport in self._transports.pop(host, []):
            transport.vanish()

    # -- what brokers use -------------------------------------------------------------------------

    def acceptor(self, name: str, gate: Gate, clock: Clock) -> SimulatedAcceptor:
        """A port of the current node."""
        node = current_node()
        assert node is not None, "only nodes listen"
        return SimulatedAcceptor(self, node, gate)

    async def connect(self, factory: Callable[[], P], host: str, port: int) -> P:
        """Connect as the current node; OSError as a real network would give it."""
        node = current_node()
        source = node.name if node is not None else WORLD_HOST
        await self._passes(source, host)
        acceptor = self._listening.get((host, port))
        if acceptor is None or not acceptor.is_serving:
            await self._passes(host, source)
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._next_port += 1
        near = SimulatedTransport(self, (source, self._next_port), node)
        far = SimulatedTransport(self, (host, port), acceptor.node)
        near.peer, far.peer = far, near
        if not acceptor.accept(far, source):
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        await self._passes(host, source)
        protocol = factory()
        near.open(protocol)
        return protocol

    async def _passes(self, source: str, target: str) -> None:
        """Return when something sent now has arrived; OSError after the time of a connect."""
        arrived: asyncio.Future[None] = self._loop.create_future()

        def arrive() -> None:
            if not arrived.done():
                arrived.set_result(None)

        self.send(source, target, arrive)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await arrived
        except TimeoutError:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None

    def listen(self, acceptor: SimulatedAcceptor, host: str, port: int) -> int:
        if not port:
            self._next_port += 1
            port = self._next_port
        if (host, port) in self._listening:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._listening[host, port] = acceptor
        return port

    def stop_listening(self, host: str, port: int) -> None:
        self._listening.pop((host, port), None)

    def add(self, transport: SimulatedTransport) -> None:
        self._transports.setdefault(transport.host, []).append(transport)

    def remove(self, transport: SimulatedTransport) -> None:
        others = self._transports.get(transport.host, [])
        if transport in others:
            others.remove(transport)

    def send(self, source: str, target: str, deliver: Callable[[], object]) -> None:
        """Have something happen at the target after the link's delay, or once it heals."""
        link = self.link(source, target)

        def on_the_way() -> None:
            if link.is_cut:
                link.waiting.append(on_the_way)
            else:
                # The network belongs to no node: what is under way survives its sender.
                delay = self._loop.chance.uniform(*link.delay_s)
                self._loop.call_at(self._loop.time() + delay, arrive, context=_OUTSIDE)

        def arrive() -> None:
            if link.is_cut:
                link.waiting.append(arrive)
            else:
                deliver()

        on_the_way()


class SimulatedAcceptor:
    """A listening port, with the methods of `server/acceptor.Acceptor`."""

    def __init__(self, network: SimulatedNetwork, node: Node, gate: Gate) -> None:
        self._network = network
        self._gate = gate
        self.host = node.name
        self.node = node
        self.is_serving = False
        self.port = 0
        self.refused = 0

    async def bind(self, host: str, port: int) -> None:
        self.port = self._network.listen(self, self.host, port)

    def serve(self, backlog: int) -> None:
        self.is_serving = True

    def close(self) -> None:
        self.is_serving = False
        self._network.stop_listening(self.host, self.port)

    async def wait_closed(self) -> None:
        """Connections are handed over at once."""

    def accept(self, transport: SimulatedTransport, source: str) -> bool:
        if self._gate.refusal(source) is not None:
            self.refused += 1
            return False
        transport.open(self.node.run(self._gate.opened, source))
        return True


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, network: SimulatedNetwork, address: tuple[str, int], node: Node | None
    ) -> None:
        super().__init__()
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._node = node
        self.address = address
        self.peer: SimulatedTransport
        self._protocol: Any = None
        self._closing = False
        self._gone = False
        self._reading = True
        self._writing_paused = False
        # Sent, and not yet taken by the other side.
        self._unsent: deque[bytes] = deque()
        self._in_flight = 0
        self._high_water = _HIGH_WATER
        # The links deliver in any order; what arrived too early waits for what was sent before it.
        self._sent = 0
        self._received = 0
        self._early: dict[int, bytes | None] = {}
        # Arrived, and not yet taken by the protocol; None is the end.
        self._arrived: deque[bytes | None] = deque()
        self._is_pumping = False

    # -- asyncio's interface ----------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self.peer.address
        return self.address if name == "sockname" else default

    @property
    def host(self) -> str:
        return self.address[0]

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: Any) -> None:
        if self._closing or self._gone:
            return
        chunk = bytes(data)
        if chunk:
            self._unsent.append(chunk)
            self._send()
            if self.get_write_buffer_size() > self._high_water and not self._writing_paused:
                self._writing_paused = True
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(bytes(data) for data in list_of_data))

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._unsent))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_water = _HIGH_WATER if high is None else high

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._pump()

    def is_reading(self) -> bool:
        return self._reading

    def close(self) -> None:
        """Send what was written, then end."""
        if self._closing:
            return
        self._closing = True
        if not self._unsent:
            self._end(None)

    def abort(self) -> None:
        self._closing = True
        self._unsent.clear()
        self._end(None)

    # -- the way of a byte ------------------------------------------------------------------------

    def open(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._network.add(self)
        self._as_node(protocol.connection_made, self)

    def _send(self) -> None:
        while self._unsent and self._in_flight < _WINDOW:
            chunk = self._unsent.popleft()
            self._in_flight += len(chunk)
            self._put_on_the_way(chunk)

    def _put_on_the_way(self, chunk: bytes | None) -> None:
        number, self._sent = self._sent, self._sent + 1
        peer = self.peer
        self._network.send(self.host, self.peer.host, lambda: peer.arrive(number, chunk))

    def arrive(self, number: int, chunk: bytes | None) -> None:
        if self._gone:
            if chunk is not None:
                # Nobody is there: the sender learns of it.
                self._network.send(self.host, self.peer.host, self.peer.reset)
            return
        self._early[number] = chunk
        while self._received in self._early:
            self._arrived.append(self._early.pop(self._received))
            self._received += 1
        self._pump()

    def _pump(self) -> None:
        if not self._is_pumping and self._arrived and self._reading and not self._gone:
            self._is_pumping = True
            self._soon(self._take)

    def _take(self) -> None:
        self._is_pumping = False
        if self._gone or not self._reading or not self._arrived:
            return
        chunk = self._arrived.popleft()
        if chunk is None:
            if not self._protocol.eof_received():
                self.close()
            return
        self._network.send(self.host, self.peer.host, lambda: self.peer.acknowledged(len(chunk)))
        self._give(chunk)
        self._pump()

    def _give(self, chunk: bytes) -> None:
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.data_received(chunk)
            return
        view = memoryview(chunk)
        while view and not self._gone:
            room = memoryview(self._protocol.get_buffer(-1))
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self._protocol.buffer_updated(count)
            view = view[count:]
            if view and not self._reading:
                self._arrived.appendleft(bytes(view))
                return

    def acknowledged(self, count: int) -> None:
        self._in_flight -= count
        if self._gone:
            return
        self._soon(self._drained)

    def _drained(self) -> None:
        if self._gone:
            return
        self._send()
        if self._writing_paused and self.get_write_buffer_size() <= self._high_water // 4:
            self._writing_paused = False
            self._protocol.resume_writing()
        if self._closing and not self._unsent:
            self._end(None)

    # -- the end ----------------------------------------------------------------------------------

    def reset(self) -> None:
        """The other side says that there is no such connection."""
        if not self._gone:
            self._closing = True
            self._end(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def vanish(self) -> None:
        """The host is gone: its kernel resets the connection, as far as the link lets it."""
        self._gone = True
        self._network.send(self.host, self.peer.host, self.peer.reset)

    def _end(self, error: Exception | None) -> None:
        if self._gone:
            return
        self._gone = True
        self._network.remove(self)
        if error is None:
            self._put_on_the_way(None)
        self._soon(self._protocol.connection_lost, error)

    def _soon(self, function: Callable[..., object], *args: object) -> None:
        """On the loop, as the node to which this end belongs, unless that is gone."""
        if self._node is None:
            self._loop.call_soon(function, *args, context=_OUTSIDE)
        elif not self._node.is_gone:
            self._node.run(self._loop.call_soon, function, *args)

    def _as_node(self, function: Callable[..., Any], *args: object) -> Any:
        return function(*args) if self._node is None else self._node.run(function, *args)


# The context of what belongs to no node.
_OUTSIDE = contextvars.Context()
