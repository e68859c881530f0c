"""Deadlines of a state machine, kept apart from any clock.

Whoever owns the queue says what time it is. Moving a deadline into the future, which every
heartbeat does, costs no more than a dictionary look-up: the entry in the heap stays where it is and
is put back when it comes up too early.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, Generic, TypeVar

T = TypeVar("T")

TimerKey = tuple[str, ...]
# Entries that were cancelled stay in the heap; from here on they are swept out when they prevail.
_SWEEP_FROM: Final = 1024


class _Timer(Generic[T]):
    __slots__ = ("action", "deadline_ms", "queued_ms", "sequence")

    def __init__(self, deadline_ms: int, action: T, sequence: int) -> None:
        self.deadline_ms = deadline_ms
        self.action = action
        self.queued_ms = deadline_ms
        self.sequence = sequence


class TimerQueue(Generic[T]):
    """Actions by key, each due at a time; a key has one deadline at most."""

    def __init__(self) -> None:
        self._timers: dict[TimerKey, _Timer[T]] = {}
        self._heap: list[tuple[int, int, TimerKey]] = []
        self._sequences = count()

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._timers

    def schedule(self, key: TimerKey, deadline_ms: int, action: T) -> None:
        """Have the action come up at the deadline, instead of what the key had before."""
        timer = self._timers.get(key)
        if timer is not None and timer.queued_ms <= deadline_ms:
            timer.deadline_ms = deadline_ms
            timer.action = action
            return
        timer = _Timer(deadline_ms, action, next(self._sequences))
        self._timers[key] = timer
        heapq.heappush(self._heap, (deadline_ms, timer.sequence, key))
        if len(self._heap) > _SWEEP_FROM + 2 * len(self._timers):
            self._sweep()

    def cancel(self, key: TimerKey) -> None:
        self._timers.pop(key, None)

    def cancel_where(self, matches: Callable[[TimerKey], bool]) -> None:
        for key in [key for key in self._timers if matches(key)]:
            del self._timers[key]

    def next_deadline_ms(self) -> int | None:
        """When to look again; may be earlier than the first deadline, never later."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[tuple[TimerKey, T]]:
        """Take out what is due, the earliest first; what an action schedules for now included."""
        while True:
            self._drop_stale()
            if not self._heap or self._heap[0][0] > now_ms:
                return
            _, _, key = heapq.heappop(self._heap)
            timer = self._timers[key]
            if timer.deadline_ms > now_ms:
                timer.queued_ms = timer.deadline_ms
                timer.sequence = next(self._sequences)
                heapq.heappush(self._heap, (timer.deadline_ms, timer.sequence, key))
                continue
            del self._timers[key]
            yield key, timer.action

    def _drop_stale(self) -> None:
        heap = self._heap
        while heap:
            timer = self._timers.get(heap[0][2])
            if timer is not None and timer.sequence == heap[0][1]:
                return
            heapq.heappop(heap)

    def _sweep(self) -> None:
        self._heap = [(each.queued_ms, each.sequence, key) for key, each in self._timers.items()]
        heapq.heapify(self._heap)
