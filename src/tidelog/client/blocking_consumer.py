"""The consumer with plain sockets, without a group; it fetches ahead only while it is polled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from tidelog.client.blocking import Client
from tidelog.client.fetcher import Chunk, FetchCall, FetcherCore
from tidelog.client.offsets import Start, resolve_offsets
from tidelog.client.operation import topic_metadata
from tidelog.client.settings import ConsumerSettings
from tidelog.model import TopicPartition
from tidelog.protocol.batches import Record


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
            self.run(self.core.prepare())
            now = clock.monotonic()
            for fetch in self.core.calls(now):
                self.network.submit(fetch.call, partial(self._finish, fetch))
            if self.core.has_output or now >= until:
                self.network.poll(0.0)
                return
            wakeup = self.core.next_wakeup(now)
            self.network.poll(min(until, wakeup if wakeup is not None else until) - now)

    def _finish(self, fetch: FetchCall, outcome: object) -> None:
        self.core.finish(fetch, outcome, self.cluster.clock.monotonic())
