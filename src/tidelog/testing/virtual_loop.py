"""An event loop whose time is virtual: it jumps to the next timer whenever nothing is ready.

A test that waits for a day takes a millisecond, and takes the same course at every run: callbacks
run in the order in which they became ready, and work that leaves the loop runs on it after delays
drawn from a seed. There are no threads and no sockets.

    @virtual_time
    async def test_a_day_passes() -> None:
        host = virtual_host(seed=1)
        await asyncio.sleep(86_400)

Where nothing is ready and no timer is set, nothing will ever happen again: `DeadlockError` then
names the tasks that wait. The same error ends a run that goes past its limit of virtual time.
"""

from __future__ import annotations

import asyncio
import functools
import math
import random
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from tidelog.host.host import Host
from tidelog.testing.disk import SimulatedDisk

P = ParamSpec("P")
T = TypeVar("T")

# Neither clock starts at nought, which code under test may take for "never".
_START_SECONDS = 1_000.0
_START_WALL_MS = 1_700_000_000_000
_DAY_SECONDS = 86_400.0


class DeadlockError(RuntimeError):
    """What the test waits for will not happen."""


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without sockets or threads that never waits."""

    def __init__(self, limit_seconds: float = _DAY_SECONDS) -> None:
        super().__init__()
        self._now = _START_SECONDS
        self._limit = _START_SECONDS + limit_seconds
        # A timer is due where it lies before now and this; it must not vanish beside years.
        self._clock_resolution = 1e-6
        # The base class asks its selector to wait; for this loop that is to move the time.
        self._selector = self

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[object]:
        """Move the time to the next timer instead of waiting for it."""
        if timeout is None:
            raise DeadlockError(
                f"nothing is ready and no timer is set; still waiting: {self._who_waits()}"
            )
        self._now += timeout
        if self._now > self._limit:
            # The tasks that are cancelled now may still need time to end.
            self._limit = math.inf
            raise DeadlockError(
                f"{self._now - _START_SECONDS:.0f} s of virtual time have passed, which is more"
                f" than the limit; still waiting: {self._who_waits()}"
            )
        return []

    def _who_waits(self) -> str:
        waiting = []
        for task in sorted(asyncio.all_tasks(self), key=lambda task: task.get_name()):
            place = "not started"
            for frame in task.get_stack(limit=1):
                place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            waiting.append(f"{task.get_name()} at {place}")
        return ", ".join(waiting) or "no task"

    def _process_events(self, event_list: list[object]) -> None:
        """Nothing comes from outside."""

    def _write_to_self(self) -> None:
        """`call_soon_threadsafe` has nobody to wake: everything runs on this thread."""

    def run_in_executor(self, executor: object, func: object, *args: object) -> Any:
        raise RuntimeError("a virtual loop has no threads: hand the work to a VirtualOffload")


class VirtualClock:
    """Both clocks over a loop's time; the wall clock can be made to jump."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # The wall clock when the loop's time was nought.
        self._wall_ms = _START_WALL_MS - int(_START_SECONDS * 1000)

    def wall_ms(self) -> int:
        return self._wall_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def cpu(self) -> float:
        """Work takes no time here."""
        return 0.0

    def jump(self, ms: int) -> None:
        """Set the wall clock forward, or back."""
        self._wall_ms += ms


class SeededRandom:
    """Random values that are the same at every run."""

    def __init__(self, seed: int = 0) -> None:
        # By seed, to have a failure again.
        self._random = random.Random(seed)  # nosec B311

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


class _Work:
    """A function that was handed to the offload, and who waits for it."""

    __slots__ = ("call", "future")

    def __init__(self, call: Callable[[], object], future: asyncio.Future[Any]) -> None:
        self.call = call
        self.future = future


class VirtualOffload:
    """An `Offload` on the loop itself: as many at a time as there would be threads.

    The work is done in one go, after a delay; its result is seen after another. Both are drawn from
    the seed, up to `delay_seconds`, so that other work comes between and ends in another order.
    """

    def __init__(self, seed: int = 0, *, threads: int = 4, delay_seconds: float = 0.01) -> None:
        self._chance = random.Random(seed)  # nosec B311
        self._delay_seconds = delay_seconds
        self._idle = threads
        self._queue: deque[_Work] = deque()
        # What a thread has taken up and not begun.
        self._begun: dict[_Work, asyncio.TimerHandle] = {}
        self._closed = False

    def run(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        if self._closed:
            raise RuntimeError("the offload is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append(_Work(functools.partial(function, *args), future))
        self._take_up()
        return future

    def close(self) -> None:
        """Do what is left now, as one who waits for the threads would see it."""
        self._closed = True
        for timer in self._begun.values():
            timer.cancel()
        for work in (*self._begun, *self._queue):
            _finish(work.future, *_outcome(work))
        self._begun.clear()
        self._queue.clear()

    def _take_up(self) -> None:
        while self._idle and self._queue:
            self._idle -= 1
            work = self._queue.popleft()
            self._begun[work] = self._later(self._do, work)

    def _do(self, work: _Work) -> None:
        del self._begun[work]
        # As with threads, what was cancelled before its turn is not done.
        outcome = (None, None) if work.future.cancelled() else _outcome(work)
        self._later(_finish, work.future, *outcome)
        self._idle += 1
        self._take_up()

    def _later(self, callback: Callable[..., None], *args: object) -> asyncio.TimerHandle:
        delay = self._chance.uniform(0, self._delay_seconds)
        return asyncio.get_running_loop().call_later(delay, callback, *args)


def _outcome(work: _Work) -> tuple[object, BaseException | None]:
    try:
        return work.call(), None
    except BaseException as error:
        return None, error


def _finish(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def virtual_host(seed: int = 0, disk: SimulatedDisk | None = None) -> Host:
    """A machine on the running loop: its clocks, a disk in memory, no threads, chance by seed."""
    clock = VirtualClock(asyncio.get_running_loop())
    if disk is None:
        disk = SimulatedDisk(seed, now_ms=clock.wall_ms)
    return Host(clock, disk, VirtualOffload(seed), SeededRandom(seed))


def run_virtual(coroutine: Coroutine[Any, Any, T], *, limit_seconds: float = _DAY_SECONDS) -> T:
    """Run the coroutine to its end on a loop of its own; `asyncio.run` for virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(limit_seconds)) as runner:
        try:
            return runner.run(coroutine)
        except DeadlockError:
            for task in asyncio.all_tasks(runner.get_loop()):
                task.cancel()
            raise


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a plain test of an asynchronous one; it gets its fixtures as usual."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_virtual(test(*args, **kwargs))

    return run
