"""How long a failed authentication waits for its answer, so that passwords cannot be guessed fast.

An address gets ten such answers a second, however many connections it has, and so does a user name,
however many addresses try it. Other addresses do not feel it, nor does a user with the right
password: only failures wait.

No answer waits for longer than five seconds. So once fifty failures of one address wait, its
further tries are not looked at, right or wrong: with thousands of connections it would find out
hundreds of passwords a second otherwise. Names are never shut out like that, or anybody could shut
out a user.
"""

from __future__ import annotations

from typing import Final

from tidelog.host.clock import Clock

_SECONDS_EACH: Final = 0.1
# Those who fail so often wait this long at most: the answer must leave before the time to
# authenticate is over, which closes the connection.
FLOODED_SECONDS: Final = 5.0
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

    def is_flooded(self, address: str) -> bool:
        """Whether so many failures of an address wait that another try must not be looked at."""
        waits_until = self._by_address.get(address)
        if waits_until is None:
            return False
        return waits_until - self._clock.monotonic() > FLOODED_SECONDS - _SECONDS_EACH


def _next_at(answered_at: dict[str, float], key: str, now: float) -> float:
    at = max(now, answered_at.pop(key, now)) + _SECONDS_EACH
    at = min(at, now + FLOODED_SECONDS)
    if len(answered_at) >= _ENTRIES_MAX:
        del answered_at[next(iter(answered_at))]
    answered_at[key] = at
    return at
