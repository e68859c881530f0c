"""SIGTERM and SIGINT: the first one asks to stop, another one stops at once.

One that follows within a second is the same one: a terminal or a supervisor often sends a signal
to the whole group and to the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from typing import Final

_log = logging.getLogger(__name__)

_SAME_SIGNAL_SECONDS: Final = 1.0


def stop_signals() -> asyncio.Event:
    """Set by the first signal; call on the event loop of the main thread."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    first_at = 0.0

    def on_signal() -> None:
        nonlocal first_at
        if not asked.is_set():
            first_at = loop.time()
            asked.set()
        elif loop.time() - first_at >= _SAME_SIGNAL_SECONDS:
            _log.warning("second signal, stopping at once")
            os._exit(1)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return asked
