"""Waiting as a value: for an offset to be committed, or for a partition to have news.

A produce waits in `CommitWaiters` for the high watermark to pass its last offset; a fetch watches
a partition through `Watchers` and is told of every move of what it may read. Both are plain
collections owned by one partition: no lock, no thread, no timer of their own.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from tidelog.errors import KafkaError


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


class Watchers:
    """Callbacks of those who want to hear that a partition's readable end has moved."""

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._keys = count()

    def __len__(self) -> int:
        return len(self._callbacks)

    def add(self, callback: Callable[[], None]) -> int:
        """Register; the key that is returned removes the callback again."""
        key = next(self._keys)
        self._callbacks[key] = callback
        return key

    def remove(self, key: int) -> None:
        self._callbacks.pop(key, None)

    def notify(self) -> None:
        # A callback may remove itself or others: walk over a copy, and only where there is any.
        if self._callbacks:
            for callback in tuple(self._callbacks.values()):
                callback()
