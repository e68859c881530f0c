"""The seam for threads: the only way that work leaves the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from tidelog.host.prompt import Prompt

T = TypeVar("T")


class Offload(Protocol):
    """Runs a blocking function elsewhere and gives its result back on the loop."""

    def run(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Start `function(*args)` off the loop; call only from the loop's thread."""
        ...

    def close(self) -> None:
        """Wait for what runs and stop the threads."""
        ...


class ThreadOffload:
    """A small pool of threads, one pool per broker, so that two brokers never share a queue."""

    def __init__(self, name: str, threads: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)

    def run(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: Prompt[T] = Prompt(loop=loop)
        work = self._pool.submit(function, *args)

        def done(work: Future[T]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(future.take_over, work)

        def cancel(future: asyncio.Future[Any]) -> None:
            if future.cancelled():
                work.cancel()

        work.add_done_callback(done)
        future.add_done_callback(cancel)
        return future

    def close(self) -> None:
        self._pool.shutdown(wait=True)
