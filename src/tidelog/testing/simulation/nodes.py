"""Machines on one virtual event loop: each callback belongs to a node, which may pause or crash.

A context variable names the node for which code runs; asyncio hands it on to every callback, timer
and task that the code starts. So a crash can drop all that a node still had to do, and a pause can
hold it, without the code under test knowing.

Within a node callbacks run first in, first out, as on a real loop. Between nodes the order is drawn
from the seed: whichever node has something to do may be next. The same seed gives the same run.
Each node has a clock of its own, which may go faster or slower than the others'.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import heapq
import inspect
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar, TypeVarTuple

from tidelog.testing.virtual_loop import DeadlockError, VirtualLoop

_ROUNDING_S: Final = 1e-9
_NOTES_MAX: Final = 1000

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Node:
    """One machine, in one life: it is up, paused or gone. A restart is another node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[asyncio.Handle] = deque()
        self.is_paused = False
        self.is_gone = False
        # How fast its clock goes, and where it stood when the loop's time was nought.
        self.clock_rate = 1.0
        self.clock_offset = 0.0
        self.tasks: list[asyncio.Task[Any]] = []
        self._context = contextvars.copy_context()
        self._context.run(_NODE.set, None if name == WORLD else self)

    def context(self) -> contextvars.Context:
        """A context of its own for something that belongs to this node."""
        return self._context.copy()

    def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call something as this node, now."""
        assert not self.is_gone, f"{self.name} has crashed"
        return self._context.copy().run(function, *args)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as this node."""
        return self.run(asyncio.get_running_loop().create_task, coroutine)

    def time_at(self, now: float) -> float:
        """What this node's clock shows at a time of the loop."""
        return now * self.clock_rate + self.clock_offset

    def crash(self) -> None:
        """All that it had to do is forgotten, in the middle of whatever it was."""
        self.is_gone = True
        self.ready.clear()
        for task in self.tasks:
            _abandon(task)

    def __repr__(self) -> str:
        return self.name


def _abandon(task: asyncio.Task[Any]) -> None:
    """It will never be resumed. The node keeps it, so that no `finally` of it runs meanwhile."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == "CORO_CREATED":
        coroutine.close()


def _unwind(task: asyncio.Task[Any]) -> None:
    """Leave a coroutine that will never be resumed; one that waits on its way out cannot."""
    coroutine = task.get_coro()
    if inspect.iscoroutine(coroutine):
        with suppress(Exception):
            coroutine.close()


# Code that belongs to no node: the schedule of faults, the clients' side of a test.
WORLD = "world"
_NODE: contextvars.ContextVar[Node | None] = contextvars.ContextVar("node", default=None)

# The context of what belongs to no node.
OUTSIDE = contextvars.Context()


def current_node() -> Node | None:
    """The node for which code runs; None for the world around them."""
    return _NODE.get()


class Handle(asyncio.Handle):
    """A callback, without what asyncio asks and keeps of each for debugging."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class TimerHandle(Handle, asyncio.TimerHandle):
    """A callback of a later time, without what asyncio asks and keeps of each for debugging."""

    __slots__ = ("node",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        Handle.__init__(self, callback, args, loop, context)
        self._when = when
        self._scheduled = True
        # Whose it is; the world's where it is nobody's.
        self.node = self._context.get(_NODE)

    # Where two have the same time, neither is before the other.

    def __lt__(self, other: object) -> bool:
        return False

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class SimulatedLoop(VirtualLoop):
    """A virtual loop that runs one callback at a time, of a node drawn from the seed."""

    def __init__(self, seed: int, limit_seconds: float) -> None:
        super().__init__(limit_seconds)
        # By seed, to have a failure again.
        self.chance = random.Random(seed)  # nosec B311
        self._world = Node(WORLD)
        self._nodes = [self._world]
        self._living = [self._world]
        self._trace = hashlib.blake2b(digest_size=16)
        # What has run and is not in the digest yet, and the time as it is written there.
        self._noted: list[str] = []
        self._noted_at = -1.0
        self._stamp = ""
        # Timers by when they are due. A heap of pairs is compared without calling anything.
        self._timers: list[tuple[float, TimerHandle]] = []
        # What coroutines still do that are collected after the end of the world changes nothing.
        self._is_over = False
        self._first: list[Callable[[], object]] = []
        self.steps = 0
        self.steps_max = 10_000_000
        # Called after every step of a node, with the node that made it.
        self.after_step: Callable[[Node], None] | None = None
        self.set_task_factory(_of_node)  # type: ignore[arg-type]

    @property
    def trace(self) -> str:
        """A digest of all that has run: equal for two runs of one seed, or there is a leak."""
        self._digest()
        return self._trace.hexdigest()

    def add(self, name: str) -> Node:
        """A machine that is up from now on."""
        node = Node(name)
        # The dead are kept until the end, so that no `finally` of theirs runs meanwhile.
        self._nodes.append(node)
        self._living = [each for each in self._nodes if not each.is_gone]
        return node

    def close(self) -> None:
        """The end of the world: nobody is there any more to finish anything."""
        for node in self._nodes:
            if not node.is_gone:
                node.crash()
        self._is_over = True
        # Collected later, their `finally` would meet a loop that is closed.
        for node in self._nodes:
            for task in tuple(node.tasks):
                _unwind(task)
        self._timers.clear()
        super().close()

    @property
    def now(self) -> float:
        """The time of the world, which no node knows."""
        return self._now

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody asked of the dead is not told when they are collected."""
        if not self._is_over:
            super().call_exception_handler(context)

    def later(self, delay_s: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Have something happen that belongs to no node and survives them all."""
        if self._is_over:
            return _never(self, callback)
        return self._call_at(self._now + delay_s, callback, (), OUTSIDE)

    def call_first(self, callback: Callable[[], object]) -> None:
        """Have the world do something after this step and before any other."""
        self._first.append(callback)

    # -- what asyncio calls -----------------------------------------------------------------------

    def time(self) -> float:
        """What the clock of the node shows for which code runs."""
        node = _NODE.get()
        return self._now if node is None else node.time_at(self._now)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if self._is_over:
            return _never(self, callback)
        node = _NODE.get()
        if node is not None:
            # A little late rather than early: what is rounded down would not have come yet.
            when = (when - node.clock_offset) / node.clock_rate + _ROUNDING_S
        return self._call_at(when, callback, args, context)

    def _call_at(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> asyncio.TimerHandle:
        timer = TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, timer))
        return timer

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = Handle(callback, args, self, context)
        node = handle._context.get(_NODE) or self._world
        if not node.is_gone:
            node.ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def _run_once(self) -> None:
        """One callback of one node; where none has any, move the time to the next timer."""
        runnable = [node for node in self._living if node.ready and not node.is_paused]
        self._take_due_timers(wait=not runnable)
        if not runnable:
            runnable = [node for node in self._living if node.ready and not node.is_paused]
        if not runnable:
            return
        node = runnable[0] if len(runnable) == 1 else self._draw(runnable)
        handle = node.ready.popleft()
        if handle._cancelled:
            return
        if self.steps >= self.steps_max:
            raise DeadlockError(
                f"{self.steps} steps and no end; still waiting: {self._who_waits()}"
            )
        self.steps += 1
        self._note(node, handle)
        handle._run()
        if self.after_step is not None and node is not self._world:
            self.after_step(node)
        while self._first:
            OUTSIDE.run(self._first.pop(0))

    def _draw(self, runnable: list[Node]) -> Node:
        """As `Random.choice` draws, without its calls."""
        count = len(runnable)
        bits = count.bit_length()
        drawn = self.chance.getrandbits(bits)
        while drawn >= count:
            drawn = self.chance.getrandbits(bits)
        return runnable[drawn]

    def _take_due_timers(self, *, wait: bool) -> None:
        timers = self._timers
        while timers:
            when, timer = timers[0]
            if not (timer._cancelled or (timer.node is not None and timer.node.is_gone)):
                break
            heapq.heappop(timers)
        if wait and not (timers and when <= self._now):
            self.select(when - self._now if timers else None)
        while timers and timers[0][0] <= self._now + self._clock_resolution:
            when, timer = heapq.heappop(timers)
            # Who waits for a time must find it come, or would wait for it over and over.
            self._now = max(self._now, when)
            node = timer.node or self._world
            if not timer._cancelled and not node.is_gone:
                node.ready.append(timer)

    def mark(self, what: str) -> None:
        """Make something part of the trace that is no callback."""
        self._noted.append(what)

    def _note(self, node: Node, handle: Any) -> None:
        callback = handle._callback
        name = getattr(callback, "__qualname__", None) or type(callback).__qualname__
        if self._now != self._noted_at:
            self._noted_at = self._now
            self._stamp = f"{self._now:.9f} "
        self._noted.append(f"{self._stamp}{node.name} {name}\n")
        if len(self._noted) >= _NOTES_MAX:
            self._digest()

    def _digest(self) -> None:
        self._trace.update("".join(self._noted).encode())
        self._noted.clear()


def _never(loop: asyncio.AbstractEventLoop, callback: Callable[..., object]) -> asyncio.TimerHandle:
    timer = asyncio.TimerHandle(0.0, callback, (), loop)
    timer.cancel()
    return timer


def _of_node(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], **options: Any
) -> asyncio.Task[T]:
    task = asyncio.Task(coroutine, loop=loop, **options)
    context = options.get("context")
    node = _NODE.get() if context is None else context.get(_NODE)
    if node is not None:
        node.tasks.append(task)
        task.add_done_callback(node.tasks.remove)
    return task
