"""A process that must not outlive the one that started it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_LOOK_S: Final = 0.5


def end_with_parent(parent: int) -> None:
    """End this process when `parent` ends, even by SIGKILL; call on the event loop.

    Linux does it, whatever this process is doing; elsewhere the loop looks twice a second.
    """
    if sys.platform == "linux":
        import ctypes

        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) == 0:
            # It may have ended before it was watched.
            _end_if_orphan(parent)
            return
    _look(parent)


def _look(parent: int) -> None:
    _end_if_orphan(parent)
    asyncio.get_running_loop().call_later(_LOOK_S, _look, parent)


def _end_if_orphan(parent: int) -> None:
    if os.getppid() != parent:
        os._exit(1)
