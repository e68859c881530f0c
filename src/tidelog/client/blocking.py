"""The shell with plain sockets: what the command line and Spark use.

    with Client("127.0.0.1:9092") as client:
        topics = client.run(list_topics(client.cluster))

Everything happens in the caller's thread, inside the call; nothing runs in between. So a producer
honours `linger_ms` while `send`, `poll` or `flush` is called, and a consumer fetches ahead only
while it is polled. Connecting blocks up to `connect_timeout_ms`. Imports neither asyncio nor ssl.
"""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar

from tidelog.client.batching import Batch, Delivery, ProducerRecord
from tidelog.client.connection import Call, Connection
from tidelog.client.faults import (
    ConnectError,
    NetworkError,
    NoBrokerError,
    RequestTimeoutError,
)
from tidelog.client.fetcher import Chunk, FetchCall, FetcherCore
from tidelog.client.metadata import Cluster
from tidelog.client.offsets import EARLIEST, LATEST, Start, list_offsets, resolve_offsets
from tidelog.client.operation import Operation, Pause, topic_metadata, try_refresh
from tidelog.client.producer import ProduceCall, ProducerCore, init_producer_id
from tidelog.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from tidelog.errors import ProtocolError, TidelogError
from tidelog.host.random import SystemRandom
from tidelog.model import TopicPartition
from tidelog.protocol.batches import Record

T = TypeVar("T")
Done = Callable[[object], None]
# One writev takes this many parts on Linux; more would be refused.
_PARTS_MAX = 512


class _Channel:
    """One socket, its connection's state, and what to do with each answer."""

    def __init__(self, node: int, stream: socket.socket, connection: Connection) -> None:
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
                written = self.stream.sendmsg(parts)
            except BlockingIOError:
                return
            while written:
                head = self.output[0]
                if written < head.nbytes:
                    self.output[0] = head[written:]
                    break
                written -= head.nbytes
                self.output.popleft()

    def deliver(self) -> None:
        """Hand out the answers that are there."""
        for answer in self.connection.take_answers():
            self.waiting.pop(answer.ticket)[1](answer.outcome)


class Network:
    """Connections to the brokers of a cluster, opened when a call needs them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._settings = cluster.settings
        self._selector = selectors.DefaultSelector()
        self._channels: dict[int, _Channel] = {}

    def submit(self, call: Call, done: Done) -> None:
        """Send a call; `done` is called with its outcome, now or in `poll`."""
        timeout_ms = call.timeout_ms or self._settings.request_timeout_ms
        deadline = self._cluster.clock.monotonic() + timeout_ms / 1000
        try:
            channel = self._channel(call.node)
        except NetworkError as error:
            done(error)
            return
        try:
            channel.send(call, deadline, done)
        except OSError as error:
            self._lose(channel, NetworkError(channel.connection.address, _reason(error)))
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
        failure = NoBrokerError(f"broker {node}", "it is not in the cluster's metadata")
        for candidate in candidates:
            try:
                return self._open(candidate)
            except ConnectError as error:
                failure = error  # type: ignore[assignment]
        raise failure

    def _open(self, node: int) -> _Channel:
        host, port = self._cluster.address(node)
        address = f"{host}:{port}"
        try:
            stream = socket.create_connection(
                (host, port), self._settings.connect_timeout_ms / 1000
            )
        except OSError as error:
            raise ConnectError(address, _reason(error)) from error
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        settings = self._settings
        connection = Connection(settings.client_id, settings.max_frame_bytes, address)
        channel = _Channel(node, stream, connection)
        self._channels[node] = channel
        self._selector.register(stream, selectors.EVENT_READ, channel)
        return channel

    def _watch(self, channel: _Channel) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.output else 0)
        if self._selector.get_key(channel.stream).events != events:
            self._selector.modify(channel.stream, events, channel)

    def _serve(self, channel: _Channel, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                data = channel.stream.recv(self._settings.receive_bytes)
                if not data:
                    raise ConnectionResetError("the broker closed the connection")
                channel.connection.receive(data)
            channel.push()
        except BlockingIOError:
            pass
        except (OSError, ProtocolError) as error:
            channel.deliver()
            self._lose(channel, NetworkError(channel.connection.address, _reason(error)))
            return
        self._watch(channel)
        channel.deliver()

    def _expire(self) -> None:
        now = self._cluster.clock.monotonic()
        for channel in list(self._channels.values()):
            if any(deadline <= now for deadline, _ in channel.waiting.values()):
                address = channel.connection.address
                self._lose(channel, RequestTimeoutError(address, "no answer in time"))

    def _lose(self, channel: _Channel, error: TidelogError) -> None:
        if self._channels.get(channel.node) is channel:
            del self._channels[channel.node]
            self._selector.unregister(channel.stream)
        channel.stream.close()
        channel.connection.fail(error)
        channel.deliver()


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        if isinstance(error, TimeoutError):
            return "timed out"
        return error.strerror or str(error) or type(error).__name__
    return str(error)


class Client:
    """Runs operations; the base of `Producer` and `Consumer`."""

    def __init__(
        self, servers: str | Iterable[str], settings: ClientSettings | None = None
    ) -> None:
        self.cluster = Cluster(servers, settings)
        self.network = Network(self.cluster)

    def run(self, operation: Operation[T]) -> T:
        """Drive an operation to its end; its result, or its error raised."""
        outcomes: list[object] | None = None
        while True:
            try:
                step = operation.send(outcomes)
            except StopIteration as stop:
                result: T = stop.value
                return result
            if isinstance(step, Pause):
                self._pause(step.seconds)
                outcomes = None
            else:
                outcomes = self._gather(step)

    def _gather(self, calls: list[Call]) -> list[object]:
        missing = object()
        outcomes: list[object] = [missing] * len(calls)

        def keep(index: int) -> Done:
            def done(outcome: object) -> None:
                outcomes[index] = outcome

            return done

        for index, call in enumerate(calls):
            self.network.submit(call, keep(index))
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Producer(Client):
    """Sends records; `flush` before the deliveries are looked at.

    >>> with Producer("127.0.0.1:9092") as producer:          # doctest: +SKIP
    ...     delivery = producer.send(ProducerRecord("orders", b"hello"))
    ...     producer.flush()
    ...     delivery.result()
    0
    """

    def __init__(
        self,
        servers: str | Iterable[str],
        settings: ProducerSettings | None = None,
        on_completed: Callable[[list[Batch]], None] | None = None,
    ) -> None:
        self.settings = settings or ProducerSettings()
        super().__init__(servers, self.settings.client)
        self.core = ProducerCore(self.settings, self.cluster, SystemRandom())
        self._on_completed = on_completed
        self._next_pump = 0.0

    def send(self, record: ProducerRecord) -> Delivery:
        """Queue a record; blocks for metadata of a new topic and while the buffer is full."""
        if not self.cluster.is_fresh(record.topic):
            create = self.settings.auto_create_topics
            self.run(topic_metadata(self.cluster, [record.topic], create=create))
        while not self.core.has_room(record):
            self._pump(wait=True)
        now = self.cluster.clock.monotonic()
        delivery = self.core.append(record, now)
        if self.core.batch_filled or now >= self._next_pump:
            self._pump(wait=False)
        return delivery

    def poll(self, timeout_s: float = 0.0) -> None:
        """Send what is due and take what has come, waiting for either up to `timeout_s`."""
        self._pump(wait=False)
        if timeout_s > 0:
            now = self.cluster.clock.monotonic()
            wakeup = self.core.next_wakeup(now)
            self.network.poll(timeout_s if wakeup is None else min(timeout_s, wakeup - now))
            self._pump(wait=False)

    def flush(self) -> None:
        """Wait until every record is delivered or given up."""
        self.core.flushing = True
        try:
            while not self.core.idle:
                self._pump(wait=True)
        finally:
            self.core.flushing = False

    def close(self) -> None:
        """Drop what is not delivered yet and close; `flush` first to keep it."""
        super().close()

    def _pump(self, *, wait: bool) -> None:
        self._prepare()
        clock = self.cluster.clock
        now = clock.monotonic()
        for produce in self.core.calls(now):
            self.network.submit(produce.call, self._finisher(produce))
        timeout: float | None = 0.0
        if wait and not self._report():
            wakeup = self.core.next_wakeup(now)
            timeout = None if wakeup is None else max(0.0, wakeup - clock.monotonic())
            if timeout is None and self.core.idle:
                timeout = 0.0
        self.network.poll(timeout)
        self._next_pump = now + max(self.settings.linger_ms, 1) / 1000
        self._report()

    def _prepare(self) -> None:
        if self.core.needs_identity:
            self.core.identity = self.run(init_producer_id(self.cluster))
        stale = self.core.take_stale_topics()
        if stale:
            create = self.settings.auto_create_topics
            self.run(try_refresh(self.cluster, stale, create=create))

    def _finisher(self, produce: ProduceCall) -> Done:
        def done(outcome: object) -> None:
            self.core.finish(produce, outcome, self.cluster.clock.monotonic())

        return done

    def _report(self) -> bool:
        completed = self.core.take_completed()
        if completed and self._on_completed is not None:
            self._on_completed(completed)
        return bool(completed)


class Consumer(Client):
    """Reads partitions from chosen offsets, without a group.

    >>> with Consumer("127.0.0.1:9092") as consumer:          # doctest: +SKIP
    ...     consumer.assign({TopicPartition("orders", 0): Start("start")})
    ...     for partition, records in consumer.poll(1.0): ...
    """

    def __init__(
        self, servers: str | Iterable[str], settings: ConsumerSettings | None = None
    ) -> None:
        self.settings = settings or ConsumerSettings()
        super().__init__(servers, self.settings.client)
        self.core = FetcherCore(self.settings, self.cluster)

    def assign(self, starts: dict[TopicPartition, Start]) -> dict[TopicPartition, int]:
        """Read these partitions from these places; the offsets that the places stand for."""
        offsets = self.run(resolve_offsets(self.cluster, starts))
        self.run(topic_metadata(self.cluster, sorted({tp.topic for tp in starts})))
        self.core.assign(offsets)
        return offsets

    def poll(self, timeout_s: float) -> Iterator[tuple[TopicPartition, list[Record]]]:
        """The records at hand, by partition; waits up to `timeout_s` for the first."""
        self._fill(timeout_s)
        while (taken := self.core.take()) is not None:
            yield taken

    def poll_chunks(self, timeout_s: float) -> Iterator[Chunk]:
        """As `poll`, but the batches as they came, for who decodes them himself."""
        self._fill(timeout_s)
        while (chunk := self.core.take_chunk()) is not None:
            yield chunk

    def _fill(self, timeout_s: float) -> None:
        clock = self.cluster.clock
        until = clock.monotonic() + timeout_s
        while True:
            self._prepare()
            now = clock.monotonic()
            for fetch in self.core.calls(now):
                self.network.submit(fetch.call, self._finisher(fetch))
            if self.core.has_output or now >= until:
                self.network.poll(0.0)
                return
            wakeup = self.core.next_wakeup(now)
            self.network.poll(min(until, wakeup if wakeup is not None else until) - now)

    def _prepare(self) -> None:
        stale = self.core.take_stale_topics()
        if stale:
            self.run(try_refresh(self.cluster, stale))
        lost = self.core.take_out_of_range()
        if lost:
            end = EARLIEST if self.settings.out_of_range == "earliest" else LATEST
            found = self.run(list_offsets(self.cluster, dict.fromkeys(lost, end)))
            for partition, place in found.items():
                self.core.seek(partition, place.offset)

    def _finisher(self, fetch: FetchCall) -> Done:
        def done(outcome: object) -> None:
            self.core.finish(fetch, outcome, self.cluster.clock.monotonic())

        return done
