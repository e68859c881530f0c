"""What a broker does by itself, over virtual days."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from tests.unit.replication.helpers import read
from tests.unit.replication.node import Node
from tidelog.cluster.commands import AlterPartition, Answer, CreateTopic
from tidelog.config import BrokerConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.offload import Offload
from tidelog.model import TopicPartition
from tidelog.replication.isr_changes import IsrChanges
from tidelog.replication.mending import Mending
from tidelog.server import housekeeping
from tidelog.server.answer_cache import AnswerCache
from tidelog.server.housekeeping import Household, Housekeeping
from tidelog.server.listener import Listener
from tidelog.server.metrics import BrokerMetrics
from tidelog.storage.log import Log
from tidelog.storage.running_clock import CLOCK_FILE
from tidelog.testing.virtual_loop import run_virtual, virtual_time

MIB = 1024**2
HOUR, DAY = 3600, 86_400


class CountingListener:
    """Knows when it was swept."""

    def __init__(self) -> None:
        self.sweeps: list[float] = []

    def configure(self, config: BrokerConfig) -> None:
        pass

    def sweep(self, now: float) -> None:
        self.sweeps.append(now)


class House(Node):
    """Replicas that are kept in order."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings=settings)
        self.listener = CountingListener()
        self.answers = AnswerCache()
        listeners = [cast(Listener, self.listener)]
        self.proposed: list[AlterPartition] = []
        isr_changes = IsrChanges(self.replicas.standing, self._propose)
        household = Household(
            self.replicas, isr_changes, self.data_dir, listeners, self.answers, BrokerMetrics(),
            Mending(self.replicas, isr_changes, self.data_dir, self.host),
        )  # fmt: skip
        self.housekeeping = Housekeeping(household, self.host)

    async def _propose(self, commands: Sequence[AlterPartition]) -> list[Answer | KafkaError]:
        self.proposed += commands
        return [KafkaError(ErrorCode.INVALID_UPDATE_VERSION) for _ in commands]


@asynccontextmanager
async def kept(*topics: CreateTopic, **settings: str) -> AsyncIterator[House]:
    house = House({name.replace("_", "."): value for name, value in settings.items()})
    await house.start()
    await house.do(*topics)
    house.housekeeping.start()
    try:
        yield house
    finally:
        await house.housekeeping.stop()
        await house.replicas.close()


# Days pass faster where nothing is done every second.
UNHURRIED = {
    "flusher_interval_ms": "600000",
    "log_flush_offset_checkpoint_interval_ms": "3600000",
    "log_flush_start_offset_checkpoint_interval_ms": "3600000",
    "replica_high_watermark_checkpoint_interval_ms": "3600000",
    "log_cleaner_enable": "false",
}


@pytest.fixture
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_HEARTBEAT_SECONDS", "_SWEEP_SECONDS", "_DISK_CHECK_SECONDS"):
        monkeypatch.setattr(housekeeping, name, 300.0)
    monkeypatch.setattr(housekeeping, "_CLOCK_SECONDS", 240.0)


@pytest.mark.usefixtures("rare_looks")
def test_retention_lets_go_of_what_is_too_old_and_of_nothing_else() -> None:
    async def scenario() -> None:
        settings = {"retention.ms": str(3 * DAY * 1000), "segment.ms": str(12 * HOUR * 1000)}
        short = CreateTopic("orders", configs={**settings, "segment.jitter.ms": "0"})
        longer = CreateTopic("for-ever", configs={"retention.ms": "-1"})
        async with kept(short, longer, **UNHURRIED) as house:
            orders, for_ever = house.find("orders"), house.find("for-ever")
            for hour in range(24 * 5):
                house.put(orders, b"%d" % hour)
                house.put(for_ever, b"%d" % hour)
                await asyncio.sleep(HOUR)
                kept_hours = [int(value or b"") for value in read(orders)]
                # What is younger than three days is there, what is older by a segment is not.
                assert kept_hours[0] <= max(0, hour - 72 + 1), hour
                assert kept_hours[0] >= hour - 72 - 13, hour
                assert kept_hours[-1] == hour
            assert len(read(for_ever)) == 24 * 5
            names = house.disk.list_dir("/data/orders-0")
            assert sum(name.endswith(".log") for name in names) <= 8
            assert not [name for name in names if name.endswith(".deleted")]

    run_virtual(scenario(), limit_seconds=10 * DAY)


@virtual_time
async def test_a_disk_that_fills_up_and_empties_refuses_and_takes_within_a_second() -> None:
    async with kept(CreateTopic("orders"), CreateTopic("__consumer_offsets")) as house:
        orders, offsets = house.find("orders"), house.find("__consumer_offsets")
        house.disk.total_bytes = lambda path: 10_000 * MIB  # type: ignore[method-assign]

        async def takes(free_mib: int) -> tuple[bool, bool]:
            house.disk.capacity_bytes = house.disk.used_bytes() + free_mib * MIB
            await asyncio.sleep(1.1)
            taken = []
            for partition in (orders, offsets):
                try:
                    house.put(partition, b"value")
                    taken.append(True)
                except KafkaError:
                    taken.append(False)
            return taken[0], taken[1]

        assert await takes(600) == (True, True)
        assert "disk-reserve" in house.disk.list_dir("/data")
        assert await takes(499) == (False, True)
        assert await takes(63) == (False, False)
        # Others have filled the disk: the reserve goes, and comes back when there is room.
        assert await takes(7) == (False, False)
        assert "disk-reserve" not in house.disk.list_dir("/data")
        assert await takes(600) == (True, True)
        await asyncio.sleep(1)
        assert "disk-reserve" in house.disk.list_dir("/data")


@virtual_time
async def test_what_could_not_be_created_is_told_and_tried_again_when_there_is_room() -> None:
    async with kept() as house:
        house.disk.capacity_bytes = house.disk.used_bytes()
        await house.do(CreateTopic("orders"))
        await asyncio.sleep(1.1)
        assert set(house.answers.offline) == {TopicPartition("orders", 0)}
        house.disk.capacity_bytes = None
        # One look sees the room and has it created, the next one tells of it.
        await asyncio.sleep(2.1)
        assert set(house.answers.offline) == set()
        house.put(house.find("orders"), b"value")


@virtual_time
async def test_what_is_dirty_is_flushed_in_the_background_and_written_down() -> None:
    async with kept(CreateTopic("orders")) as house:
        orders = house.find("orders")
        house.put(orders, b"value")
        await asyncio.sleep(0.5)
        assert orders.log.flushed_offset == 0
        await asyncio.sleep(1)
        assert orders.log.flushed_offset == 1
        await asyncio.sleep(5)
        lines = house.disk.content("/data/recovery-point-offset-checkpoint").decode().splitlines()
        assert "orders 0 1" in lines


@virtual_time
async def test_a_checkpoint_that_cannot_be_written_is_told_once_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with kept(CreateTopic("orders")) as house:
        await asyncio.sleep(6)
        # More is taken than there is, so that the reserve makes no room either.
        house.disk.capacity_bytes = 0
        await asyncio.sleep(30)
        failed = caplog.text.count("checkpoint failed, will be tried again")
        house.disk.capacity_bytes = None
        await asyncio.sleep(10)
        assert failed == 1
        assert caplog.text.count("checkpoint written again") == 1


@pytest.mark.usefixtures("rare_looks")
def test_one_partition_that_breaks_does_not_keep_the_others_from_being_trimmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Log.apply_retention
    trimmed: list[str] = []

    def retention(self: Log, *args: int) -> int:
        trimmed.append(self.topic_partition.topic)
        assert self.topic_partition.topic != "b", "this cannot be"
        return whole(self, *args)

    monkeypatch.setattr(Log, "apply_retention", retention)

    async def scenario() -> None:
        async with kept(*map(CreateTopic, "abc")) as house:
            await asyncio.sleep(301)
            assert trimmed == ["a", "b", "c"]
            assert list(house.replicas.offline) == [TopicPartition("b", 0)]
            await asyncio.sleep(300)
            assert set(house.answers.offline) == {TopicPartition("b", 0)}

    run_virtual(scenario())


@virtual_time
async def test_a_duty_that_fails_is_logged_and_comes_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with kept() as house:

        def fail(now: float) -> None:
            raise RuntimeError("not today")

        sweep, house.listener.sweep = house.listener.sweep, fail  # type: ignore[method-assign]
        await asyncio.sleep(3.5)
        assert caplog.text.count("housekeeping failed duty=sweep") == 3
        house.listener.sweep = sweep  # type: ignore[method-assign]
        await asyncio.sleep(3)
        assert len(house.listener.sweeps) == 3


@virtual_time
async def test_the_running_clock_is_kept_every_ten_seconds_and_at_the_end() -> None:
    path = f"/data/{CLOCK_FILE}"
    async with kept() as house:
        await asyncio.sleep(1)
        first = house.disk.content(path)
        await asyncio.sleep(9.5)
        second = house.disk.content(path)
        assert second != first
        house.disk.fail_next("fdatasync", errno.EIO)
        await asyncio.sleep(5)
        assert house.disk.content(path) == second
    assert house.disk.content(path) != second


@virtual_time
async def test_a_clock_may_be_written_before_the_end_of_the_one_before_is_heard_of() -> None:
    async with kept() as house:
        await asyncio.sleep(1.5)
        loop, offload = asyncio.get_running_loop(), house.host.offload
        writes: list[asyncio.Future[None]] = []

        def run(function: Callable[..., None], *args: object) -> asyncio.Future[None]:
            if function is not housekeeping.write_durably:
                return offload.run(function, *args)
            writes.append(loop.create_future())
            if len(writes) > 1:
                writes[-1].set_result(None)
            return writes[-1]

        house.host.offload = cast(Offload, SimpleNamespace(run=run))
        first, *later = (asyncio.create_task(house.housekeeping._write_clock()) for _ in range(3))
        await asyncio.sleep(0)
        assert len(writes) == 1, "the others wait"
        writes[0].set_result(None)
        await asyncio.gather(first, *later)
        assert len(writes) == 3
        house.host.offload = offload


@pytest.mark.usefixtures("rare_looks")
def test_a_jump_of_the_wall_clock_that_is_set_right_again_costs_a_segment_a_minute() -> None:
    async def scenario() -> None:
        settings = {"retention.ms": str(3 * DAY * 1000), "segment.ms": str(HOUR * 1000)}
        settings |= {"segment.jitter.ms": "0"}
        async with kept(CreateTopic("orders", configs=settings), **UNHURRIED) as house:
            orders = house.find("orders")
            for hour in range(30):
                house.put(orders, b"%d" % hour)
                await asyncio.sleep(HOUR)
            house.clock.jump(365 * DAY * 1000)
            await asyncio.sleep(601)
            left = len(read(orders))
            assert 20 <= left < 30
            house.clock.jump(-365 * DAY * 1000)
            await asyncio.sleep(DAY)
            assert len(read(orders)) == left

    run_virtual(scenario(), limit_seconds=4 * DAY)
