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
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tidelog.host.clock import Clock
from tidelog.host.network import Gate, TlsSource, no_tls
from tidelog.testing.simulation.frames import Frames
from tidelog.testing.simulation.nodes import Node, SimulatedLoop, current_node
from tidelog.testing.simulation.transport import SimulatedTransport

P = TypeVar("P", bound=asyncio.BaseProtocol)

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
    """Keeps back the next message of one API, a request or an answer.

    `host` is where it comes from or goes to; `sender` and `receiver` say which. The first ones, as
    many as `passing`, go through.
    """

    api: int
    is_answer: bool
    host: str | None = None
    sender: str | None = None
    receiver: str | None = None
    passing: int = 0
    is_over: bool = False
    caught: int = 0
    _waiting: list[Callable[[], None]] = field(default_factory=list)

    def catches(self, apis: list[int], is_answer: bool, hosts: tuple[str, str]) -> bool:
        """Whether a message from the first host to the second one is kept back."""
        is_meant = (
            not self.is_over
            and not self.caught
            and self.is_answer == is_answer
            and self.api in apis
            and (self.host is None or self.host in hosts)
            and self.sender in (None, hosts[0])
            and self.receiver in (None, hosts[1])
        )
        if is_meant and self.passing:
            self.passing -= 1
            return False
        return is_meant

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

    def connections_of(self, host: str) -> int:
        """How many ends of connections a host has."""
        return len(self._transports.get(host, []))

    def break_connections(self, one: str, other: str) -> int:
        """Reset the connections between two hosts; how many there were."""
        broken = [each for each in self._transports.get(one, []) if each.peer.host == other]
        for transport in broken:
            transport.reset()
            self.send(one, other, transport.peer.reset)
        return len(broken)

    # -- what brokers use -------------------------------------------------------------------------

    def acceptor(
        self, name: str, gate: Gate, clock: Clock, tls: TlsSource = no_tls
    ) -> SimulatedAcceptor:
        """A port of the current node; what flows is not encrypted."""
        node = current_node()
        assert node is not None, "only nodes listen"
        return SimulatedAcceptor(self, node, gate)

    async def connect(
        self, factory: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> P:
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
