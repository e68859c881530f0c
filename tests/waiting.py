"""The one loop in which tests look at another process until something has come about there."""

from __future__ import annotations

import time
from collections.abc import Callable

LOOK_SECONDS = 0.02


def eventually(
    holds: Callable[[], bool], what: Callable[[], object] = lambda: "", seconds: float = 30.0
) -> None:
    """Come back when it holds; AssertionError with `what` where it does not in time.

    For what no event tells: a broker, a JVM or a client library that works in its own time.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what() or f"not so after {seconds:.0f} s"
        time.sleep(LOOK_SECONDS)
