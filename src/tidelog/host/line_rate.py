"""Lines that peers can bring about again and again are logged at a rate."""

from __future__ import annotations

from collections.abc import Hashable

from tidelog.host.clock import Clock

_SECONDS_BETWEEN_LINES = 10.0
_KINDS_MAX = 1_000


class LineRate:
    """Lets the first line of a kind through, then one every ten seconds for all that follow."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By kind: until when there is to be no other line, and how many were left out.
        self._quiet: dict[Hashable, tuple[float, int]] = {}

    def count(self, kind: Hashable = None) -> int:
        """How many lines the next one stands for; 0 where it is to be left out."""
        now = self._clock.monotonic()
        until, left_out = self._quiet.pop(kind, (now, 0))
        if now < until:
            self._quiet[kind] = (until, left_out + 1)
            return 0
        if len(self._quiet) >= _KINDS_MAX:
            del self._quiet[next(iter(self._quiet))]
        self._quiet[kind] = (now + _SECONDS_BETWEEN_LINES, 0)
        return left_out + 1
