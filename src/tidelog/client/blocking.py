"""The shell with plain sockets: what the command line and Spark use.

    with Client("127.0.0.1:9092") as client:
        topics = client.run(list_topics(client.cluster))

Everything happens in the caller's thread, inside the call; nothing runs in between. Connecting
blocks up to `connect_timeout_ms`. Imports no asyncio, and ssl for a TLS connection alone. Producer
and consumer stand in modules of their own: metadata alone needs no record codecs.
"""

from __future__ import annotations

import selectors
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from tidelog.client.connection import Call, Connection
from tidelog.client.faults import (
    ConnectError,
    NetworkError,
    NoBrokerError,
    RequestTimeoutError,
)
from tidelog.client.metadata import Cluster
from tidelog.client.operation import Finished, Operation, Pause, next_step
from tidelog.client.securing import Securing
from tidelog.client.settings import ClientSettings
from tidelog.errors import ProtocolError, TidelogError

if TYPE_CHECKING:
    from tidelog.client.tls_stream import TlsStream

T = TypeVar("T")
Done = Callable[[object], None]
# One writev takes this many parts on Linux; more would be refused.
_PARTS_MAX = 512


class _Channel:
    """One socket, its connection's state, and what to do with each answer."""

    def __init__(
        self, node: int, stream: socket.socket | TlsStream, connection: Connection
    ) -> None:
        self.node = node
        self.stream = stream
        self.connection = connection
        self.output: deque[memoryview] = deque()
        self.waiting: dict[int, tuple[float, Done]] = {}

    def send(self, call: Call, deadline: float, done: Done) -> None:
        self.waiting[self.connection.send(call)] = (deadline, done)
        self.push()

    def push(self) -> None:
        """Write what the socket takes now; OSError where it is broken."""
        for part in self.connection.take_output():
            view = memoryview(part)  # type: ignore[arg-type]
            if view.nbytes:
                self.output.append(view.cast("B"))
        while self.output:
            parts = [self.output[index] for index in range(min(len(self.output), _PARTS_MAX))]
            try:
                written = self._write(parts)
            except BlockingIOError:
                return
            while written:
                head = self.output[0]
                if written < head.nbytes:
                    self.output[0] = head[written:]
                    break
                written -= head.nbytes
                self.output.popleft()
        self.connection.sent()

    def _write(self, parts: list[memoryview]) -> int:
        if sys.platform == "win32" and isinstance(self.stream, socket.socket):
            return self.stream.send(parts[0])
        return self.stream.sendmsg(parts)

    @property
    def has_pending(self) -> bool:
        """Bytes are here that the operating system does not speak of."""
        return not isinstance(self.stream, socket.socket) and self.stream.pending() > 0

    def deliver(self) -> None:
        """Hand out the answers that are there."""
        for answer in self.connection.take_answers():
            self.waiting.pop(answer.ticket)[1](answer.outcome)


class Network:
    """Connections to the brokers of a cluster, opened when a call needs them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._settings = cluster.settings
        self._securing = Securing(cluster)
        self._selector = selectors.DefaultSelector()
        self._channels: dict[int, _Channel] = {}

    def submit(self, call: Call, done: Done) -> None:
        """Send a call; `done` is called with its outcome, now or in `poll`."""
        timeout_ms = call.timeout_ms or self._settings.request_timeout_ms
        deadline = self._cluster.clock.monotonic() + timeout_ms / 1000
        try:
            channel = self._channel(call.node)
        except TidelogError as error:
            done(error)
            return
        try:
            channel.send(call, deadline, done)
        except OSError as error:
            self._lose(channel, _fault(channel, error))
            return
        self._watch(channel)
        channel.deliver()

    def poll(self, timeout: float | None) -> None:
        """Wait up to `timeout` seconds for anything to happen, and see to all that did."""
        now = self._cluster.clock.monotonic()
        deadlines = [
            deadline
            for channel in self._channels.values()
            for deadline, _ in channel.waiting.values()
        ]
        if deadlines:
            until = max(0.0, min(deadlines) - now)
            timeout = until if timeout is None else min(timeout, until)
        for key, events in self._selector.select(timeout):
            self._serve(key.data, events)
        self._expire()

    def close(self) -> None:
        """Close every connection; calls under way get a NetworkError."""
        for channel in list(self._channels.values()):
            self._lose(channel, NetworkError(channel.connection.address, "client closed"))
        self._selector.close()

    def _channel(self, node: int) -> _Channel:
        candidates = self._cluster.candidates(node)
        for candidate in candidates:
            if candidate in self._channels:
                return self._channels[candidate]
        failure: NetworkError = NoBrokerError(
            f"broker {node}", "it is not in the cluster's metadata"
        )
        for candidate in candidates:
            try:
                return self._open(candidate)
            except ConnectError as error:
                self._cluster.note_failure(candidate)
                failure = error
        raise failure

    def _open(self, node: int) -> _Channel:
        host, port = self._cluster.address(node)
        address = f"{host}:{port}"
        stream = self._connect(host, port)
        stream.setblocking(False)
        settings = self._settings
        connection = Connection(
            settings.client_id,
            settings.max_frame_bytes,
            address,
            login=self._securing.login(address),
        )
        channel = _Channel(node, stream, connection)
        self._channels[node] = channel
        self._selector.register(stream, selectors.EVENT_READ, channel)
        return channel

    def _connect(self, host: str, port: int) -> socket.socket | TlsStream:
        """A socket, or TLS over one; which of the two failed is in the error."""
        address, context = f"{host}:{port}", self._securing.context()
        try:
            plain = socket.create_connection((host, port), self._settings.connect_timeout_ms / 1000)
        except OSError as error:
            raise ConnectError(address, _reason(error)) from error
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            return plain
        from tidelog.client.tls import explain
        from tidelog.client.tls_stream import TlsStream

        try:
            return TlsStream(plain, context, host)
        except OSError as error:
            plain.close()
            raise explain(error, address, host) from error

    def _watch(self, channel: _Channel) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.output else 0)
        if self._selector.get_key(channel.stream).events != events:
            self._selector.modify(channel.stream, events, channel)

    def _serve(self, channel: _Channel, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                self._receive(channel)
            channel.push()
        except BlockingIOError:
            pass
        except (OSError, TidelogError) as error:
            channel.deliver()
            self._lose(channel, _fault(channel, error))
            return
        self._watch(channel)
        channel.deliver()

    def _receive(self, channel: _Channel) -> None:
        """Take what is there; of a large answer as much as comes without waiting."""
        stream, connection = channel.stream, channel.connection
        while True:
            room = connection.room
            if room is None:
                data = stream.recv(self._settings.receive_bytes)
                if not data:
                    break
                connection.receive(data)
            else:
                try:
                    count = stream.recv_into(room)
                except BlockingIOError:
                    return
                if not count:
                    break
                connection.received(count)
            if connection.room is None and not channel.has_pending:
                return
        raise ConnectionResetError("the broker closed the connection")

    def _expire(self) -> None:
        now = self._cluster.clock.monotonic()
        for channel in list(self._channels.values()):
            if any(deadline <= now for deadline, _ in channel.waiting.values()):
                address = channel.connection.address
                self._lose(channel, RequestTimeoutError(address, "no answer in time"))

    def _lose(self, channel: _Channel, error: TidelogError) -> None:
        if self._channels.get(channel.node) is channel:
            del self._channels[channel.node]
            self._cluster.note_failure(channel.node)
            self._selector.unregister(channel.stream)
        channel.stream.close()
        channel.connection.fail(error)
        channel.deliver()


def _fault(channel: _Channel, error: Exception) -> TidelogError:
    """What a broken connection means for the calls on it."""
    address = channel.connection.address
    if isinstance(error, TidelogError) and not isinstance(error, ProtocolError):
        return error
    stream = channel.stream
    is_new = not channel.connection.versions
    if isinstance(error, OSError) and is_new and not isinstance(stream, socket.socket):
        from tidelog.client.tls import explain

        return explain(stream.last_words(error), address, address.rpartition(":")[0])
    return NetworkError(address, _reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        if isinstance(error, TimeoutError):
            return "timed out"
        return error.strerror or str(error) or type(error).__name__
    return str(error)


class Client:
    """Runs operations; the base of the producer and the consumer."""

    def __init__(
        self, servers: str | Iterable[str], settings: ClientSettings | None = None
    ) -> None:
        self.cluster = Cluster(servers, settings)
        self.network = Network(self.cluster)

    def run(self, operation: Operation[T]) -> T:
        """Drive an operation to its end; its result, or its error raised."""
        outcomes: list[object] | None = None
        while not isinstance(step := next_step(operation, outcomes), Finished):
            if isinstance(step, Pause):
                self._pause(step.seconds)
                outcomes = None
            else:
                outcomes = self._gather(step)
        return step.result

    def _gather(self, calls: list[Call]) -> list[object]:
        missing = object()
        outcomes: list[object] = [missing] * len(calls)
        for index, call in enumerate(calls):
            self.network.submit(call, partial(outcomes.__setitem__, index))
        while any(outcome is missing for outcome in outcomes):
            self.network.poll(None)
        return outcomes

    def _pause(self, seconds: float) -> None:
        until = self.cluster.clock.monotonic() + seconds
        while (left := until - self.cluster.clock.monotonic()) > 0:
            self.network.poll(left)

    def close(self) -> None:
        self.network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()
