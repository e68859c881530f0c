"""An assertion that fails inside a partition takes that partition offline, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.replication.helpers import Place, in_seconds, read, state
from tidelog.errors import KafkaError, PartitionBrokenError
from tidelog.replication.cleaner import LogCleaner
from tidelog.replication.partition import Partition
from tidelog.server.handlers import list_offsets
from tidelog.storage.compaction import Clean
from tidelog.storage.epochs import LeaderEpochs
from tidelog.storage.flush import FlushPlan
from tidelog.storage.log import Log
from tidelog.storage.segments import Segments
from tidelog.storage.timestamp_search import TimestampSearch
from tidelog.testing.virtual_loop import virtual_time

SETTINGS = {
    "durability": "fsync",
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0",
    "internal_segment_bytes": "600",
}


class Bench:
    """Two partitions, of which the first will break."""

    def __init__(self) -> None:
        self.place = Place()
        self.bad = self.place.lead("bad", **SETTINGS)
        self.good = self.place.lead("good", **SETTINGS)
        self.cleaner = LogCleaner(
            lambda: (self.bad, self.good), self.place.data_dir, self.place.host
        )

    async def fill(self) -> None:
        for partition in (self.bad, self.good):
            for number in range(20):
                self.put(partition, number)
            await partition.flush_and_wait()

    def put(self, partition: Partition, number: int = 0) -> None:
        self.place.put(partition, b"%d" % number * 20, key=b"key")

    async def append(self) -> None:
        self.put(self.bad)

    async def read(self) -> None:
        read(self.bad)

    async def reach(self) -> None:
        self.bad.reach(0, 1000, 0)

    async def retain(self) -> None:
        self.bad.apply_retention(self.place.clock.wall_ms())

    async def delete(self) -> None:
        self.bad.delete_records(5)

    async def lead(self) -> None:
        self.bad.follow_image(state(epoch=1), 1)

    async def search(self) -> None:
        await list_offsets._look_up_all({("bad", 0, 5): self.bad}, self.place.offload)

    async def flush(self) -> None:
        self.put(self.bad)
        await self.bad.flush_and_wait()

    async def clean(self) -> None:
        await self.cleaner.run(1 << 20)


Use = Callable[[Bench], Awaitable[None]]
PLACES: dict[str, tuple[type, str, Use, bool]] = {
    "append": (Log, "append", Bench.append, True),
    "read": (Log, "read", Bench.read, True),
    "reach": (Segments, "reach", Bench.reach, True),
    "retention": (Log, "apply_retention", Bench.retain, True),
    "delete records": (Log, "advance_log_start", Bench.delete, True),
    "lead": (LeaderEpochs, "assign", Bench.lead, True),
    "a search by time": (TimestampSearch, "run", Bench.search, True),
    "a flush begins": (Log, "flush_plan", Bench.flush, False),
    "a flush runs": (FlushPlan, "run", Bench.flush, False),
    "a flush ends": (Log, "flushed", Bench.flush, False),
    "a clean is looked for": (Log, "roll_if_due", Bench.clean, False),
    "a clean reads": (Clean, "read_keys", Bench.clean, False),
    "a clean replaces": (Log, "replace_segments", Bench.clean, False),
}


@pytest.mark.parametrize("name", PLACES)
def test_an_assertion_breaks_its_partition_alone(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner, method, use, raises = PLACES[name]

    @virtual_time
    async def scenario() -> None:
        bench = Bench()
        await bench.fill()
        wait = bench.bad.committed(1000, in_seconds(600))
        whole = getattr(owner, method)
        injected = 0

        def breaks(self: object, *args: object, **kwargs: object) -> object:
            nonlocal injected
            if injected:
                return whole(self, *args, **kwargs)
            injected = 1
            raise AssertionError("this cannot be")

        monkeypatch.setattr(owner, method, breaks)
        if raises:
            with pytest.raises(PartitionBrokenError, match="bad-0: this cannot be"):
                await use(bench)
        else:
            await use(bench)
        assert injected
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR: AssertionError: this cannot be"):
            await asyncio.wait_for(wait, 1)
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            bench.put(bench.bad)
        assert bench.bad.log.offline
        # The other one is served, kept, flushed and cleaned as before.
        bench.put(bench.good)
        await bench.good.flush_and_wait()
        assert read(bench.good, 20)
        bench.good.apply_retention(bench.place.clock.wall_ms())
        await bench.cleaner.run(1 << 20)
        assert bench.good.log.first_dirty_offset > 0
        assert bench.good.offline_reason is None

    scenario()
    traces = [each for each in caplog.records if each.exc_info]
    assert [each.getMessage() for each in traces] == ["partition broken partition=bad-0"]


@virtual_time
async def test_the_watermark_lies_within_the_log() -> None:
    place = Place()
    partition = place.lead()
    place.put(partition, b"a", b"b")
    partition.log.log_start_offset = 5
    with pytest.raises(PartitionBrokenError, match="starts above its high watermark"):
        place.put(partition, b"c")
    assert "starts above its high watermark" in str(partition.offline_reason)
