"""Every API under its worst legal requests: what it does at a stretch, answers and keeps.

The broker runs in the loop of the test, without a network. What is held to a bound is work, not
time: the calls of functions between two turns of the event loop, the bytes of the answer, and the
memory of the process. The longest stretch is printed in milliseconds too; the target is 50.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType

import pytest

from tests.e2e.in_process import InProcessBroker
from tests.e2e.worst_requests import (
    KNOWN_GROUP,
    KNOWN_TOPIC,
    WORST,
    WorstRequest,
    worst_requests,
)
from tidelog.protocol.apis import APIS, Api
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

MIB = 1 << 20
ELEMENTS = 5_000
GROWTH_BYTES_MAX = 150 * MIB


class Odometer:
    """Counts calls between turns of the loop, and keeps the most."""

    def __init__(self) -> None:
        self.calls = 0
        self.calls_max = 0
        self.stall_max = 0.0
        self.turns = 0

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        self.calls += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        ticking = asyncio.get_running_loop().create_task(self._tick())
        await asyncio.sleep(0)
        sys.setprofile(self._count)
        try:
            yield
        finally:
            # What was done without a turn in between counts too.
            await asyncio.sleep(0)
            sys.setprofile(None)
            ticking.cancel()

    async def _tick(self) -> None:
        while True:
            calls, at = self.calls, time.perf_counter()
            await asyncio.sleep(0)
            self.calls_max = max(self.calls_max, self.calls - calls)
            self.stall_max = max(self.stall_max, time.perf_counter() - at)
            self.turns += 1


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_every_api_that_is_served_has_its_worst_request() -> None:
    assert sorted(WORST) == sorted(api.name for api in APIS)


async def prepare(broker: InProcessBroker) -> None:
    client = broker.connect()
    topic = CreatableTopic(name=KNOWN_TOPIC, num_partitions=100, replication_factor=1)
    created = await client.call("CreateTopics", 7, CreateTopicsRequest(topics=[topic]))
    assert created.topics[0].error_code == 0
    await client.call("FindCoordinator", 3, FindCoordinatorRequest(key=KNOWN_GROUP))
    commit = OffsetCommitRequest(
        group_id=KNOWN_GROUP,
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                name=KNOWN_TOPIC, partitions=[OffsetCommitRequestPartition(0, 5)]
            )
        ],
    )
    committed = await client.call("OffsetCommit", 8, commit)
    assert committed.topics[0].partitions[0].error_code == 0


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def broker(
    runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InProcessBroker]:
    made = InProcessBroker(tmp_path_factory.mktemp("worst"))
    runner.run(made.__aenter__())
    runner.run(prepare(made))
    yield made
    runner.run(made.__aexit__())


async def ask_once(broker: InProcessBroker, api: Api, request: WorstRequest) -> None:
    client = broker.connect()
    await client.ask(client.encode(api.name, api.served[1], request.message))


async def measure(broker: InProcessBroker, api: Api, request: WorstRequest) -> str | None:
    """Send one request; what is wrong with how it was dealt with, if anything."""
    client = broker.connect()
    frame = client.encode(api.name, api.served[1], request.message)
    odometer, before = Odometer(), resident_bytes()
    async with odometer.running():
        size = await client.ask(frame)
    growth = resident_bytes() - before
    worst = WORST[api.name]
    allowed = worst.answer_bytes + worst.answer_bytes_per_element * request.elements
    told = (
        f"{api.name} {request.label}: {len(frame)} bytes in, {size} out,"
        f" {odometer.calls_max} calls at a stretch, {odometer.turns} turns,"
        f" {odometer.stall_max * 1e3:.0f} ms (with the counting), {growth / MIB:.0f} MiB more"
    )
    print(told)
    is_fine = odometer.calls_max <= worst.calls and size <= allowed and growth <= GROWTH_BYTES_MAX
    return None if is_fine and client.is_closed == worst.is_last else told


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_the_worst_requests_stay_within_bounds(
    runner: asyncio.Runner, broker: InProcessBroker, api: Api
) -> None:
    requests = list(worst_requests(api, api.served[1], ELEMENTS))
    assert requests
    # What the first request of an API imports and compiles comes once in the life of a broker.
    for each in worst_requests(api, api.served[1], 1):
        runner.run(ask_once(broker, api, each))
    faults = [runner.run(measure(broker, api, each)) for each in requests]
    assert not any(faults), "\n".join(filter(None, faults))
