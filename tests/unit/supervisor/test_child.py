"""One process that is kept: its lines, its end, its next life."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tidelog.supervisor.child import BrokerEnded, Child

# Says what a broker says; takes the port 4711 where any will do.
BROKER = """
import signal, sys, time
port = int(sys.argv[1]) or 4711
print("starting", port, flush=True)
print(f"tidelog broker 1 on 127.0.0.1:{port}", flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
time.sleep(60)
"""
FAILING = """
import sys
print("error: no room\\nhint: make some", file=sys.stderr)
sys.exit(1)
"""


class Lines:
    """What the process says, to be waited for."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._changed = asyncio.Event()

    def take(self, node_id: int, line: str) -> None:
        assert node_id == 1
        self.seen.append(line)
        self._changed.set()

    async def wait_for(self, *lines: str) -> None:
        async with asyncio.timeout(20):
            while self.seen != list(lines):
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def child(
    script: str = BROKER, *, port: int = 0, restart: bool = True
) -> AsyncIterator[tuple[Child, Lines]]:
    lines = Lines()

    def command(port: int) -> list[str]:
        return [sys.executable, "-S", "-c", script, str(port)]

    made = Child(1, port, command, lines.take, restart=restart)
    try:
        yield made, lines
    finally:
        await made.kill()


def test_a_killed_process_comes_back_on_the_port_that_it_had() -> None:
    async def run() -> None:
        async with child() as (broker, lines):
            await broker.start()
            assert broker.bootstrap_servers == "127.0.0.1:4711"
            first = broker.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            await lines.wait_for("starting 4711", "starting 4711")
            assert broker.pid not in (None, first)

    asyncio.run(run())


def test_a_killed_process_stays_away_where_that_was_asked_for() -> None:
    async def run() -> None:
        async with child(restart=False) as (broker, lines):
            await broker.start()
            assert broker.pid is not None
            os.kill(broker.pid, signal.SIGKILL)
            await broker.ended.wait()
            assert broker.pid is None
            # Until it is started again by hand.
            await broker.start()
            assert lines.seen == ["starting 4711", "starting 4711"]

    asyncio.run(run())


def test_one_that_is_stopped_is_not_started_again() -> None:
    async def run() -> None:
        async with child() as (broker, lines):
            await broker.start()
            await broker.stop()
            assert broker.pid is None
            assert lines.seen == ["starting 4711"]

    asyncio.run(run())


def test_one_that_does_not_start_says_why() -> None:
    async def run() -> None:
        async with child(FAILING) as (broker, _):
            with pytest.raises(BrokerEnded, match=r"(?s)broker 1 did not start:.*no room.*make"):
                await broker.start()

    asyncio.run(run())


def test_a_process_that_cannot_be_started_again_at_once_is_tried_again() -> None:
    async def run() -> None:
        async with child() as (broker, lines):
            await broker.start()
            assert broker.pid is not None
            command, tries = broker._command, 0

            def no_memory_once(port: int) -> Sequence[str]:
                nonlocal tries
                tries += 1
                if tries == 1:
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
                return command(port)

            broker._command = no_memory_once
            os.kill(broker.pid, signal.SIGKILL)
            await lines.wait_for("starting 4711", "starting 4711")
            assert tries == 2

    asyncio.run(run())


def test_one_whose_process_cannot_be_started_says_why() -> None:
    async def run() -> None:
        broker = Child(1, 0, lambda port: ["/no/such/python"], Lines().take, restart=True)
        with pytest.raises(BrokerEnded, match=r"error: its process cannot be started.*/no/such"):
            await broker.start()

    asyncio.run(run())


def test_lines_that_nobody_takes_any_more_do_not_end_the_reading() -> None:
    def closed(node_id: int, line: str) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    async def run() -> None:
        async with child() as (broker, _):
            broker._sink = closed
            await broker.start()
            assert list(broker.lines) == ["starting 4711"] and broker.pid is not None

    asyncio.run(run())


def test_a_signal_without_a_name_is_no_reason_to_stay_away() -> None:
    async def run() -> None:
        async with child() as (broker, lines):
            await broker.start()
            assert broker.pid is not None
            os.kill(broker.pid, signal.SIGRTMIN + 1)
            await lines.wait_for("starting 4711", "starting 4711")

    asyncio.run(run())
