"""The bound on what incoming requests may hold, over all connections together.

Receive buffers grow as bytes arrive, and every growth is asked for here. When the pool is spent a
connection waits, unread, until others have finished. The size of one largest frame is kept apart as
a lane, so that half-received frames cannot block one another for ever: one waiting connection at a
time may use it to finish its frame. The smallest frame that waits is served first.

While connections wait, the others must earn what they hold: every half second they are judged by
the bytes that arrived, and a frame must fill its memory within five seconds. The slowest are
dropped until there is enough for those that wait. Without waiters nobody is judged.

Exempt is who could not have sent: a connection that waited for memory itself, or one that is not
read because its earlier request is not answered yet. The latter is dropped once it has held memory
for thirty seconds while others waited: by then clients have given up their requests.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Protocol

from tidelog.server.pieces import call_later

PERIOD_SECONDS = 0.5
FILL_SECONDS_MAX = 5.0
_LEAST_SHARE = PERIOD_SECONDS / FILL_SECONDS_MAX
_LANE_PERIODS_MAX = round(FILL_SECONDS_MAX / PERIOD_SECONDS)
BLOCKED_SECONDS_MAX = 30.0
_BLOCKED_PERIODS_MAX = round(BLOCKED_SECONDS_MAX / PERIOD_SECONDS)


class Holder(Protocol):
    """A connection, as seen from the pool."""

    bytes_received: int

    @property
    def held_bytes(self) -> int:
        """The size of its buffer."""
        ...

    @property
    def is_receiving(self) -> bool:
        """True where it waits for nothing but the rest of a frame, and we read it."""
        ...

    def memory_granted(self) -> None:
        """The growth that had to wait may happen now."""
        ...

    def return_unused_memory(self) -> None:
        """Others wait for memory: give back what no frame needs."""
        ...

    def drop(self) -> None:
        """Others wait for the memory of a frame that does not arrive: close the connection."""
        ...


class RequestMemory:
    """Counts reserved bytes, queues those who must wait for some, drops those who squander it."""

    def __init__(
        self,
        limit_bytes: int,
        frame_bytes_max: int,
        schedule: Callable[[float, Callable[[], None]], None] = call_later,
    ) -> None:
        self._free = max(0, limit_bytes - frame_bytes_max)
        self._reserved: dict[Holder, int] = {}
        self._lane: Holder | None = None
        self._lane_periods = 0
        # (frame size, age, who, growth); entries of those not in `_waiting` are stale.
        self._queue: list[tuple[int, int, Holder, int]] = []
        self._waiting: set[Holder] = set()
        self._ages = count()
        self._schedule = schedule
        # What those that are judged had received when the period began; None while nobody is.
        self._marks: dict[Holder, int] | None = None
        # For how many periods each has held memory without being read.
        self._blocked_periods: dict[Holder, int] = {}

    @property
    def reserved_bytes(self) -> int:
        return sum(self._reserved.values())

    @property
    def under_pressure(self) -> bool:
        """True while the pool is spent: buffers should be given back rather than kept for reuse."""
        return self._lane is not None or bool(self._waiting)

    def reserve(self, holder: Holder, growth_bytes: int, frame_bytes: int) -> bool:
        """True where `holder` may grow now to receive its frame; else it is called back in turn."""
        if self._lane is holder:
            return True
        if self._is_first(frame_bytes) and self._grant(holder, growth_bytes):
            return True
        self._waiting.add(holder)
        heapq.heappush(self._queue, (frame_bytes, next(self._ages), holder, growth_bytes))
        self.excuse(holder)
        if self._marks is None:
            self._begin_period()
        return False

    def excuse(self, holder: Holder) -> None:
        """`holder` is not read, or not all the time: do not judge it in this period."""
        if self._marks is not None:
            self._marks.pop(holder, None)

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

    def _is_first(self, frame_bytes: int) -> bool:
        """True where no smaller frame waits."""
        queue = self._queue
        while queue and queue[0][2] not in self._waiting:
            heapq.heappop(queue)
        return not queue or frame_bytes < queue[0][0]

    def _grant(self, holder: Holder, growth_bytes: int) -> bool:
        if growth_bytes <= self._free:
            self._free -= growth_bytes
            self._reserved[holder] = self._reserved.get(holder, 0) + growth_bytes
            return True
        if self._lane is None:
            self._lane = holder
            self._lane_periods = 0
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

    # Judging

    def _holders(self) -> list[Holder]:
        """Those that hold memory and are not themselves kept waiting."""
        holders = [holder for holder in self._reserved if holder not in self._waiting]
        if self._lane is not None and self._lane not in self._reserved:
            holders.append(self._lane)
        return holders

    def _begin_period(self) -> None:
        self._marks = {
            holder: holder.bytes_received for holder in self._holders() if holder.is_receiving
        }
        self._schedule(PERIOD_SECONDS, self._end_period)

    def _end_period(self) -> None:
        for holder in self._holders():
            holder.return_unused_memory()
        self._lane_periods += 1
        self._blocked_periods = {
            holder: self._blocked_periods.get(holder, 0) + 1
            for holder in self._holders()
            if not holder.is_receiving
        }
        if self._waiting:
            self._drop_the_slowest()
        if self._waiting:
            self._begin_period()
        else:
            self._marks = None
            self._blocked_periods.clear()

    def _drop_the_slowest(self) -> None:
        """Drop frames that do not arrive, until those that wait could have what they want."""
        lacking = sum(entry[3] for entry in self._queue if entry[2] in self._waiting) - self._free
        lane = self._lane
        if lane is not None and lane.is_receiving and self._lane_periods > _LANE_PERIODS_MAX:
            lane.drop()
        for share, _, holder in sorted(self._shares()):
            if share >= _LEAST_SHARE or lacking <= 0:
                return
            lacking -= self._reserved.get(holder, 0)
            holder.drop()

    def _shares(self) -> list[tuple[float, int, Holder]]:
        """For each that is judged: the part of its memory that arrived in the period."""
        assert self._marks is not None
        shares = []
        for place, holder in enumerate(self._holders()):
            mark = self._marks.get(holder)
            if mark is not None and holder.is_receiving:
                arrived = holder.bytes_received - mark
                shares.append((arrived / max(holder.held_bytes, 1), place, holder))
            elif self._blocked_periods.get(holder, 0) > _BLOCKED_PERIODS_MAX:
                shares.append((0.0, place, holder))
        return shares
