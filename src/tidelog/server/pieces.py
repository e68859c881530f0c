"""Long work, done a piece at a time so that other requests run in between.

Work that may be long is a generator that yields after every unit: an element decoded, a partition
looked at, an entry encoded. `Work` runs it piece by piece. Nearly all work ends within its first
piece and is then over on the spot, without a task. What is longer goes on in a task that pauses
after every piece, and that needs a turn: only a few large requests are in work at a time, so that
what they hold in memory has a bound however many connections ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar, cast

T = TypeVar("T")

# A unit takes some microseconds: a piece takes a millisecond or so, and a request of the usual
# size is done within one.
PIECE_UNITS = 256
# One that waits for the disk should not hold up another that does not.
TURNS = 2


class Work(Generic[T]):
    """A generator that is run a piece at a time; `result` is what it returned."""

    __slots__ = ("_steps", "is_done", "progress", "result")

    def __init__(self, steps: Generator[int, None, T]) -> None:
        self._steps = self._to_the_end(steps)
        self.is_done = False
        # What the generator yielded last.
        self.progress = 0
        self.result: T

    def _to_the_end(self, steps: Generator[int, None, T]) -> Generator[int, None, None]:
        self.result = yield from steps
        self.is_done = True

    def run_piece(self) -> bool:
        """Go on for one piece; True when the work is done."""
        progress = self.progress
        for progress in islice(self._steps, PIECE_UNITS):  # noqa: B007
            pass
        self.progress = progress
        return self.is_done

    def close(self) -> None:
        """Give the work up; the generator hears of it."""
        self._steps.close()


def first_piece(steps: Generator[int, None, T]) -> tuple[bool, T | Generator[int, None, T]]:
    """Run the first piece: True and the result, or False and what is left to do.

    As `Work` does it, for work that is nearly always done after a few steps.
    """
    try:
        for _ in range(PIECE_UNITS):
            next(steps)
    except StopIteration as end:
        return True, end.value
    return False, steps


def call_later(seconds: float, function: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, function)


class Turns:
    """Lets a few tasks at a time do long work, and counts their pauses."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(TURNS)
        self._holders: set[asyncio.Task[object]] = set()
        self.pauses = 0

    async def take(self) -> None:
        """Give the current task a turn, which it keeps until it ends or leaves it."""
        task = _current_task()
        if task in self._holders:
            return
        await self._free.acquire()
        self._holders.add(task)
        task.add_done_callback(self._leave)

    def leave(self) -> None:
        """Give the turn back early, before a wait that may be long."""
        self._leave(_current_task())

    async def pause(self) -> None:
        """Let everything else that is ready run once."""
        self.pauses += 1
        await asyncio.sleep(0)

    async def finish(self, work: Work[T]) -> T:
        """Run what is left of the work, in a turn."""
        try:
            await self.take()
            while not work.run_piece():
                await self.pause()
        except BaseException:
            # Not when the frames of the error are collected, which may be much later.
            work.close()
            raise
        return work.result

    def _leave(self, task: asyncio.Task[object]) -> None:
        if task in self._holders:
            self._holders.remove(task)
            self._free.release()


class Pace:
    """Counts the units of a coroutine's work and pauses it after every piece."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._units = 0

    async def step(self) -> None:
        """Say that a unit is done."""
        self._units += 1
        if self._units >= PIECE_UNITS:
            self._units = 0
            await self._turns.take()
            await self._turns.pause()


class LazyList(list[T]):
    """A list of an answer whose elements are made while they are encoded, and not kept.

    It looks like the list that the message declares, but can be walked over only once.
    """

    def __init__(self, count: int, elements: Iterable[T]) -> None:
        super().__init__()
        self._count = count
        self._elements = elements

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter(self._elements)


def _current_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None, "turns are for tasks"
    return cast("asyncio.Task[object]", task)
