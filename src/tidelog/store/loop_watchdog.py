"""Gives a session up when the event loop hangs: others take over, so this broker must not go on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from tidelog.host.clock import Clock

logger = logging.getLogger(__name__)


class LoopWatchdog:
    """Calls `give_up`, on a thread, when the loop has not moved for `patience_s`."""

    def __init__(self, clock: Clock, patience_s: float, give_up: Callable[[], object]) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._give_up = give_up
        self._beaten_at = 0.0
        self._stopped = threading.Event()
        self._beat: asyncio.TimerHandle | None = None

    def start(
        self, loop: asyncio.AbstractEventLoop, spawn: Callable[[Callable[[], None]], object]
    ) -> None:
        """Watch from here on; `spawn` starts the thread."""
        self._move(loop)
        spawn(self._watch)

    def stop(self) -> None:
        self._stopped.set()
        if self._beat is not None:
            self._beat.cancel()

    def _move(self, loop: asyncio.AbstractEventLoop) -> None:
        self._beaten_at = self._clock.monotonic()
        self._beat = loop.call_later(self._patience_s / 4, self._move, loop)

    def _watch(self) -> None:
        while not self._stopped.wait(self._patience_s / 4):
            silent_s = self._clock.monotonic() - self._beaten_at
            if silent_s > self._patience_s:
                logger.error("the loop hangs, the session is given up silent_s=%.1f", silent_s)
                self._give_up()
                return
