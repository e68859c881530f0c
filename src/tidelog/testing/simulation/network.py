"""A network between nodes: connections with delay, cuts in one or both directions, and resets.

It is a network of streams, as TCP gives them: bytes arrive in order and whole, or not yet, or the
connection breaks. A lost packet is a delay. While a link is cut, what is sent waits at the sender,
who does not notice; when it heals, all of it arrives, late: old requests among it. A process
that is killed resets its connections, unless the link is cut: then the other side holds half a
connection until the link heals. A machine without power resets nothing: it answers again, with a
reset, once it is back.

A schedule may `hold` the next message of a kind, a Fetch or the answer to one: it and all that
follows it on its connection arrive when the hold is released.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tidelog.host.clock import Clock
from tidelog.host.network import Gate
from tidelog.testing.simulation.frames import Frames
from tidelog.testing.simulation.nodes import OUTSIDE, Node, SimulatedLoop, current_node

P = TypeVar("P", bound=asyncio.BaseProtocol)

_HIGH_WATER: Final = 64 * 1024
_WINDOW: Final = 64 * 1024
_CONNECT_TIMEOUT_S: Final = 60.0
# How long a sender waits before it sends again what was lost.
_RESEND_S: Final = (0.2, 1.5)
_DELAY_S: Final = (0.0001, 0.002)
WORLD_HOST: Final = "world"


@dataclass(slots=True)
class Link:
    """One direction between two hosts."""

    delay_s: tuple[float, float] = _DELAY_S
    is_cut: bool = False
    # How many of a hundred packets are lost, and so come late.
    loss: float = 0.0
    # Held back until the link heals: called again then.
    waiting: list[Callable[[], None]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Hold:
    """Keeps back the next message of one API, a request or an answer, from or to one host."""

    api: int
    is_answer: bool
    host: str | None = None
    is_over: bool = False
    caught: int = 0
    _waiting: list[Callable[[], None]] = field(default_factory=list)

    def catches(self, apis: list[int], is_answer: bool, hosts: tuple[str, str]) -> bool:
        return (
            not self.is_over
            and not self.caught
            and self.is_answer == is_answer
            and self.api in apis
            and (self.host is None or self.host in hosts)
        )

    def keep(self, send: Callable[[], None]) -> None:
        self.caught += 1
        self._waiting.append(send)

    def release(self) -> None:
        self.is_over = True
        waiting, self._waiting = self._waiting, []
        for send in waiting:
            send()


class SimulatedNetwork:
    """All hosts, their listening ports, and the links between them."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._links: dict[tuple[str, str], Link] = {}
        self._listening: dict[tuple[str, int], SimulatedAcceptor] = {}
        self._transports: dict[str, list[SimulatedTransport]] = {}
        self._next_port = 20_000
        self._holds: list[Hold] = []
        # Hosts without power, and those who wait for an answer of theirs.
        self._dark: dict[str, list[Callable[[], None]]] = {}

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
        for link in self._links.values():
            link.loss, link.delay_s = 0.0, _DELAY_S
        for hold in tuple(self._holds):
            self.release(hold)

    def hold(self, hold: Hold) -> Hold:
        """Keep back what the hold catches, until `release`."""
        self._holds.append(hold)
        return hold

    def release(self, hold: Hold) -> None:
        if hold in self._holds:
            self._holds.remove(hold)
        hold.release()

    def catching(self, apis: list[int], is_answer: bool, hosts: tuple[str, str]) -> Hold | None:
        """The hold that catches a message."""
        for hold in self._holds:
            if hold.catches(apis, is_answer, hosts):
                return hold
        return None

    @property
    def is_watched(self) -> bool:
        return bool(self._holds)

    def crash(self, host: str, *, silent: bool = False) -> None:
        """The host's connections break, and its ports are closed; `silent` where its power goes."""
        for address in [each for each in self._listening if each[0] == host]:
            del self._listening[address]
        if silent:
            self._dark.setdefault(host, [])
        for transport in self._transports.pop(host, []):
            transport.vanish(silent=silent)

    def light(self, host: str) -> None:
        """The host has power again: those who wrote to it meanwhile get their resets."""
        for answer in self._dark.pop(host, []):
            answer()

    def is_dark(self, host: str) -> bool:
        return host in self._dark

    def answer_when_lit(self, host: str, answer: Callable[[], None]) -> None:
        self._dark[host].append(answer)

    def break_connections(self, one: str, other: str) -> int:
        """Reset the connections between two hosts; how many there were."""
        broken = [each for each in self._transports.get(one, []) if each.peer.host == other]
        for transport in broken:
            transport.reset()
            self.send(one, other, transport.peer.reset)
        return len(broken)

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
        if host in self._dark:
            # Nobody answers, not even with a refusal.
            await asyncio.sleep(_CONNECT_TIMEOUT_S)
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        acceptor = self._listening.get((host, port))
        if acceptor is None or not acceptor.is_serving:
            await self._passes(host, source)
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._next_port += 1
        near = SimulatedTransport(self, (source, self._next_port), node)
        far = SimulatedTransport(self, (host, port), acceptor.node)
        near.peer, far.peer = far, near
        near.frames = far.frames = Frames()
        far.is_server = True
        # The kernel answers; the process takes the connection when it next runs.
        self.add(far)
        self.add(near)
        acceptor.node.run(self._loop.call_soon, acceptor.accept, far, source)
        try:
            await self._passes(host, source)
            if near.is_gone or far.is_gone:
                raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        except BaseException:
            near.refuse()
            raise
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
                chance = self._loop.chance
                delay = chance.uniform(*link.delay_s)
                if link.loss and chance.random() < link.loss:
                    delay += chance.uniform(*_RESEND_S)
                self._loop.later(delay, arrive)

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

    def accept(self, transport: SimulatedTransport, source: str) -> None:
        """Take a connection that the kernel has made, unless it broke meanwhile."""
        if transport.is_gone:
            return
        if not self.is_serving or self._gate.refusal(source) is not None:
            self.refused += 1
            transport.refuse()
            return
        transport.open(self._gate.opened(source))


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
        self.frames: Frames
        self.is_server = False
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

    @property
    def is_gone(self) -> bool:
        return self._gone

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
        self._as_node(protocol.connection_made, self)
        self._pump()

    def _send(self) -> None:
        while self._unsent and self._in_flight < _WINDOW:
            chunk = self._unsent.popleft()
            self._in_flight += len(chunk)
            self._put_on_the_way(chunk)

    def _put_on_the_way(self, chunk: bytes | None) -> None:
        number, self._sent = self._sent, self._sent + 1
        network, host, peer = self._network, self.host, self.peer

        def send() -> None:
            network.send(host, peer.host, lambda: peer.arrive(number, chunk))

        if chunk is not None:
            apis = self.frames.answer(chunk) if self.is_server else self.frames.request(chunk)
            if network.is_watched:
                hold = network.catching(apis, self.is_server, (host, peer.host))
                if hold is not None:
                    hold.keep(send)
                    return
        send()

    def arrive(self, number: int, chunk: bytes | None) -> None:
        if self._gone:
            if chunk is not None:
                self._refuse_bytes()
            return
        self._early[number] = chunk
        while self._received in self._early:
            self._arrived.append(self._early.pop(self._received))
            self._received += 1
        self._pump()

    def _refuse_bytes(self) -> None:
        """Nobody is there: the sender learns of it, once the host has power."""
        network, host, peer = self._network, self.host, self.peer
        if network.is_dark(host):
            network.answer_when_lit(host, lambda: network.send(host, peer.host, peer.reset))
        else:
            network.send(host, peer.host, peer.reset)

    def _pump(self) -> None:
        is_open = self._protocol is not None and not self._gone
        if is_open and not self._is_pumping and self._arrived and self._reading:
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

    def vanish(self, *, silent: bool = False) -> None:
        """The process is gone: its kernel, if it lives, resets the connection, as far as the link
        lets it."""
        self._gone = True
        if not silent:
            self._network.send(self.host, self.peer.host, self.peer.reset)

    def refuse(self) -> None:
        """The process does not take the connection."""
        if self._gone:
            return
        self._gone = True
        self._network.remove(self)
        self._network.send(self.host, self.peer.host, self.peer.reset)

    def _end(self, error: Exception | None) -> None:
        if self._gone:
            return
        self._gone = True
        self._network.remove(self)
        if error is None:
            self._put_on_the_way(None)
        if self._protocol is not None:
            self._soon(self._protocol.connection_lost, error)

    def _soon(self, function: Callable[..., object], *args: object) -> None:
        """On the loop, as the node to which this end belongs, unless that is gone."""
        if self._node is None:
            self._loop.call_soon(function, *args, context=OUTSIDE)
        elif not self._node.is_gone:
            self._node.run(self._loop.call_soon, function, *args)

    def _as_node(self, function: Callable[..., Any], *args: object) -> Any:
        return function(*args) if self._node is None else self._node.run(function, *args)
