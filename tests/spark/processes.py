"""Processes that are killed with everything below them."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

WAIT_SECONDS_MAX = 240.0


def kill_with_descendants(process: subprocess.Popen[bytes]) -> None:
    """The process first, so that it sees nothing of its children's end.

    Spark's Python daemons lead process groups of their own, so a group's signal misses them.
    """
    descendants = descendants_of(process)
    process.kill()
    process.wait()
    for each in descendants:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(descendants, timeout=60)


def descendants_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for what a process brings about; what it said where it ended without that."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, (
            f"exit code {process.poll()}:\n{log.read_text(errors='replace')[-4000:]}"
        )
        time.sleep(0.05)
