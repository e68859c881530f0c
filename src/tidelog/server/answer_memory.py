"""The bound on what large answers on their way out hold, over all connections together.

An answer that is larger than a socket takes at once is charged here for its bytes, and waits before
it is sent while others use up the memory. The charge lies in the last bytes of the answer and ends
with them: when they are written, or dropped with their connection.

While answers wait, readers that took nothing for five seconds lose their connections, the one that
holds most first, until there is room for those that wait. Without waiters nobody is judged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary, ref

from tidelog.protocol.primitives import Part, part_size
from tidelog.server.pieces import call_later

MIB = 1024 * 1024
# Librdkafka takes no answer over 100 MB. Offsets of a million partitions have 40 MB.
ANSWER_BYTES_MAX = 64 * MIB
ANSWERS_BYTES_MAX = 2 * ANSWER_BYTES_MAX
# Answers that wait are in memory too. Beyond this they keep their turns, so that no more are made.
WAITING_BYTES_MAX = ANSWER_BYTES_MAX
# A smaller one fits into the buffers that a connection has anyway.
LARGE_ANSWER_BYTES = 64 * 1024
STALL_SECONDS_MAX = 5.0


class Reader(Protocol):
    """A connection, as seen from here."""

    @property
    def bytes_taken(self) -> int | None:
        """How much its peer has taken so far; None while nothing waits for the peer."""
        ...

    def drop_unread(self) -> None:
        """Others wait for the memory of an answer that is not read: close the connection."""
        ...


class AnswerMemory:
    """Counts the bytes of large answers, queues those that must wait, drops those not read."""

    def __init__(
        self,
        limit_bytes: int = ANSWERS_BYTES_MAX,
        schedule: Callable[[float, Callable[[], None]], None] = call_later,
    ) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._schedule = schedule
        # Weak, since a connection must be freed as soon as it is gone: it may own the last bytes.
        self._charges: WeakKeyDictionary[Reader, int] = WeakKeyDictionary()
        # What each reader had taken when the period began; None while nobody is judged.
        self._marks: WeakKeyDictionary[Reader, int] | None = None

    @property
    def waiting_bytes(self) -> int:
        """The size of all answers that wait for room."""
        return sum(size for size, _ in self._waiting)

    def charge(self, parts: list[Part], reader: Reader) -> bool:
        """Charge an answer and return True, or False where it must wait for room."""
        size = held_bytes(parts)
        if self._waiting or not self._has_room(size):
            return False
        self._put(parts, size, reader)
        return True

    async def wait_and_charge(self, parts: list[Part], reader: Reader) -> None:
        """Charge an answer as soon as there is room for it."""
        size = held_bytes(parts)
        if self._waiting or not self._has_room(size):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, turn))
            if self._marks is None:
                self._begin_period()
            try:
                await turn
            except asyncio.CancelledError:
                if turn.cancelled():
                    self._waiting = deque(each for each in self._waiting if each[1] is not turn)
                    self._serve_waiting()
                else:
                    self._release(size)
                raise
            self.held_bytes -= size
        self._put(parts, size, reader)

    def end_charge(self, reader: Reader | None, size: int) -> None:
        """An answer has left, or was dropped; its reader may be gone already."""
        if reader is not None:
            left = self._charges[reader] - size
            if left:
                self._charges[reader] = left
            else:
                del self._charges[reader]
        self._release(size)

    def _release(self, size: int) -> None:
        self.held_bytes -= size
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            waited_for, turn = self._waiting.popleft()
            if not turn.done():
                # Set aside at once, lest somebody else takes the room before the waiter runs.
                self.held_bytes += waited_for
                turn.set_result(None)

    def _has_room(self, size: int) -> bool:
        # Whatever its size, one answer at a time always has room.
        return self.held_bytes == 0 or self.held_bytes + size <= self._limit_bytes

    def _put(self, parts: list[Part], size: int, reader: Reader) -> None:
        """Put the charge into the last bytes of the answer."""
        for place in range(len(parts) - 1, -1, -1):
            part = parts[place]
            if isinstance(part, (bytes, bytearray, memoryview)):
                self.held_bytes += size
                self._charges[reader] = self._charges.get(reader, 0) + size
                parts[place] = _LastPiece.charged(bytes(part), self, size, reader)
                return

    # Judging

    def _readers(self) -> list[Reader]:
        # A charge may end at any moment, where the collector runs: walk over a copy.
        readers = [reference() for reference in self._charges.keyrefs()]
        return [reader for reader in readers if reader is not None]

    def _begin_period(self) -> None:
        self._marks = WeakKeyDictionary()
        for reader in self._readers():
            taken = reader.bytes_taken
            if taken is not None:
                self._marks[reader] = taken
        self._schedule(STALL_SECONDS_MAX, self._end_period)

    def _end_period(self) -> None:
        if self._waiting:
            self._drop_the_stalled()
            self._begin_period()
        else:
            self._marks = None

    def _drop_the_stalled(self) -> None:
        """Drop answers that are not read, until those that wait could have what they want."""
        assert self._marks is not None
        stalled = [
            (self._charges.get(reader, 0), reader)
            for reader in self._readers()
            if reader in self._marks and reader.bytes_taken == self._marks[reader]
        ]
        stalled.sort(key=lambda each: each[0], reverse=True)
        lacking = self.waiting_bytes + self.held_bytes - self._limit_bytes
        for size, reader in stalled:
            if lacking <= 0:
                return
            lacking -= size
            reader.drop_unread()


class _LastPiece(bytes):
    """The last bytes of an answer; the answer's charge ends when nobody needs them any more."""

    _memory: AnswerMemory
    _size: int
    _reader: ref[Reader]

    @classmethod
    def charged(cls, content: bytes, memory: AnswerMemory, size: int, reader: Reader) -> _LastPiece:
        made = cls(content)
        made._memory = memory
        made._size = size
        made._reader = ref(reader)
        return made

    def __del__(self) -> None:
        self._memory.end_charge(self._reader(), self._size)


def held_bytes(parts: list[Part]) -> int:
    """What an answer holds in memory: records are read from files when they are sent."""
    return sum(
        part_size(part) for part in parts if isinstance(part, (bytes, bytearray, memoryview))
    )
