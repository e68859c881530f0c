"""One broker process: started, listened to, ended, and started again where it ended by itself."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from tidelog.errors import TidelogError

logger = logging.getLogger(__name__)

# A broker that ran for this long and then ended is started again at once.
_STEADY_S: Final = 10.0
_PAUSE_S_MAX: Final = 30.0
_STOP_S_MAX: Final = 40.0
_KEPT_LINES: Final = 200
_CHUNK_BYTES: Final = 65536
_LINE_BYTES_MAX: Final = 65536

LineSink = Callable[[int, str], None]


class BrokerEnded(TidelogError):
    """A broker of the cluster that did not start, or ended and is not started again."""


def announcement(node_id: int, bootstrap_servers: str) -> str:
    """What a broker says on stderr once it serves clients; its parent waits for it."""
    return f"tidelog broker {node_id} on {bootstrap_servers}"


def _announced(line: str) -> str | None:
    found = re.fullmatch(r"tidelog broker \d+ on (\S+)", line)
    return found[1] if found else None


class Child:
    """The process of one broker, from `start` to `stop`; `command` gets the port to take."""

    def __init__(
        self,
        node_id: int,
        port: int,
        command: Callable[[int], Sequence[str]],
        sink: LineSink,
        *,
        restart: bool,
    ) -> None:
        self.node_id = node_id
        self.bootstrap_servers = ""
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._port = port
        self._command = command
        self._sink = sink
        self._restart = restart
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._serving = asyncio.Event()
        # The process has ended and is not started again.
        self.ended = asyncio.Event()
        self._dismissed = asyncio.Event()
        self._dismissed.set()

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def start(self) -> None:
        """Start it; return when it serves clients. BrokerEnded where it does not."""
        assert self._task is None or self._task.done(), f"broker {self.node_id} runs"
        self._dismissed.clear()
        self.ended.clear()
        self._task = asyncio.create_task(self._keep(), name=f"broker-{self.node_id}")
        waits = [asyncio.ensure_future(each.wait()) for each in (self._serving, self.ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        if not self._serving.is_set():
            raise BrokerEnded(f"broker {self.node_id} did not start{self._last_words()}")

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL where that is of no use; return when it is gone."""
        self.send(signal.SIGTERM)
        await self._gone(_STOP_S_MAX)

    async def kill(self) -> None:
        """SIGKILL, and not started again; return when it is gone."""
        self.send(signal.SIGKILL)
        await self._gone(_STOP_S_MAX)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; after one that ends it, it is not started again."""
        if number in (signal.SIGTERM, signal.SIGKILL):
            self._dismissed.set()
        if self.pid is not None:
            assert self._process is not None
            self._process.send_signal(number)

    async def _gone(self, patience_s: float) -> None:
        if self._task is None:
            return
        _, pending = await asyncio.wait([self._task], timeout=patience_s)
        if pending:
            logger.warning("broker does not stop and is killed node_id=%d", self.node_id)
            self.send(signal.SIGKILL)
            await asyncio.wait(pending)

    async def _keep(self) -> None:
        """Run the process, and another one when it has ended by itself."""
        loop = asyncio.get_running_loop()
        pause_s = 0.0
        try:
            while not self._dismissed.is_set():
                started_at = loop.time()
                was_up = await self._run()
                # One that never came up has a fault that trying again does not mend.
                if not self._restart or not (was_up or self.bootstrap_servers):
                    break
                if self._dismissed.is_set():
                    break
                steady = loop.time() - started_at >= _STEADY_S
                pause_s = 0.0 if steady else min(_PAUSE_S_MAX, pause_s * 2)
                self._say(f"is started again in {pause_s:.0f} s" if pause_s else "is started again")
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._dismissed.wait(), pause_s)
                pause_s = pause_s or 1.0
        finally:
            self.ended.set()

    async def _run(self) -> bool:
        """One life of the process; whether it came to serve clients."""
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._command(self._port),
                stdin=DEVNULL, stdout=PIPE, stderr=STDOUT,
                # Ctrl-C reaches the parent alone, which stops the brokers one after the other.
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            # There may be memory for it in a moment.
            self.lines.append(f"error: its process cannot be started: {error}")
            self._say(f"cannot be started: {error}")
            return False
        if self._dismissed.is_set():
            # It was stopped while it was being started.
            process.kill()
        await self._read_lines(process)
        code = await process.wait()
        was_up = self._serving.is_set()
        self._serving.clear()
        if not self._dismissed.is_set():
            self._say(_how_it_ended(code))
        return was_up

    async def _read_lines(self, process: Process) -> None:
        assert process.stdout is not None
        rest = b""
        while data := await process.stdout.read(_CHUNK_BYTES):
            *whole, rest = (rest + data).split(b"\n")
            if len(rest) > _LINE_BYTES_MAX:
                whole, rest = [*whole, rest], b""
            for line in whole:
                self._take(line.decode(errors="replace"))
        if rest:
            self._take(rest.decode(errors="replace"))

    def _take(self, line: str) -> None:
        served = _announced(line)
        if served is None:
            self.lines.append(line)
            # A terminal or a pipe that is gone is no reason to stop reading: the broker would hang.
            with suppress(OSError):
                self._sink(self.node_id, line)
            return
        self.bootstrap_servers = served
        # Where any port would do, the broker keeps the one that it found.
        self._port = int(served.rpartition(":")[2])
        self._serving.set()

    def _say(self, text: str) -> None:
        logger.warning("broker %d %s", self.node_id, text)

    def _last_words(self) -> str:
        errors = [line for line in self.lines if line.startswith(("error: ", "hint: "))]
        shown = errors or list(self.lines)[-5:]
        return ":\n" + "\n".join(shown) if shown else ""


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def parent_arguments() -> list[str]:
    """What tells a broker that it is to end with this process."""
    return ["--end-with", str(os.getpid())]
