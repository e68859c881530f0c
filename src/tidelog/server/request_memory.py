"""The bound on what requests on their way in may hold, over all connections together.

Receive buffers grow as bytes arrive, and every growth is asked for here. When the pool is spent a
connection waits, unread, until others have finished. So that half-received frames can never block
one another for ever, the size of one largest frame is kept apart as a lane: one waiting connection
at a time may use it to finish its frame. Memory held is therefore at most the configured pool.
"""

from __future__ import annotations

from collections import deque
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
        self._waiting: deque[tuple[Holder, int]] = deque()

    @property
    def reserved_bytes(self) -> int:
        return sum(self._reserved.values())

    @property
    def under_pressure(self) -> bool:
        """True while somebody waits: buffers should be given back rather than kept for reuse."""
        return self._lane is not None

    def holds_lane(self, holder: Holder) -> bool:
        return self._lane is holder

    def reserve(self, holder: Holder, size_bytes: int) -> bool:
        """True where `holder` may grow by `size_bytes` now; else it is called back in turn."""
        if self._grant(holder, size_bytes):
            return True
        self._waiting.append((holder, size_bytes))
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
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not holder)
        self.release(holder, self._reserved.get(holder, 0))

    def _grant(self, holder: Holder, size_bytes: int) -> bool:
        if self._lane is holder:
            return True
        if not self._waiting and size_bytes <= self._free:
            self._free -= size_bytes
            self._reserved[holder] = self._reserved.get(holder, 0) + size_bytes
            return True
        if self._lane is None:
            self._lane = holder
            return True
        return False

    def _serve_waiting(self) -> None:
        while self._waiting:
            holder, size_bytes = self._waiting[0]
            if size_bytes <= self._free:
                self._free -= size_bytes
                self._reserved[holder] = self._reserved.get(holder, 0) + size_bytes
            elif self._lane is None:
                self._lane = holder
            else:
                return
            self._waiting.popleft()
            holder.memory_granted()
