"""The producer with plain sockets; it honours `linger_ms` while one of its methods is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from tidelog.client.batching import Batch, Delivery, EncodedRecords, ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.operation import topic_metadata
from tidelog.client.producer import ProduceCall, ProducerCore
from tidelog.client.settings import ProducerSettings
from tidelog.host.random import SystemRandom
from tidelog.model import TopicPartition


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
        now = self._make_room(record.topic, record.size_bytes)
        delivery = self.core.append(record, now)
        if self.core.batch_filled or now >= self._next_pump:
            self._pump(wait=False)
        return delivery

    def send_encoded(self, partition: TopicPartition, payload: EncodedRecords) -> None:
        """Queue a batch whose records are encoded; it blocks as `send` does."""
        now = self._make_room(partition.topic, payload.size_bytes)
        self.core.append_encoded(partition, payload, now)
        self._pump(wait=False)

    def _make_room(self, topic: str, size_bytes: int) -> float:
        if not self.core.ready_for(topic):
            create = self.settings.auto_create_topics
            self.run(topic_metadata(self.cluster, [topic], create=create))
        while not self.core.has_room(size_bytes):
            self._pump(wait=True)
        return self.cluster.clock.monotonic()

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

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Flush, unless an error is on its way; `close` alone drops what is not delivered."""
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    def _pump(self, *, wait: bool) -> None:
        self.run(self.core.prepare())
        clock = self.cluster.clock
        now = clock.monotonic()
        for produce in self.core.calls(now):
            self.network.submit(produce.call, partial(self._finish, produce))
        timeout: float | None = 0.0
        if wait and not self._report():
            wakeup = self.core.next_wakeup(now)
            timeout = None if wakeup is None else max(0.0, wakeup - clock.monotonic())
            if timeout is None and self.core.idle:
                timeout = 0.0
        self.network.poll(timeout)
        self._next_pump = now + max(self.settings.linger_ms, 1) / 1000
        self._report()

    def _finish(self, produce: ProduceCall, outcome: object) -> None:
        self.core.finish(produce, outcome, self.cluster.clock.monotonic())

    def _report(self) -> bool:
        completed = self.core.take_completed()
        if completed and self._on_completed is not None:
            self._on_completed(completed)
        return bool(completed)
