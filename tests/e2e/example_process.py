"""Examples as the processes that a reader would start, and what their docstrings say they print."""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 120.0


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"examples.{name}", *arguments]


class Lines:
    """What processes print, line by line; several may share one, in their order.

    Their ends of the pipe are open until they end. A line in one write is never broken by others.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._read_end, self.write_end = os.pipe()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with open(self._read_end, encoding="utf-8") as stream:
            for line in stream:
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[list[str]], bool]) -> bool:
        """Return once the lines satisfy the condition; False if they cannot or do not in time."""
        with self._changed:
            self._changed.wait_for(
                lambda: condition(self.lines) or self._ended, timeout=WAIT_SECONDS
            )
            return condition(self.lines)

    def close_own_end(self) -> None:
        """No other process will be started that prints into this."""
        os.close(self.write_end)

    def join(self) -> None:
        """Wait for the last line of the last process."""
        self._reader.join()

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close_own_end()
        self.join()


class ExampleProcess:
    """One example, running; its lines are its own unless others are given that it shares.

    Its errors, where librdkafka logs, are kept apart and shown when something fails.
    """

    def __init__(
        self, servers: str, name: str, *arguments: str, shared: Lines | None = None
    ) -> None:
        self._output = Lines() if shared is None else shared
        self._errors = Lines()
        self._shared = shared is not None
        self.process = subprocess.Popen(
            command(name, *arguments),
            cwd=ROOT,
            env={**os.environ, "TIDELOG_BOOTSTRAP_SERVERS": servers},
            stdout=self._output.write_end,
            stderr=self._errors.write_end,
        )
        self._errors.close_own_end()
        if not self._shared:
            self._output.close_own_end()

    @property
    def lines(self) -> list[str]:
        return self._output.lines

    def wait_for(self, condition: Callable[[list[str]], bool]) -> None:
        """Return once the lines printed so far satisfy the condition."""
        assert self._output.wait_for(condition), (self.lines[-100:], self._errors.lines[-100:])

    def wait_for_line(self, text: str) -> None:
        self.wait_for(lambda lines: any(text in line for line in lines))

    def ends(self, code: int = 0) -> list[str]:
        """Wait until it ended by itself, with that exit code; all its lines."""
        ended_with = self.process.wait(WAIT_SECONDS)
        self._join()
        assert ended_with == code, (ended_with, self.lines[-100:], self._errors.lines[-100:])
        return self.lines

    def stop(self, how: signal.Signals = signal.SIGTERM, code: int = 0) -> list[str]:
        """A signal upon which it must end in order."""
        self.process.send_signal(how)
        return self.ends(code)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone and its last line was read."""
        self.process.kill()
        self.process.wait()
        self._join()

    def _join(self) -> None:
        self._errors.join()
        if not self._shared:
            self._output.join()

    def __enter__(self) -> ExampleProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


def documented(name: str) -> dict[str, list[str]]:
    """Of each command that an example's docstring shows: the lines below it.

    The example's own commands are named by their arguments alone.
    """
    text = ast.get_docstring(ast.parse((ROOT / "examples" / f"{name}.py").read_text())) or ""
    shown: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("    $ "):
            called = line.removeprefix("    $ ").removeprefix(f"python -m examples.{name}")
            lines = shown.setdefault(called.strip(), [])
        elif line.startswith("    "):
            lines.append(line.removeprefix("    "))
    assert shown, f"{name} shows no command"
    return shown


def prepare(servers: str, name: str) -> None:
    """Run the commands of Tidelog that an example's docstring begins with."""
    commands = {each: lines for each, lines in documented(name).items() if "tidelog" in each}
    assert commands, f"{name} shows no command of Tidelog"
    for each, lines in commands.items():
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(each), "-b", servers],
            check=True,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        )
        assert (done.stdout + done.stderr).splitlines() == lines


def shapes(lines: list[str]) -> set[str]:
    """Lines without their numbers, to compare runs that differ in nothing else."""
    return {re.sub(r"((\w+-)?\d+ ?)+", "N", line) for line in lines}
