"""Deadlines of a state machine, kept apart from any clock.

A timer is a value that says what it is for; the queue's owner says what time it is, and knows what
to do when a timer comes up. Moving a deadline into the future, which every heartbeat does, costs no
more than a dictionary look-up: the entry in the heap stays where it is and is put back when it
comes up too early.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)

# Entries that were cancelled stay in the heap; from here on they are swept out when they prevail.
_SWEEP_FROM: Final = 1024


class Now(NamedTuple):
    """One moment: `ms` never runs backwards and times waits; `wall_ms` dates what is kept."""

    ms: int
    wall_ms: int


class _Entry:
    __slots__ = ("deadline_ms", "queued_ms", "sequence")

    def __init__(self, deadline_ms: int, sequence: int) -> None:
        self.deadline_ms = deadline_ms
        self.queued_ms = deadline_ms
        self.sequence = sequence


class TimerQueue(Generic[T]):
    """Timers, each due at a time; equal ones are the same timer and have one deadline."""

    def __init__(self) -> None:
        self._entries: dict[T, _Entry] = {}
        self._heap: list[tuple[int, int, T]] = []
        self._sequences = count()
        # The earliest deadline that can be given. While timers are taken out, it lies after them:
        # one that is scheduled again whenever it comes up must not make that endless.
        self._earliest_ms = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, timer: T) -> bool:
        return timer in self._entries

    def schedule(self, timer: T, deadline_ms: int) -> None:
        """Have the timer come up at the deadline, and not when it was to come up before."""
        deadline_ms = max(deadline_ms, self._earliest_ms)
        entry = self._entries.get(timer)
        if entry is not None and entry.queued_ms <= deadline_ms:
            entry.deadline_ms = deadline_ms
            return
        entry = self._entries[timer] = _Entry(deadline_ms, next(self._sequences))
        heapq.heappush(self._heap, (deadline_ms, entry.sequence, timer))
        if len(self._heap) > _SWEEP_FROM + 2 * len(self._entries):
            self._sweep()

    def cancel(self, timer: T) -> None:
        self._entries.pop(timer, None)

    def next_deadline_ms(self) -> int | None:
        """When to look again; may be earlier than the first deadline, never later."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[T]:
        """Take out what is due, the earliest first; what is scheduled meanwhile comes up later."""
        self._earliest_ms = now_ms + 1
        try:
            while (timer := self._take(now_ms)) is not None:
                yield timer
        finally:
            self._earliest_ms = 0

    def _take(self, now_ms: int) -> T | None:
        while True:
            self._drop_stale()
            if not self._heap or self._heap[0][0] > now_ms:
                return None
            _, _, timer = heapq.heappop(self._heap)
            entry = self._entries[timer]
            if entry.deadline_ms <= now_ms:
                del self._entries[timer]
                return timer
            entry.queued_ms = entry.deadline_ms
            entry.sequence = next(self._sequences)
            heapq.heappush(self._heap, (entry.deadline_ms, entry.sequence, timer))

    def _drop_stale(self) -> None:
        heap = self._heap
        while heap:
            entry = self._entries.get(heap[0][2])
            if entry is not None and entry.sequence == heap[0][1]:
                return
            heapq.heappop(heap)

    def _sweep(self) -> None:
        self._heap = [(each.queued_ms, each.sequence, key) for key, each in self._entries.items()]
        heapq.heapify(self._heap)
