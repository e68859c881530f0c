"""Group commit: when a log is brought to the disk, and what a fault of the disk does to it."""

from __future__ import annotations

import asyncio
import errno

import pytest

from tests.unit.replication.helpers import Place, in_seconds
from tidelog.errors import ErrorCode, KafkaError
from tidelog.replication.partition import Partition
from tidelog.testing.virtual_loop import run_virtual, virtual_time


def syncs(place: Place) -> int:
    return place.disk.calls_of("fdatasync")


def evict_files(partition: Partition) -> None:
    """Have the next use of a file open it again."""
    files = partition.log.context.files
    with files.lock:
        for file in tuple(files.opened):
            file.evict()


@virtual_time
async def test_what_is_appended_while_a_write_out_runs_shares_the_next_one() -> None:
    place = Place()
    partition = place.lead(durability="fsync")
    await partition.settle()
    before = syncs(place)
    waits = []
    for number in range(50):
        result = place.put(partition, b"%d" % number)
        waits.append(partition.committed(result.last_offset, in_seconds(10)))
    await waits[0]
    assert not any(wait.done() for wait in waits[1:]), "the first write-out covers the first batch"
    await waits[-1]
    assert all(wait.done() for wait in waits)
    # The segment is synced twice; its directory and index belong to the first time.
    assert syncs(place) - before <= 4


@pytest.mark.parametrize("seed", range(20))
def test_commits_come_in_the_order_of_offsets_and_only_what_is_on_disk(seed: int) -> None:
    async def scenario() -> None:
        place = Place(seed)
        partition = place.lead(durability="fsync")
        order: list[int] = []
        for number in range(30):
            offset = place.put(partition, b"%d" % number).last_offset
            wait = partition.committed(offset, in_seconds(60))
            wait.add_done_callback(lambda _, offset=offset: order.append(offset))  # type: ignore[misc]
            await asyncio.sleep(place.host.random.below(20) / 1000)
            assert partition.high_watermark <= partition.log.flushed_offset
        await partition.flush_and_wait()
        await asyncio.sleep(0)
        assert order == list(range(30))

    run_virtual(scenario())


@virtual_time
async def test_flush_messages_and_flush_ms_say_when_it_is_time() -> None:
    place = Place()
    by_count = place.lead("count", durability="fsync", flush_messages="3")
    by_time = place.lead("time", durability="fsync", flush_ms="5000")
    for partition in (by_count, by_time):
        place.put(partition, b"a")
        place.put(partition, b"b")
    await asyncio.sleep(4)
    assert (by_count.high_watermark, by_time.high_watermark) == (0, 0)
    place.put(by_count, b"c")
    await asyncio.sleep(0.9)
    assert (by_count.high_watermark, by_time.high_watermark) == (3, 0)
    await asyncio.sleep(0.2)
    assert by_time.high_watermark == 2


@pytest.mark.parametrize("call", ["open", "sync_dir"])
def test_a_write_out_that_gets_no_descriptor_is_tried_again_by_itself(call: str) -> None:
    async def scenario() -> None:
        place = Place()
        partition = place.lead()
        place.put(partition, b"a")
        evict_files(partition)
        for step in range(3):
            place.disk.fail_next(call, errno.EMFILE, after=step)
        await partition.flush_and_wait()
        assert partition.log.flushed_offset == 0
        await asyncio.sleep(10)
        assert (partition.log.flushed_offset, partition.offline_reason) == (1, None)

    run_virtual(scenario())


@virtual_time
async def test_a_failed_sync_is_never_tried_again_and_fails_all_who_wait() -> None:
    place = Place()
    partition = place.lead(durability="fsync")
    await partition.settle()
    place.disk.fail_next("fdatasync", errno.EIO)
    waits = [
        partition.committed(place.put(partition, b"a").last_offset, in_seconds(10))
        for _ in range(3)
    ]
    for wait in waits:
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            await wait
    failed = syncs(place)
    partition.flush()
    await asyncio.sleep(60)
    assert syncs(place) == failed
    assert (partition.high_watermark, partition.log.flushed_offset) == (0, 0)


@virtual_time
async def test_a_write_out_that_raises_takes_the_partition_offline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = Place()
    partition = place.lead(durability="fsync")
    await partition.settle()

    def run_out_of_memory(fd: int) -> None:
        raise MemoryError("no room for a buffer")

    place.disk.fdatasync = run_out_of_memory  # type: ignore[method-assign]
    wait = partition.committed(place.put(partition, b"a").last_offset, in_seconds(10))
    with pytest.raises(KafkaError, match="MemoryError: no room for a buffer"):
        await wait
    assert "partition broken partition=orders-0" in caplog.text


@virtual_time
async def test_after_a_stop_no_write_out_begins_by_itself() -> None:
    place = Place()
    partition = place.lead(durability="fsync", flush_ms="5000")
    place.put(partition, b"a")
    before = syncs(place)
    partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down")
    await asyncio.sleep(60)
    assert syncs(place) == before
