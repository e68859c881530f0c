"""The bound on what large answers on their way out hold, over all connections together.

An answer that is larger than a socket takes at once stays in memory until its reader has read it.
Each is charged here for its bytes, and waits before it is sent while others use up the memory. The
charge lies in the last bytes of the answer and ends with them: when they are written, or when the
connection is gone and they are dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque

from tidelog.protocol.primitives import Part, part_size

MIB = 1024 * 1024
# Librdkafka takes no answer over 100 MB. Offsets of a million partitions have 40 MB.
ANSWER_BYTES_MAX = 64 * MIB
ANSWERS_BYTES_MAX = 2 * ANSWER_BYTES_MAX
# A smaller one fits into the buffers that a connection has anyway.
LARGE_ANSWER_BYTES = 64 * 1024


class AnswerMemory:
    """Counts the bytes of large answers and queues those that must wait for room."""

    def __init__(self, limit_bytes: int = ANSWERS_BYTES_MAX) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def charge(self, parts: list[Part]) -> bool:
        """Charge an answer and return True, or False where it must wait for room."""
        size = held_bytes(parts)
        if self._waiting or not self._has_room(size):
            return False
        self._put(parts, size)
        return True

    async def wait_and_charge(self, parts: list[Part]) -> None:
        """Charge an answer as soon as there is room for it."""
        size = held_bytes(parts)
        if self._waiting or not self._has_room(size):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.cancelled():
                    self._waiting = deque(each for each in self._waiting if each[1] is not turn)
                else:
                    self.release(size)
                raise
            self.held_bytes -= size
        self._put(parts, size)

    def release(self, size: int) -> None:
        """An answer has left, or was dropped."""
        self.held_bytes -= size
        while self._waiting and self._has_room(self._waiting[0][0]):
            waited_for, turn = self._waiting.popleft()
            if not turn.done():
                # Set aside at once, lest somebody else takes the room before the waiter runs.
                self.held_bytes += waited_for
                turn.set_result(None)

    def _has_room(self, size: int) -> bool:
        # Whatever its size, one answer at a time always has room.
        return self.held_bytes == 0 or self.held_bytes + size <= self._limit_bytes

    def _put(self, parts: list[Part], size: int) -> None:
        """Put the charge into the last bytes of the answer."""
        self.held_bytes += size
        for place in range(len(parts) - 1, -1, -1):
            part = parts[place]
            if isinstance(part, (bytes, bytearray, memoryview)):
                parts[place] = _LastPiece.charged(bytes(part), self, size)
                return
        self.release(size)


class _LastPiece(bytes):
    """The last bytes of an answer; the answer's charge ends when nobody needs them any more."""

    _memory: AnswerMemory
    _size: int

    @classmethod
    def charged(cls, content: bytes, memory: AnswerMemory, size: int) -> _LastPiece:
        made = cls(content)
        made._memory = memory
        made._size = size
        return made

    def __del__(self) -> None:
        self._memory.release(self._size)


def held_bytes(parts: list[Part]) -> int:
    """What an answer holds in memory: records are read from files when they are sent."""
    return sum(
        part_size(part) for part in parts if isinstance(part, (bytes, bytearray, memoryview))
    )
