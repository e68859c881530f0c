"""The seam for time. Nothing in Tidelog reads a clock except through this."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records and retention, monotonic time for deadlines."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump, so no safety property rests on it."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards, comparable with the event loop's own time."""
        ...

    def cpu(self) -> float:
        """Seconds of a processor that the calling thread has used."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    # Plain functions, bound once: every request asks.
    monotonic = staticmethod(time.monotonic)
    cpu = staticmethod(time.thread_time)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
