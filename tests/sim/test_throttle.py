"""Three real brokers on simulated machines: moves at a limited rate, to the byte and the second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.sim.test_administration import reassignment
from tests.sim.three import Three, simulate
from tidelog.client.admin import alter_configs
from tidelog.client.aio import Producer
from tidelog.client.batching import ProducerRecord
from tidelog.model import ConfigOperation, ConfigResourceType
from tidelog.replication.partition import Partition

RATE = 10_000
VALUE = b"v" * 1000


def replica(three: Three, broker_id: int) -> Partition:
    broker = three.machines[broker_id].broker
    assert broker is not None
    return broker.parts.replicas.find("t", 0)


def size(three: Three, broker_id: int) -> int:
    return replica(three, broker_id).log.segments.size_bytes


async def write(three: Three, count: int) -> None:
    """As many batches of one record."""
    producer = Producer(three.world.servers, host=three.world.client_host())
    for _ in range(count):
        await producer.wait(await producer.send(ProducerRecord("t", VALUE, None)))
    await producer.close()


async def set_throttle(three: Three, side: str, replicas: str, broker_id: int, rate: str) -> None:
    def alter(kind: ConfigResourceType, name: str, key: str, value: str) -> Awaitable[None]:
        change = (f"{side}.replication.throttled.{key}", ConfigOperation.SET, value)
        return three.client.run(alter_configs(three.client.cluster, kind, name, [change]))

    await alter(ConfigResourceType.TOPIC, "t", "replicas", replicas)
    await alter(ConfigResourceType.BROKER, str(broker_id), "rate", rate)


async def amounts_while(three: Three, goes_on: Callable[[], bool]) -> list[int]:
    """What broker 1 has at the end of each tenth of a second from the first record on."""
    await three.ask(reassignment([0, 1]))
    await three.until(lambda: three.state().replicas == (0, 1))
    seen = []
    while goes_on():
        await asyncio.sleep(0.1)
        seen.append(size(three, 1))
    return seen


@pytest.mark.parametrize(("side", "replicas"), [("leader", "0:0"), ("follower", "0:1")])
def test_a_new_replica_gets_the_rate_each_second_and_no_more(side: str, replicas: str) -> None:
    async def script(three: Three) -> None:
        await three.create({0: [0]})
        await write(three, 100)
        whole = size(three, 0)
        one = whole // 100
        throttled = 0 if side == "leader" else 1
        await set_throttle(three, side, replicas, throttled, str(RATE))
        amounts = await amounts_while(three, lambda: set(three.state().isr) != {0, 1})
        # Ten tenths are a window, and the first look may fall into the end of one.
        for tenths, amount in enumerate(amounts):
            assert amount < (tenths // 10 + 2) * RATE + one
        # What a window takes too much is owed: on the whole the rate is kept to the batch.
        assert len(amounts) >= 10 * (whole // RATE - 1)
        assert len(amounts) <= 10 * (whole // RATE + 1)
        assert size(three, 1) == whole

    simulate(script)


def test_producers_do_not_wait_for_the_rate_and_the_isr_stays() -> None:
    """In sync, a replica is copied as fast as ever: also one that is listed."""

    async def script(three: Three) -> None:
        await three.create({0: [0, 1]}, min_insync_replicas="2")
        for side in ("leader", "follower"):
            for broker_id in (0, 1):
                await set_throttle(three, side, "*", broker_id, "1")
        epoch = three.state().partition_epoch
        await write(three, 50)
        assert replica(three, 1).log.log_end_offset == 50
        assert three.state().partition_epoch == epoch, "the ISR did not change"

    simulate(script)


def test_a_rate_of_zero_holds_a_move_until_it_is_raised() -> None:
    async def script(three: Three) -> None:
        await three.create({0: [0]})
        await write(three, 20)
        await set_throttle(three, "leader", "*", 0, "0")
        seconds = iter(range(300))
        assert {*await amounts_while(three, lambda: next(seconds) < 299)} == {0}
        # Other partitions, and this one for those in sync, are served meanwhile.
        await write(three, 5)
        await set_throttle(three, "leader", "", 0, "0")
        await three.until(lambda: set(three.state().isr) == {0, 1})
        assert replica(three, 1).log.log_end_offset == 25

    simulate(script)


def test_a_follower_that_rests_asks_for_its_other_partitions() -> None:
    async def script(three: Three) -> None:
        await three.create({0: [0, 2], 1: [0, 1]}, min_insync_replicas="2")
        await write_to_both(three, 40)
        await set_throttle(three, "follower", "0:1", 1, "1000")
        await three.ask(reassignment([0, 1]))
        await three.until(lambda: 1 in three.state().replicas)
        epoch = three.state(1).partition_epoch
        began = three.world.loop.now
        await write_to_both(three, 40)
        assert 1 not in three.state().isr, "still being copied"
        assert three.world.loop.now - began < 2, "nobody waited for it"
        assert three.state(1).partition_epoch == epoch

    simulate(script)


async def write_to_both(three: Three, count: int) -> None:
    producer = Producer(three.world.servers, host=three.world.client_host())
    for number in range(count):
        record = ProducerRecord("t", VALUE, None, partition=number % 2)
        await producer.wait(await producer.send(record))
    await producer.close()
