"""Programs that demo and tour start, each in a group of its own, so that all can be stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PYTHON = [sys.executable, "-m"]
STOP_SECONDS = 40.0


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Come back when the condition holds; RuntimeError with `what` where it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(0.05)


class Program:
    """One program, with its output in a file."""

    def __init__(self, name: str, arguments: list[str], directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def start(self) -> None:
        with self.log.open("ab") as log:
            # A group of its own: Ctrl-C reaches the demo, which then stops everything in order.
            self._process = subprocess.Popen(
                [*PYTHON, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    def kill(self) -> None:
        """SIGKILL to the program and all that it started: a driver's JVM goes with it."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM, SIGKILL where that is not heard in time; the exit code. Harmless when over."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.returncode

    def wait(self, seconds: float) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def check(self) -> None:
        """RuntimeError with the end of what it said where the program has ended by itself."""
        if not self.running:
            tail = "\n".join(self.said.splitlines()[-15:])
            raise RuntimeError(f"{self.name} ended unexpectedly:\n{tail}")
