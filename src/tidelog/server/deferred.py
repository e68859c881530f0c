"""What a broker does later, if it is still there then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.host.host import Host


class DeferredWork:
    """Unlinking and the like: later, on a thread, and not at all once the broker stops."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._timers: set[asyncio.TimerHandle] = set()

    def run_later(self, delay_seconds: float, work: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def start() -> None:
            self._timers.discard(timer)
            self._host.offload.run(work)

        timer = loop.call_later(delay_seconds, start)
        self._timers.add(timer)

    def stop(self) -> None:
        """Forget what is left: the next start deletes what carries a deleted name."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
