"""When to look for cycles: at moments at which few requests are in work.

What requests leave behind goes by counting references, and looking for cycles among thousands that
are in work costs more than they do: it would hold the loop for a tenth of a second in the middle of
a burst. So the interpreter looks by itself only where very much has piled up; until then this looks
whenever the loop is on time, at what has come since it last looked.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Final

# Objects that came since the last look, those that went taken off.
_ENOUGH: Final = 25_000
_TOO_MANY: Final = 600_000
# After so many looks at what is new, one at everything.
_LOOKS_AT_NEW: Final = 1_000
_INTERVAL_SECONDS: Final = 0.05
_ON_TIME_SECONDS: Final = 0.005


def collect_rarely() -> None:
    """Have the interpreter itself look for cycles only where very much has piled up."""
    gc.set_threshold(_TOO_MANY, 1, _LOOKS_AT_NEW)


def collect_when_calm() -> None:
    """Look for cycles from now on whenever the running loop has time for it."""
    loop = asyncio.get_running_loop()
    _look_at(loop, loop.time() + _INTERVAL_SECONDS)


def _look_at(loop: asyncio.AbstractEventLoop, due: float) -> None:
    loop.call_at(due, _look, loop, due)


def _look(loop: asyncio.AbstractEventLoop, due: float) -> None:
    now = loop.time()
    new, _, looks = gc.get_count()
    if new > _ENOUGH and now - due < _ON_TIME_SECONDS:
        gc.collect(2 if looks > _LOOKS_AT_NEW else 1)
    _look_at(loop, loop.time() + _INTERVAL_SECONDS)
