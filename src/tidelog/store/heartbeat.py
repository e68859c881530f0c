"""Knows when a store last answered, and gives up a connection on which it does not.

What counts is when a question was *asked* that has been answered since: the store knew of the
session then. An answer that waited in a socket while this process was stopped proves nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidelog.host.clock import Clock

# Of a session: how often the store is asked, and how long a connection may be silent.
_ASK: Final = 1 / 6
_SILENT: Final = 1 / 3
# For answers that arrived while the loop was busy, and are yet to be looked at.
_SECOND_LOOK_S: Final = 0.05


class Heartbeat:
    """Asks from `start` to `stop`, while `ask` has a connection to do it on.

    `ask` sends something small and returns False where it cannot; who gets the answer calls
    `answered`. `hang_up` ends a connection that is silent, so that another one is tried.
    """

    def __init__(
        self,
        clock: Clock,
        session_s: float,
        ask: Callable[[], bool],
        hang_up: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._session_s = session_s
        self._ask = ask
        self._hang_up = hang_up
        self._heard_at = clock.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def silent_s(self) -> float:
        return self._clock.monotonic() - self._heard_at

    def now(self) -> float:
        """To be given to `answered` with the answer to what is asked now."""
        return self._clock.monotonic()

    def answered(self, asked_at: float) -> None:
        self._heard_at = max(self._heard_at, asked_at)

    def start(self) -> None:
        self._heard_at = self._clock.monotonic()
        self._beat()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        can_ask = self._ask()
        is_silent = can_ask and self.silent_s > self._session_s * _SILENT
        delay_s, then = (
            (_SECOND_LOOK_S, self._look_again)
            if is_silent
            else (self._session_s * _ASK, self._beat)
        )
        self._timer = asyncio.get_running_loop().call_later(delay_s, then)

    def _look_again(self) -> None:
        if self.silent_s > self._session_s * _SILENT:
            self._hang_up()
        self._timer = asyncio.get_running_loop().call_later(self._session_s * _ASK, self._beat)
