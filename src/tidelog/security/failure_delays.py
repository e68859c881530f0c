"""How long a failed authentication waits for its answer, so that passwords cannot be guessed fast.

An address gets ten such answers a second, however many connections it has, and so does a user name,
however many addresses try it. Other addresses do not feel it, nor does a user with the right
password: only failures wait.
"""

from __future__ import annotations

from typing import Final

from tidelog.host.clock import Clock

_SECONDS_EACH: Final = 0.1
# Those who fail so often wait this long at most, with connections that count against their limit.
_SECONDS_MAX: Final = 10.0
_ENTRIES_MAX: Final = 1_000
_NAME_CHARACTERS_MAX: Final = 256


class FailureDelays:
    """Gives each failure its moment."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # When the last failure is answered. Those that failed last stand last.
        self._by_address: dict[str, float] = {}
        self._by_user: dict[str, float] = {}

    def next_delay(self, address: str, user: str = "") -> float:
        """The seconds that another failure of an address, for a user, waits."""
        now = self._clock.monotonic()
        at = _next_at(self._by_address, address, now)
        if user:
            at = max(at, _next_at(self._by_user, user[:_NAME_CHARACTERS_MAX], now))
        return at - now


def _next_at(answered_at: dict[str, float], key: str, now: float) -> float:
    at = max(now, answered_at.pop(key, now)) + _SECONDS_EACH
    at = min(at, now + _SECONDS_MAX)
    if len(answered_at) >= _ENTRIES_MAX:
        del answered_at[next(iter(answered_at))]
    answered_at[key] = at
    return at
