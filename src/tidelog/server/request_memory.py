"""The bound on what requests on their way in may hold, over all connections together.

Receive buffers grow as bytes arrive, and every growth is asked for here. When the pool is spent a
connection waits, unread, until others have finished. So that half-received frames can never block
one another for ever, the size of one largest frame is kept apart as a lane: one waiting connection
at a time may use it to finish its frame. Those that wait are served by the size of their frame, the
smallest first: whoever announces 100 MiB does not hold up whoever sends one. Memory held is
therefore at most the configured pool.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Protocol


class Holder(Protocol):
    """A connection, as seen from the pool."""

    def memory_granted(self) -> None:
        """The growth that had to wait may happen now."""
        ...


class RequestMemory:
    """Counts reserved bytes and queues those who must wait for some."""

    def __init__(self, limit_bytes: int, frame_bytes_max: int) -> None:
        self._free = max(0, limit_bytes - frame_bytes_max)
        self._reserved: dict[Holder, int] = {}
        self._lane: Holder | None = None
        # (frame size, age, who, growth); whoever is not in `_waiting` any more has gone.
        self._queue: list[tuple[int, int, Holder, int]] = []
        self._waiting: set[Holder] = set()
        self._ages = count()

    @property
    def reserved_bytes(self) -> int:
        return sum(self._reserved.values())

    @property
    def under_pressure(self) -> bool:
        """True while the pool is spent: buffers should be given back rather than kept for reuse."""
        return self._lane is not None

    def holds_lane(self, holder: Holder) -> bool:
        return self._lane is holder

    def reserve(self, holder: Holder, growth_bytes: int, frame_bytes: int) -> bool:
        """True where `holder` may grow now to receive its frame; else it is called back in turn."""
        if self._lane is holder:
            return True
        if not self._waiting and self._grant(holder, growth_bytes):
            return True
        self._waiting.add(holder)
        heapq.heappush(self._queue, (frame_bytes, next(self._ages), holder, growth_bytes))
        return False

    def release(self, holder: Holder, size_bytes: int) -> None:
        """`holder` shrank by `size_bytes`; gives up the lane where it had it."""
        if self._lane is holder:
            self._lane = None
        held = self._reserved.get(holder, 0)
        given = min(held, size_bytes)
        self._free += given
        if held > given:
            self._reserved[holder] = held - given
        else:
            self._reserved.pop(holder, None)
        self._serve_waiting()

    def forget(self, holder: Holder) -> None:
        """The connection is gone."""
        self._waiting.discard(holder)
        self.release(holder, self._reserved.get(holder, 0))

    def _grant(self, holder: Holder, growth_bytes: int) -> bool:
        if growth_bytes <= self._free:
            self._free -= growth_bytes
            self._reserved[holder] = self._reserved.get(holder, 0) + growth_bytes
            return True
        if self._lane is None:
            self._lane = holder
            return True
        return False

    def _serve_waiting(self) -> None:
        queue = self._queue
        while queue:
            _, _, holder, growth_bytes = queue[0]
            if holder in self._waiting:
                if not self._grant(holder, growth_bytes):
                    return
                self._waiting.discard(holder)
                heapq.heappop(queue)
                holder.memory_granted()
            else:
                heapq.heappop(queue)
