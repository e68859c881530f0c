"""How fast replicas may be copied that are not in sync (KIP-73): pure.

A topic lists replicas, and a broker has a rate for those that it copies to and from others. A quota
is spent in windows of a second: `rate` bytes in each, and what an answer takes beyond that is owed
by the windows after it. What one window leaves is not saved for the next.

A replica that has everything committed is never held back: it is in sync, or is about to be, and
producers wait for it.
"""

from __future__ import annotations

from typing import Final

WINDOW_S: Final = 1.0
# Every replica of a topic.
ALL: Final = "*"


class Quota:
    """The bytes that may be copied each second; None for as many as there are."""

    def __init__(self) -> None:
        self.rate: int | None = None
        self._window_began = 0.0
        self._spent = 0

    def limit_to(self, rate: int | None, now: float) -> None:
        """Another rate from now on. What this window has had counts against it."""
        if self.rate is None:
            self._window_began, self._spent = now, 0
        else:
            self._settle(now, self.rate)
        self.rate = rate

    def left(self, now: float) -> int | None:
        """What may still be copied in this window, negative where the next one owes it already;
        None for any amount."""
        if self.rate is None:
            return None
        self._settle(now, self.rate)
        return self.rate - self._spent

    def spend(self, size_bytes: int, now: float) -> None:
        if self.rate is not None:
            self._settle(now, self.rate)
            self._spent += size_bytes

    @property
    def window_ends_at(self) -> float:
        """When there may be more; as of the last look."""
        return self._window_began + WINDOW_S

    def _settle(self, now: float, rate: int) -> None:
        if now >= self.window_ends_at:
            # At least one: the difference of two floats may be a little less than it was.
            windows = max(1, int((now - self._window_began) / WINDOW_S))
            self._window_began += windows * WINDOW_S
            self._spent = max(0, self._spent - windows * rate)


def is_listed(listed: frozenset[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas has the one on this broker."""
    return bool(listed) and (ALL in listed or f"{partition}:{broker_id}" in listed)
