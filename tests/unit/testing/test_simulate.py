"""`testing.simulate`: somebody's own calls against simulated brokers."""

from __future__ import annotations

import pytest

from tidelog.testing import SimulatedCluster, simulate


async def survive_a_kill(cluster: SimulatedCluster) -> list[bytes | None]:
    await cluster.create_topic("orders")
    for number in range(5):
        assert await cluster.send("orders", b"%d" % number, partition=0) == number
    cluster.kill(0)
    await cluster.sleep(20)
    assert await cluster.send("orders", b"5", partition=0) == 5
    await cluster.start(0)
    return [each.value for each in await cluster.read("orders")]


def test_what_was_acknowledged_is_there_after_a_kill() -> None:
    assert simulate(1, survive_a_kill) == [b"0", b"1", b"2", b"3", b"4", b"5"]


async def survive_faults(cluster: SimulatedCluster) -> int:
    await cluster.create_topic("orders")
    await cluster.send("orders", b"before", partition=0)
    await cluster.strike(5)
    cluster.heal()
    await cluster.sleep(30)
    await cluster.send("orders", b"after", partition=0)
    values = [each.value for each in await cluster.read("orders")]
    assert values[0] == b"before" and values[-1] == b"after"
    return len(values)


def test_faults_of_a_seed_strike_and_heal() -> None:
    assert simulate(3, survive_faults) >= 2


async def break_a_promise(cluster: SimulatedCluster) -> None:
    raise LookupError("as the calls see it")


def test_what_calls_raise_comes_out() -> None:
    with pytest.raises(LookupError, match="as the calls see it"):
        simulate(1, break_a_promise, brokers=1)
