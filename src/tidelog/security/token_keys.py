"""The keys that sign tokens: a JWKS from a file, or from an https address that is asked again.

The address is asked off the loop, at the start, when the keys are old, and when a token names a key
that is not known; then at most every ten seconds, however many tokens do. What was fetched last
stays in use while it cannot be reached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.errors import ConfigError
from tidelog.host.clock import Clock
from tidelog.security.oauth import Key, parse_keys

_log = logging.getLogger(__name__)

_REST_SECONDS: Final = 10.0


class FixedKeys:
    """Keys that do not change: those of a file."""

    def __init__(self, text: str) -> None:
        self._keys = parse_keys(text)

    def find(self, key_id: str | None) -> Key | None:
        return _find(self._keys, key_id)


class FetchedKeys:
    """Keys of an address; `fetch` gives its text."""

    def __init__(
        self, fetch: Callable[[], Awaitable[str]], refresh_seconds: float, clock: Clock
    ) -> None:
        self._fetch = fetch
        self._refresh_seconds = refresh_seconds
        self._clock = clock
        self._keys: dict[str | None, Key] = {}
        self._fetched_at: float | None = None
        self._asked_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    def find(self, key_id: str | None) -> Key | None:
        found = _find(self._keys, key_id)
        if found is None:
            self._ask()
        return found

    def refresh(self) -> None:
        """Have the keys fetched again where they are old."""
        fetched = self._fetched_at
        if fetched is None or self._clock.monotonic() - fetched > self._refresh_seconds:
            self._ask()

    def close(self) -> None:
        """Fetch no more."""
        if self._task is not None:
            self._task.cancel()

    async def settled(self) -> None:
        """Return once nothing is being fetched."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _ask(self) -> None:
        now = self._clock.monotonic()
        is_early = self._asked_at is not None and now - self._asked_at < _REST_SECONDS
        if self._task is None and not is_early:
            self._asked_at = now
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            self._keys = parse_keys(await self._fetch())
            self._fetched_at = self._clock.monotonic()
        except (OSError, ConfigError) as error:
            _log.warning("the keys of OAUTHBEARER were not fetched: %s", error)
        finally:
            self._task = None


def _find(keys: dict[str | None, Key], key_id: str | None) -> Key | None:
    """The key of that id; without an id, the only one that there is."""
    if key_id is None and len(keys) == 1:
        return next(iter(keys.values()))
    return keys.get(key_id)
