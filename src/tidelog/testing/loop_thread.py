"""An event loop on a thread of its own, for what tests and notebooks call from theirs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads, from the making of it to `close`."""

    def __init__(self, name: str, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        self._loop.close()
