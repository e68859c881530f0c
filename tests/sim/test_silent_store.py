"""Three real brokers whose store is silent: they say so now and then, and stop without it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.sim.three import Three, simulate

SECONDS = 60


def test_c9_a_minute_without_the_store_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def script(three: Three) -> None:
        await three.create({0: [0, 1, 2]})
        for machine in three.machines:
            machine.cut_store()
        await asyncio.sleep(10)
        caplog.clear()
        await asyncio.sleep(SECONDS)
        lines = Counter((each.name, each.msg) for each in caplog.records)
        # Each kind of line of each of three brokers, every ten seconds.
        assert lines and max(lines.values()) <= 3 * (SECONDS / 10 + 1), lines
        for machine in three.machines:
            machine.heal_store()
        await three.until(lambda: len(three.image.brokers) == 3)

    simulate(script)


def test_c9_a_broker_stops_in_order_while_nobody_hears_of_the_store() -> None:
    async def script(three: Three) -> None:
        await three.create({0: [0, 1, 2]})
        for machine in three.machines:
            machine.cut_store()
        await asyncio.sleep(5)
        began = three.world.loop.now
        await three.machines[1].stop()
        # Virtual time: it does not wait for an election that cannot be.
        assert three.world.loop.now - began < 3
        for machine in three.machines:
            machine.heal_store()
        await three.until(lambda: 1 not in three.image.brokers)

    simulate(script)
