"""Waiting as a value: for an offset to be committed, or for a partition to have news.

A produce waits in `CommitWaiters` for the high watermark to pass its last offset; a fetch watches
a partition through `Watchers` and hears of the next move of what it may read. Both are plain
collections owned by one partition: no lock, no thread, no timer of their own.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from itertools import count
from typing import Protocol

from tidelog.errors import KafkaError

_log = logging.getLogger(__name__)


class CommitWaiters:
    """Futures keyed by the offset that must be committed before they are done."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        # Equal offsets are told apart by age, so that futures are never compared.
        self._ages = count()

    def __len__(self) -> int:
        return len(self._heap)

    def wait_beyond(self, offset: int) -> asyncio.Future[None]:
        """A future that is done once the committed end is greater than `offset`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._heap, (offset, next(self._ages), future))
        return future

    def advance(self, committed_end: int) -> None:
        """Wake everybody whose offset lies below `committed_end`."""
        heap = self._heap
        while heap and heap[0][0] < committed_end:
            future = heapq.heappop(heap)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: KafkaError) -> None:
        """Wake everybody with an error: the partition moved away, went offline or was deleted."""
        heap, self._heap = self._heap, []
        for _, _, future in heap:
            if not future.done():
                future.set_exception(error)


class Watcher(Protocol):
    """One who waits for news of a partition."""

    def news(self) -> None:
        """What can be read of the partition may have changed; you are not watching any more."""
        ...


class Watchers:
    """Those who want to hear of the next change of what can be read of a partition.

    Each is told once and has to come again to be told again: one who no longer asks costs an
    append nothing, however many there are. A fault of one is logged and reaches nobody else.
    """

    def __init__(self) -> None:
        self._watchers: dict[Watcher, None] = {}

    def __len__(self) -> int:
        return len(self._watchers)

    def add(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def discard(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def notify(self) -> None:
        if self._watchers:
            told, self._watchers = self._watchers, {}
            for watcher in told:
                try:
                    watcher.news()
                except Exception:
                    # The append is done, and the others want to hear of it.
                    _log.exception("a watcher failed at its news")
