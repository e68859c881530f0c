"""How long a failed authentication waits for its answer, so that passwords cannot be guessed fast.

An address gets ten such answers a second, however many connections it has; other addresses do not
feel it.
"""

from __future__ import annotations

from typing import Final

from tidelog.host.clock import Clock

_SECONDS_EACH: Final = 0.1
# Those who fail so often wait this long at most, with connections that count against their limit.
_SECONDS_MAX: Final = 10.0
_ADDRESSES_MAX: Final = 1_000


class FailureDelays:
    """Gives each failure its moment."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By address: when the last failure is answered. Those that failed last stand last.
        self._answered_at: dict[str, float] = {}

    def next_delay(self, address: str) -> float:
        """The seconds that another failure of an address waits."""
        now = self._clock.monotonic()
        at = max(now, self._answered_at.pop(address, now)) + _SECONDS_EACH
        at = min(at, now + _SECONDS_MAX)
        if len(self._answered_at) >= _ADDRESSES_MAX:
            del self._answered_at[next(iter(self._answered_at))]
        self._answered_at[address] = at
        return at - now
