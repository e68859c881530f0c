"""When to try again what has failed."""

from __future__ import annotations

from tidelog.host.random import Random


class Backoff:
    """How long to wait before the next try: longer each time, up to a bound, never in step."""

    __slots__ = ("_ceiling_s", "_longest_s", "_random", "_shortest_s")

    def __init__(self, random: Random, shortest_s: float = 0.05, longest_s: float = 1.0) -> None:
        self._random = random
        self._shortest_s = shortest_s
        self._longest_s = longest_s
        self._ceiling_s = shortest_s

    def next_s(self) -> float:
        """The next wait in seconds: a random one between half of its bound and the bound."""
        self._ceiling_s = min(self._longest_s, self._ceiling_s * 2)
        least_s = max(self._shortest_s, self._ceiling_s / 2)
        return least_s + (self._ceiling_s - least_s) * self._random.below(1001) / 1000

    def reset(self) -> None:
        """It worked: the next wait is short again."""
        self._ceiling_s = self._shortest_s
