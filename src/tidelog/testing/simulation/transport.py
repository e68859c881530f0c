"""One end of a simulated connection, as asyncio knows a transport."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidelog.testing.simulation.frames import Frames
from tidelog.testing.simulation.nodes import OUTSIDE, Node

if TYPE_CHECKING:
    from tidelog.testing.simulation.network import SimulatedNetwork

_HIGH_WATER: Final = 64 * 1024
_WINDOW: Final = 64 * 1024


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
        self.is_gone = False
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
        if self._closing or self.is_gone:
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
        if self.is_gone:
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
        is_open = self._protocol is not None and not self.is_gone
        if is_open and not self._is_pumping and self._arrived and self._reading:
            self._is_pumping = True
            self._soon(self._take)

    def _take(self) -> None:
        self._is_pumping = False
        if self.is_gone or not self._reading or not self._arrived:
            return
        chunk = self._arrived.popleft()
        if chunk is None:
            if not self._protocol.eof_received():
                self.close()
            return
        self._acknowledge(len(chunk))
        self._give(chunk)
        self._pump()

    def _give(self, chunk: bytes) -> None:
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.data_received(chunk)
            return
        view = memoryview(chunk)
        while view and not self.is_gone:
            room = memoryview(self._protocol.get_buffer(-1))
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self._protocol.buffer_updated(count)
            view = view[count:]
            if view and not self._reading:
                self._arrived.appendleft(bytes(view))
                return

    def _acknowledge(self, count: int) -> None:
        """Tell the sender that there is room again, where it waits for that."""
        peer = self.peer
        if peer.awaits_room:
            self._network.send(self.host, peer.host, lambda: peer.acknowledged(count))
        else:
            peer._in_flight -= count

    @property
    def awaits_room(self) -> bool:
        return bool(self._unsent) or self._writing_paused or self._closing

    def acknowledged(self, count: int) -> None:
        self._in_flight -= count
        if self.is_gone:
            return
        self._soon(self._drained)

    def _drained(self) -> None:
        if self.is_gone:
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
        if not self.is_gone:
            self._closing = True
            self._end(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def vanish(self, *, silent: bool = False) -> None:
        """The process is gone: its kernel, if it lives, resets the connection, as far as the link
        lets it."""
        self.is_gone = True
        if not silent:
            self._network.send(self.host, self.peer.host, self.peer.reset)

    def refuse(self) -> None:
        """The process does not take the connection."""
        if self.is_gone:
            return
        self.is_gone = True
        self._network.remove(self)
        self._network.send(self.host, self.peer.host, self.peer.reset)

    def _end(self, error: Exception | None) -> None:
        if self.is_gone:
            return
        self.is_gone = True
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
            self._loop.call_soon(function, *args, context=self._node.context())

    def _as_node(self, function: Callable[..., Any], *args: object) -> Any:
        return function(*args) if self._node is None else self._node.run(function, *args)
