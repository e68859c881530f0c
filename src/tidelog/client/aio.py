"""The shell on an event loop: what followers and the console use.

    async with Client("127.0.0.1:9092") as client:
        topics = await client.run(list_topics(client.cluster))

Any number of tasks may use one client at once; their requests share a connection per broker and
are answered in order. A producer sends by itself, in a task that it owns, from the first `send` to
`close`. Name resolution and connecting never block the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Self, TypeVar

from tidelog.client.batching import Delivery, ProducerRecord
from tidelog.client.channel import Channel
from tidelog.client.connection import Call, Connection
from tidelog.client.faults import (
    ConnectError,
    NetworkError,
    NoBrokerError,
    RequestTimeoutError,
)
from tidelog.client.fetcher import FetchCall, FetcherCore
from tidelog.client.metadata import Cluster
from tidelog.client.offsets import Start, resolve_offsets
from tidelog.client.operation import Finished, Operation, Pause, next_step, topic_metadata
from tidelog.client.producer import ProduceCall, ProducerCore
from tidelog.client.securing import Securing
from tidelog.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from tidelog.errors import TidelogError
from tidelog.host.host import Host
from tidelog.host.network import Network as Sockets
from tidelog.host.network import SystemNetwork
from tidelog.host.random import Random, SystemRandom
from tidelog.model import TopicPartition
from tidelog.protocol.batches import Record

T = TypeVar("T")


class Network:
    """Connections to the brokers of a cluster, opened when a call needs them."""

    def __init__(self, cluster: Cluster, sockets: Sockets, random: Random) -> None:
        self._cluster = cluster
        self._sockets = sockets
        self._securing = Securing(cluster, random)
        self._settings = cluster.settings
        self._channels: dict[int, Channel] = {}
        self._opening: dict[int, asyncio.Lock] = {}

    async def request(self, call: Call) -> object:
        """The outcome of a call: its response, or the error that kept it away."""
        try:
            channel = await self._channel(call.node)
        except TidelogError as error:
            return error
        future = channel.send(call)
        timeout = (call.timeout_ms or self._settings.request_timeout_ms) / 1000
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            late = RequestTimeoutError(channel.connection.address, "no answer in time")
            channel.lose(late)
            return late

    def close(self) -> None:
        """Close every connection; calls under way get a NetworkError."""
        for channel in list(self._channels.values()):
            channel.lose(NetworkError(channel.connection.address, "client closed"))

    async def _channel(self, node: int) -> Channel:
        candidates = self._cluster.candidates(node)
        for candidate in candidates:
            if candidate in self._channels:
                return self._channels[candidate]
        failure: NetworkError = NoBrokerError(f"broker {node}", "not in the cluster's metadata")
        for candidate in candidates:
            try:
                return await self._open(candidate)
            except (ConnectError, NoBrokerError) as error:
                self._cluster.note_failure(candidate)
                failure = error
        raise failure

    async def _open(self, node: int) -> Channel:
        async with self._opening.setdefault(node, asyncio.Lock()):
            if node in self._channels:
                return self._channels[node]
            try:
                host, port = self._cluster.address(node)
            except KeyError:
                # The metadata changed while this waited for another attempt.
                raise NoBrokerError(f"broker {node}", "not in the cluster's metadata") from None
            address = f"{host}:{port}"
            settings = self._settings
            connection = Connection(
                settings.client_id,
                settings.max_frame_bytes,
                address,
                login=self._securing.login(address),
            )

            def forget(lost: Channel) -> None:
                if self._channels.get(node) is lost:
                    del self._channels[node]
                    self._cluster.note_failure(node)

            context = self._securing.context()
            try:
                async with asyncio.timeout(settings.connect_timeout_ms / 1000):
                    channel = await self._sockets.connect(
                        lambda: Channel(connection, forget), host, port, context
                    )
            except TimeoutError as error:
                raise ConnectError(address, "timed out") from error
            except OSError as error:
                if context is not None and not isinstance(error, ConnectionRefusedError):
                    from tidelog.client.tls import explain

                    raise explain(error, address, host) from error
                raise ConnectError(address, error.strerror or str(error)) from error
            if not connection.closed:
                self._channels[node] = channel
            return channel


class Client:
    """Runs operations; the base of `Producer` and `Consumer`."""

    def __init__(
        self,
        servers: str | Iterable[str],
        settings: ClientSettings | None = None,
        host: Host | None = None,
    ) -> None:
        self.cluster = Cluster(servers, settings, None if host is None else host.clock)
        self._random: Random = SystemRandom() if host is None else host.random
        sockets = SystemNetwork() if host is None else host.network
        self.network = Network(self.cluster, sockets, self._random)

    async def run(self, operation: Operation[T]) -> T:
        """Drive an operation to its end; its result, or its error raised."""
        outcomes: list[object] | None = None
        while not isinstance(step := next_step(operation, outcomes), Finished):
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                outcomes = None
            elif len(step) == 1:
                outcomes = [await self.network.request(step[0])]
            else:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self.network.request(call)) for call in step]
                outcomes = [task.result() for task in tasks]
        return step.result

    async def close(self) -> None:
        self.network.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.close()


class Producer(Client):
    """Sends records; `await producer.wait(delivery)` or `flush()` tells what became of them."""

    def __init__(
        self,
        servers: str | Iterable[str],
        settings: ProducerSettings | None = None,
        host: Host | None = None,
    ) -> None:
        self.settings = settings or ProducerSettings()
        super().__init__(servers, self.settings.client, host)
        self.core = ProducerCore(self.settings, self.cluster, self._random)
        self._wake = asyncio.Event()
        self._changed = asyncio.Condition()
        self._sender: asyncio.Task[None] | None = None
        self._requests: dict[asyncio.Task[None], None] = {}

    async def send(self, record: ProducerRecord) -> Delivery:
        """Queue a record; waits for metadata of a new topic and while the buffer is full."""
        if not self.core.ready_for(record.topic):
            create = self.settings.auto_create_topics
            await self.run(topic_metadata(self.cluster, [record.topic], create=create))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_forever())
        if not self.core.has_room(record.size_bytes):
            await self._until(lambda: self.core.has_room(record.size_bytes))
        delivery = self.core.append(record, self.cluster.clock.monotonic())
        self._wake.set()
        return delivery

    async def wait(self, delivery: Delivery) -> int:
        """The record's offset once it is acknowledged, or its error raised."""
        await self._until(lambda: delivery.done)
        return delivery.result()

    async def flush(self) -> None:
        """Wait until every record is delivered or given up."""
        self.core.flushing = True
        self._wake.set()
        try:
            await self._until(lambda: self.core.idle)
        finally:
            self.core.flushing = False

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            await self.close()

    async def close(self) -> None:
        """Drop what is not delivered yet and close; `flush` first to keep it."""
        tasks = [*self._requests, *([self._sender] if self._sender else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await super().close()

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            while not condition():
                if self._sender is not None and self._sender.done():
                    # A sender never ends by itself: its failure is everybody's.
                    await self._sender
                await self._changed.wait()

    async def _send_forever(self) -> None:
        try:
            while True:
                self._wake.clear()
                await self.run(self.core.prepare())
                now = self.cluster.clock.monotonic()
                for produce in self.core.calls(now):
                    task = asyncio.create_task(self._produce(produce))
                    self._requests[task] = None
                    task.add_done_callback(self._requests.pop)
                await self._notify()
                wakeup = self.core.next_wakeup(now)
                try:
                    async with asyncio.timeout(None if wakeup is None else wakeup - now):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        finally:
            await self._notify()

    async def _produce(self, produce: ProduceCall) -> None:
        outcome = await self.network.request(produce.call)
        self.core.finish(produce, outcome, self.cluster.clock.monotonic())
        self._wake.set()

    async def _notify(self) -> None:
        self.core.take_completed()
        async with self._changed:
            self._changed.notify_all()


class Consumer(Client):
    """Reads partitions from chosen offsets, without a group; one task polls it."""

    def __init__(
        self,
        servers: str | Iterable[str],
        settings: ConsumerSettings | None = None,
        host: Host | None = None,
    ) -> None:
        self.settings = settings or ConsumerSettings()
        super().__init__(servers, self.settings.client, host)
        self.core = FetcherCore(self.settings, self.cluster)
        self._fetches: dict[asyncio.Task[None], None] = {}

    async def assign(self, starts: dict[TopicPartition, Start]) -> dict[TopicPartition, int]:
        """Read these partitions from these places; the offsets that the places stand for."""
        offsets = await self.run(resolve_offsets(self.cluster, starts))
        await self.run(topic_metadata(self.cluster, sorted({tp.topic for tp in starts})))
        self.core.assign(offsets)
        return offsets

    async def poll(self, timeout_s: float) -> list[tuple[TopicPartition, list[Record]]]:
        """The records at hand, by partition; waits up to `timeout_s` for the first."""
        clock = self.cluster.clock
        until = clock.monotonic() + timeout_s
        while True:
            await self.run(self.core.prepare())
            now = clock.monotonic()
            for fetch in self.core.calls(now):
                task = asyncio.create_task(self._fetch(fetch))
                self._fetches[task] = None
                task.add_done_callback(self._fetches.pop)
            if self.core.has_output or now >= until:
                break
            wakeup = self.core.next_wakeup(now)
            left = (until if wakeup is None else min(until, wakeup)) - now
            if self._fetches:
                await asyncio.wait(
                    list(self._fetches), timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
            else:
                await asyncio.sleep(left)
        taken: list[tuple[TopicPartition, list[Record]]] = []
        # An error is raised only once what came before it has been given.
        while (self.core.has_chunks or not taken) and (entry := self.core.take()) is not None:
            taken.append(entry)
        return taken

    async def close(self) -> None:
        fetches = list(self._fetches)
        for task in fetches:
            task.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)
        await super().close()

    async def _fetch(self, fetch: FetchCall) -> None:
        outcome = await self.network.request(fetch.call)
        self.core.finish(fetch, outcome, self.cluster.clock.monotonic())
