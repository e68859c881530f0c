"""The seam for threads: the only way that work leaves the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

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
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def close(self) -> None:
        self._pool.shutdown(wait=True)
