"""Client quotas: which one applies to whom, what a client has used, and how long it must wait.

Pure: the time is an argument, in milliseconds of a clock that never runs backwards. The numbers are
those of Kafka, so a client feels the same limits here as there:

- A quota applies to a user, a client id, or both; a default (None here) stands for all that have
  none of their own. The most specific one counts, and a user before a client id.
- A rate is what `samples` windows have seen, by the time that they span. Windows that are missing
  count as empty, so a client that was quiet may use up to `samples - 1` windows at once.
- A client beyond its rate waits until the rate is back at the limit: by as much longer than the
  windows as it is above the limit.
- Changes of metadata draw tokens from a bucket (KIP-599), which may go below nought once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tidelog.security.quota_entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    IP,
    USER,
    QuotaEntity,
)

_THROTTLE_MS_MAX: Final = (1 << 31) - 1


class Applied(NamedTuple):
    """A quota that applies to a client, and with whom the client shares it."""

    limit: float
    # User and client id; empty where all users, or all client ids of the user, share it.
    sharers: tuple[str, str]


class QuotaTable:
    """The quotas of a cluster, by what they limit."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self._limits: dict[str, dict[QuotaEntity, float]] = {}
        for entity, limits in quotas.items():
            for kind, limit in limits.items():
                self._limits.setdefault(kind, {})[entity] = limit

    def has(self, kind: str) -> bool:
        """Whether anybody has a quota of this kind."""
        return kind in self._limits

    def find(self, kind: str, user: str, client_id: str) -> Applied | None:
        """The most specific quota of a client; None where nothing limits it.

        As in Kafka, a client without an id has the quotas of users alone.
        """
        limits = self._limits.get(kind)
        if limits is None:
            return None
        for entity, sharers in _candidates(user, client_id):
            limit = limits.get(entity)
            if limit is not None:
                return Applied(limit, sharers)
        return None

    def connection_rate(self, address: str) -> float | None:
        """How many connections an address may open in a second."""
        limits = self._limits.get(CONNECTION_CREATION_RATE, {})
        own = limits.get(((IP, address),))
        return limits.get(((IP, None),)) if own is None else own


def _candidates(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, tuple[str, str]]]:
    """All that may have a quota for a client, the most specific first, each with its sharers."""
    if user:
        for name in (user, None):
            if client_id:
                both = (user, client_id)
                yield ((CLIENT_ID, client_id), (USER, name)), both
                yield ((CLIENT_ID, None), (USER, name)), both
            yield ((USER, name),), (user, "")
    if client_id:
        yield ((CLIENT_ID, client_id),), ("", client_id)
        yield ((CLIENT_ID, None),), ("", client_id)


class Windows(NamedTuple):
    """Over how many windows a rate is taken, and how long each is."""

    samples: int = 11
    window_ms: int = 1000


class _Sample:
    __slots__ = ("began_at", "last_at", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.began_at = self.last_at = now_ms
        self.value = 0.0


class Rate:
    """What was recorded per second, over the last windows."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        # A ring: windows that only just overlap the time that is looked at need one more.
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Count so much; a negative value takes back what was counted just now."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.began_at >= self._windows.window_ms:
            self._current = (self._current + 1) % (self._windows.samples + 1)
            if self._current == len(samples):
                samples.append(_Sample(now_ms))
            sample = samples[self._current]
            sample.reset(now_ms)
        sample.value += value
        sample.last_at = now_ms

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The rate per second, and the milliseconds over which it was taken."""
        count, window_ms = self._windows
        total, oldest = 0.0, now_ms
        for sample in self._samples:
            if now_ms - sample.last_at >= count * window_ms:
                sample.reset(now_ms)
            total += sample.value
            oldest = min(oldest, sample.began_at)
        elapsed = now_ms - oldest
        missing = count - 1 - elapsed // window_ms
        if missing > 0:
            elapsed += missing * window_ms
        elapsed = max(1, elapsed)
        return total * 1000 / elapsed, elapsed

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing may be recorded until the rate is back at the limit; 0 where it is."""
        rate, elapsed = self.measure(now_ms)
        if rate <= limit:
            return 0
        if limit <= 0:
            return _THROTTLE_MS_MAX
        return _milliseconds((rate - limit) / limit * elapsed)


class TokenBucket:
    """Tokens for changes of metadata: `limit` a second, for as long as all windows at most."""

    __slots__ = ("_filled_at", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = 0.0
        # A bucket that nobody has used is full.
        self._filled_at: int | None = None

    def tokens(self, limit: float, now_ms: int) -> float:
        """What is left; less than nought where the last change took more than there was."""
        most = self._windows.samples * self._windows.window_ms / 1000 * limit
        if self._filled_at is None:
            self._tokens = most
        else:
            gained = limit * (now_ms - self._filled_at) / 1000
            self._tokens = min(most, self._tokens + gained)
        self._filled_at = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> None:
        self._tokens = self.tokens(limit, now_ms) - count

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long until nothing is owed; 0 where nothing is."""
        tokens = self.tokens(limit, now_ms)
        if tokens >= 0:
            return 0
        return _THROTTLE_MS_MAX if limit <= 0 else _milliseconds(-tokens / limit * 1000)


def _milliseconds(value: float) -> int:
    """Rounded as Java does it, within 32 bits."""
    return min(_THROTTLE_MS_MAX, math.floor(value + 0.5))
