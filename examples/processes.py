"""Programs that the examples start, each in a group of its own, so that all can be stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

PYTHON = [sys.executable, "-m"]
POLL_S = 0.05
STOP_SECONDS = 90.0
LINES_SHOWN = 30


class Failure(RuntimeError):
    """A program did not do what it was started for."""


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
    """Come back when the condition holds; Failure with `what` where it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(POLL_S)


class Program:
    """One module of Python run as a program, with its output in a file.

    As a context it is started on the way in, and on the way out it is gone with all that it
    started: stopped where all went well, else killed.
    """

    def __init__(
        self,
        name: str,
        arguments: list[str],
        directory: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self.arguments = arguments
        self._environment = environment or {}
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
            # A group of its own: Ctrl-C reaches who started it, who then stops all in order.
            self._process = subprocess.Popen(
                [*PYTHON, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
                process_group=0,
            )

    def kill(self) -> None:
        """SIGKILL to the program and all that it started: a driver's JVM goes with it."""
        assert self._process is not None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM, SIGKILL where that is not heard in time; the exit code. Harmless when over."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        self.kill()
        return self._process.returncode

    def wait(self, seconds: float) -> int:
        """Wait for the end; the exit code, or Failure where it does not come."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self._told('did not end')} within {seconds:.0f} s") from None

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """As the function of this name; Failure, too, when the program ends before."""

        def holds() -> bool:
            if condition():
                return True
            self.check()
            return False

        wait_until(holds, what, seconds)

    def check(self, code: int | None = None) -> None:
        """Failure where it does not run, or, with a code, where it ended with another one."""
        assert self._process is not None
        ended = self._process.poll()
        if ended != code:
            raise Failure(self._told(f"ended with {ended}" if ended is not None else "runs still"))

    def _told(self, what: str) -> str:
        tail = "\n".join(self.said.splitlines()[-LINES_SHOWN:])
        return f"{self.name} {what}:\n{tail}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.stop()
        elif self._process is not None:
            self.kill()


class Broker(Program):
    """`tidelog up` on a free port, with its data in a directory that it makes; up once entered."""

    def __init__(self, directory: Path, *settings: str) -> None:
        directory.mkdir()
        arguments = ["tidelog", "up", "--listen", "127.0.0.1:0", "--data-dir"]
        arguments.append(str(directory / "data"))
        for each in settings:
            arguments += ["--set", each]
        super().__init__("broker", arguments, directory)
        self.servers = ""

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.wait_until(self._is_up, "the broker", 60.0)
        except BaseException:
            self.kill()
            raise
        return self

    def _is_up(self) -> bool:
        found = re.search(r"tidelog is up on (\S+)\s", self.said)
        self.servers = found[1] if found else ""
        return found is not None
