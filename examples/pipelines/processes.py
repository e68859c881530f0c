"""The processes of a run: a broker of its own, and the pipeline's driver, which may be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

TIDELOG = [sys.executable, "-m", "tidelog"]
POLL_S = 0.1
BROKER_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 90.0


class Failure(RuntimeError):
    """A process did not do what it was started for."""


class Process:
    """A process in a session of its own, so that Ctrl-C reaches only who started it.

    What it says goes to a file. Leaving the context ends it, and all that it started.
    """

    def __init__(self, arguments: list[str], log: Path, **environment: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*TIDELOG, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_until(self, condition: Callable[[], bool], seconds_max: float, what: str) -> None:
        """Return when the condition holds; Failure when it cannot any more or takes too long."""
        deadline = time.monotonic() + seconds_max
        while not condition():
            if not self.runs:
                raise Failure(f"ended with {self.process.returncode} before {what}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise Failure(f"waited {seconds_max:.0f} s in vain for {what}:\n{self.tail()}")
            time.sleep(POLL_S)

    def kill(self) -> None:
        """SIGKILL for it and its children: the Python and the JVM of a driver die at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, and what it ended with."""
        self.process.terminate()
        return self.ended(STOP_SECONDS_MAX)

    def ended(self, seconds_max: float) -> int:
        """Wait for the end; the exit code."""
        try:
            return self.process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            raise Failure(f"did not end within {seconds_max:.0f} s:\n{self.tail()}") from None

    def tail(self) -> str:
        return "\n".join(self.said().splitlines()[-30:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.runs:
            self.kill()


class Broker(Process):
    """`tidelog up` on a free port, with its data in a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        arguments = ["up", "--listen", "127.0.0.1:0", "--data-dir", str(directory / "data")]
        super().__init__(arguments, directory / "broker.log")
        self.servers = ""

    def __enter__(self) -> Self:
        try:
            self.wait_until(self._is_up, BROKER_SECONDS_MAX, "the broker was up")
        except BaseException:
            super().__exit__(None, None, None)
            raise
        return self

    def _is_up(self) -> bool:
        found = re.search(r"tidelog is up on (\S+)\s", self.said())
        self.servers = found[1] if found else ""
        return found is not None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.runs and error is None:
            self.stop()
        super().__exit__(kind, error, trace)
