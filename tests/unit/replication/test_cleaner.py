"""The cleaner at work on partitions that are served meanwhile."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from uuid import UUID

import pytest

from tests.unit.storage.helpers import ManualClock, create_log
from tidelog.cluster.image import PartitionState
from tidelog.config import load, topic_config
from tidelog.host.host import Host
from tidelog.host.offload import ThreadOffload
from tidelog.model import Isolation, TopicPartition
from tidelog.protocol.batches import Record, decode_records, encode_batch, iterate_batches
from tidelog.replication.checkpoints import Checkpoints
from tidelog.replication.cleaner import LogCleaner
from tidelog.replication.disk_space import Room
from tidelog.replication.partition import Partition
from tidelog.replication.standing import Standing, Unregistered
from tidelog.replication.truncations import DiskWork, Truncations
from tidelog.storage.admission import admit
from tidelog.storage.data_dir import CLEANED_OFFSETS, DataDir
from tidelog.storage.file_cache import FileCache
from tidelog.storage.log_context import LogContext, NewLog
from tidelog.testing.disk import SimulatedDisk
from tidelog.testing.virtual_loop import SeededRandom

T = TypeVar("T")
BUFFER_BYTES = 1 << 20
SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "600",
    "min.cleanable.dirty.ratio": "0.1",
    "file.delete.delay.ms": "0",
}


class HookedOffload:
    """Threads, with a look at what is handed to them."""

    def __init__(self) -> None:
        self._threads = ThreadOffload("test", 2)
        self.started: list[str] = []
        self.on_start: Callable[[str], None] = lambda name: None

    def run(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        name = getattr(function, "__name__", "") or getattr(function, "func").__name__  # noqa: B009
        self.started.append(name)
        future = self._threads.run(function, *args)
        self.on_start(name)
        return future

    def close(self) -> None:
        self._threads.close()


class Bench:
    """A data directory with compacted partitions, all led here, and their cleaner."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.clock = ManualClock()
        self.offload = HookedOffload()
        self.host = Host(self.clock, self.disk, self.offload, SeededRandom())
        self.later: list[Callable[[], None]] = []
        context = LogContext(
            self.disk,
            self.clock,
            FileCache(self.disk, 64),
            self.host.random,
            lambda delay_s, work: self.later.append(work),
            lambda path, error: None,
        )
        self.data_dir = DataDir.open("/data", context)
        self.checkpoints = Checkpoints(self.data_dir, self.host, dict)
        self.partitions: list[Partition] = []
        self.cleaner = LogCleaner(lambda: self.partitions, self.data_dir, self.host)

    def create(self, name: str, **settings: str) -> Partition:
        effective = topic_config(load(), {**SETTINGS, **settings})
        key = TopicPartition(name, 0)
        log = create_log(self.data_dir, key, NewLog(UUID(int=5), effective))
        partition = Partition(
            log,
            effective,
            DiskWork(self.offload, Truncations(self.checkpoints, self.host)),
            Room("clients", "test"),
            Standing(0, self.clock, Unregistered()),
        )
        partition.follow_image(PartitionState(0, 0, 0, (0,), (0,)), 1)
        self.partitions.append(partition)
        return partition


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    try:
        yield made
    finally:
        await made.cleaner.stop()
        for partition in made.partitions:
            await partition.settle()
        made.data_dir.close()
        made.offload.close()
    assert made.disk.open_files == []


def put(partition: Partition, *numbers: int, key: bytes = b"key") -> None:
    """A batch for each number."""
    for number in numbers:
        records = [Record(timestamp=1_700_000_000_000, key=key, value=b"%d" % number * 20)]
        data = memoryview(encode_batch(records))
        partition.append(admit(data, partition.config, 1_700_000_000_000), 1, 1_700_000_000_000)


def read(partition: Partition, offset: int = 0) -> list[int]:
    """The offsets that a consumer sees from there on."""
    found = partition.read(offset, 1 << 20, Isolation.READ_COMMITTED, at_least_one=True)
    if found.slices is None:
        return []
    data = found.slices.read_all()
    assert len(data) == found.slices.size_bytes, "the bytes that were promised"
    found.slices.release()
    return [record.offset for at, _ in iterate_batches(data) for record in decode_records(data, at)]


def test_every_dirty_log_is_cleaned_the_dirtiest_first_and_its_progress_kept() -> None:
    async def run() -> None:
        async with bench() as here:
            some, plain, more = here.create("a"), here.create("b"), here.create("c")
            plain.log.config.cleanup_compact = False
            for partition in here.partitions:
                put(partition, *range(30))
            await here.cleaner.run(BUFFER_BYTES)
            put(some, *range(5))
            put(more, *range(25))
            order: list[str] = []

            def note(name: str) -> None:
                if name == "read_keys":
                    # A clean holds the segments that it works on.
                    order.extend(
                        each.topic_partition.topic
                        for each in here.partitions
                        if any(segment.readers for segment in each.log.segments)
                    )

            here.offload.on_start = note
            await here.cleaner.run(BUFFER_BYTES)
            assert order == ["c", "a"]
            assert len(read(plain)) == 30
            assert len(read(some)) < 10
            assert len(read(more)) < 10
            assert more.log.first_dirty_offset > 40
            assert here.cleaner.stats.cleans == 4
            assert here.cleaner.stats.failures == 0
            lines = here.disk.content(f"/data/{CLEANED_OFFSETS}").decode().splitlines()
            assert f"c 0 {more.log.first_dirty_offset}" in lines

    asyncio.run(run())


def test_the_watermark_stands_in_the_new_segment_after_a_clean() -> None:
    """The last append filled a segment that was closed and cleaned since: its old place is gone."""

    async def run() -> None:
        async with bench() as here:
            for settings in ({}, {"durability": "fsync"}):
                partition = here.create(f"t{len(settings)}", **settings)
                put(partition, *range(20))
                await partition.flush_and_wait()
                end = partition.high_watermark
                assert end == 20
                waiting = partition.readable_end(Isolation.READ_UNCOMMITTED)
                here.clock.advance(10**12)
                partition.log.roll_if_due(here.clock.now_ms)
                await here.cleaner.run(BUFFER_BYTES)
                assert partition.log.first_dirty_offset == 20
                assert read(partition) == [19]
                assert read(partition, end) == []
                assert partition.readable_bytes(waiting, Isolation.READ_UNCOMMITTED) == 0
                put(partition, 99)
                await partition.flush_and_wait()
                assert read(partition, end) == [20]
                assert read(partition) == [19, 20]
                appended = partition.log.segments[-1].size_bytes
                # A fetch that began to wait before the clean sees what came after it.
                assert partition.readable_bytes(waiting, Isolation.READ_UNCOMMITTED) == appended

    asyncio.run(run())


def test_a_stop_in_the_middle_gives_the_clean_up_and_leaves_nothing_behind() -> None:
    async def run(step: str) -> None:
        async with bench() as here:
            partition = here.create("a")
            put(partition, *range(200))
            task = asyncio.create_task(here.cleaner.run(BUFFER_BYTES))
            reached = asyncio.Event()
            here.offload.on_start = lambda name: reached.set() if name == step else None
            await reached.wait()
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            names = here.disk.list_dir("/data/a-0")
            assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
            assert all(segment.readers == 0 for segment in partition.log.segments)
            assert read(partition)[-1] == 199

    for step in ("read_keys", "rewrite"):
        asyncio.run(run(step))


def test_a_log_whose_batches_cannot_be_told_apart_is_left_alone_and_the_others_cleaned() -> None:
    async def run() -> None:
        async with bench() as here:
            bad, good = here.create("bad"), here.create("good")
            put(bad, *range(20))
            put(good, *range(20))
            # The length of the first batch.
            here.disk.corrupt("/data/bad-0/00000000000000000000.log", 11)
            await here.cleaner.run(BUFFER_BYTES)
            await here.cleaner.run(BUFFER_BYTES)
            assert here.cleaner.uncleanable == 1
            assert here.cleaner.stats.failures == 1
            assert len(read(good)) < 10
            assert not bad.log.offline

    asyncio.run(run())


def test_batches_that_cannot_be_read_are_named_once_and_the_rest_is_cleaned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with bench() as here:
            partition = here.create("bad")
            put(partition, *range(20))
            here.disk.corrupt("/data/bad-0/00000000000000000000.log", 80)
            await here.cleaner.run(BUFFER_BYTES)
            put(partition, *range(20))
            await here.cleaner.run(BUFFER_BYTES)
            assert here.cleaner.uncleanable == here.cleaner.stats.failures == 0
            assert here.cleaner.stats.cleans == 2
            assert len(read(partition, 1)) < 15

    asyncio.run(run())
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warnings == [
        "batches cannot be read and were kept as they are partition=bad-0 count=1 offsets=0-0"
    ]


def test_a_full_disk_breaks_a_clean_off_until_there_is_room() -> None:
    async def run() -> None:
        async with bench() as here:
            partition = here.create("a")
            put(partition, *range(20))
            await partition.flush_and_wait()
            here.disk.fail_next("pwritev", errno.ENOSPC)
            await here.cleaner.run(BUFFER_BYTES)
            assert here.cleaner.stats.failures == 1
            assert len(read(partition)) == 20
            put(partition, 20)
            await here.cleaner.run(BUFFER_BYTES)
            assert here.cleaner.stats.cleans == 1
            assert len(read(partition)) < 10

    asyncio.run(run())


def test_a_log_is_closed_by_age_so_that_the_longest_lag_holds() -> None:
    async def run() -> None:
        async with bench() as here:
            partition = here.create(
                "a", **{"max.compaction.lag.ms": "5000", "min.cleanable.dirty.ratio": "1.0"}
            )
            put(partition, 1, 2, 3)
            await here.cleaner.run(BUFFER_BYTES)
            assert read(partition) == [0, 1, 2]
            here.clock.advance(5001)
            await here.cleaner.run(BUFFER_BYTES)
            assert read(partition) == [2]

    asyncio.run(run())


def test_a_partition_that_is_dropped_under_a_clean_is_let_go() -> None:
    async def run() -> None:
        async with bench() as here:
            partition = here.create("a")
            put(partition, *range(50))

            def drop(name: str) -> None:
                if name == "rewrite":
                    here.partitions.clear()
                    here.data_dir.drop(partition.topic_partition)
                    here.data_dir.retire_directory(partition.topic_partition, UUID(int=5))

            here.offload.on_start = drop
            await here.cleaner.run(BUFFER_BYTES)
            assert here.cleaner.stats.cleans == 0
            assert here.cleaner.stats.failures == 0
            for work in here.later:
                work()
            assert "a-0" not in here.disk.list_dir("/data")

    asyncio.run(run())
