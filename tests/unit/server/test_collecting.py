"""Cycles are looked for while the loop has time, and not while requests are in work."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from tidelog.server import collecting


class Knot:
    """Holds itself, so that only the collector can let go of it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector_as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


def _knots() -> weakref.ref[Knot]:
    """Enough of them to be looked for."""
    gc.collect()
    collecting.collect_rarely()
    first, *_ = [weakref.ref(Knot()) for _ in range(30_000)]
    return first


def test_cycles_go_while_the_loop_is_on_time() -> None:
    async def until_gone() -> None:
        gone = asyncio.Event()
        knot = _knots()()
        assert knot is not None
        weakref.finalize(knot, gone.set)
        del knot
        collecting.collect_when_calm()
        await gone.wait()

    asyncio.run(asyncio.wait_for(until_gone(), 60))


def test_nothing_is_looked_for_while_the_loop_is_late() -> None:
    async def look() -> None:
        loop, first = asyncio.get_running_loop(), _knots()
        collecting._look(loop, loop.time() - 1)
        assert first() is not None
        collecting._look(loop, loop.time())
        assert first() is None

    asyncio.run(look())
