"""Processes that are killed with everything below them, and what is waited for."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.waiting import eventually

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


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for what another thread brings about."""
    eventually(condition, seconds=WAIT_SECONDS_MAX)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for what a process brings about; what it said where it ended without that."""

    def told() -> str:
        return f"exit code {process.poll()}:\n{log.read_text(errors='replace')[-4000:]}"

    def holds() -> bool:
        if condition():
            return True
        assert process.poll() is None, told()
        return False

    eventually(holds, told, WAIT_SECONDS_MAX)
