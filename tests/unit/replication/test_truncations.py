"""Logs that are cut in a running broker: together, off the loop, and to the end."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from uuid import UUID

import pytest

from tests.unit.replication.helpers import Place
from tests.unit.storage.helpers import NOW_MS, batch, create_log, offsets
from tidelog.config import load, topic_config
from tidelog.errors import KafkaError
from tidelog.model import TopicPartition
from tidelog.replication.checkpoints import Checkpoints
from tidelog.replication.flushing import Flushing
from tidelog.replication.truncations import Truncations
from tidelog.storage.data_dir import CheckpointPlan
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.testing.virtual_loop import virtual_time


class Followers(Place):
    """Logs with ten records each, and how often they were written down."""

    def __init__(self, count: int = 1) -> None:
        super().__init__()
        self.data_dir.load_logs({})
        config = topic_config(load(), {"durability": "fsync"})
        self.logs: list[Log] = []
        for number in range(count):
            new = NewLog(UUID(int=number + 1), config)
            log = create_log(self.data_dir, TopicPartition("orders", number), new)
            for offset in range(10):
                log.append(batch(fill=offset), 1, NOW_MS)
            self.logs.append(log)
        self.checkpoints = Checkpoints(self.data_dir, self.host, dict)
        self.truncations = Truncations(self.checkpoints, self.host)
        self.written = 0
        gather: Callable[..., CheckpointPlan] = self.data_dir.checkpoint

        def counted(*args: object) -> CheckpointPlan:
            self.written += 1
            return gather(*args)

        self.data_dir.checkpoint = counted  # type: ignore[method-assign]


async def truncated(place: Followers, log: Log) -> None:
    await place.truncations.finish(log, log.cuts.truncation(6))


@virtual_time
async def test_cuts_that_are_asked_for_together_share_their_checkpoints() -> None:
    place = Followers(40)
    await asyncio.gather(*(truncated(place, log) for log in place.logs))
    assert all(offsets(log) == list(range(6)) for log in place.logs)
    assert all(log.flushed_offset == 6 for log in place.logs)
    assert place.written <= 2


@virtual_time
async def test_a_log_is_shorter_before_the_cut_waits_for_the_disk() -> None:
    place = Followers()
    (log,) = place.logs
    task = asyncio.ensure_future(truncated(place, log))
    await asyncio.sleep(0)
    assert log.log_end_offset == 6
    assert log.cuts.under_way
    await task
    assert not log.cuts.under_way


@virtual_time
async def test_a_cut_is_carried_through_though_its_asker_is_gone() -> None:
    place = Followers()
    (log,) = place.logs
    task = asyncio.ensure_future(place.truncations.finish(log, log.cuts.start_over(700)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert log.cuts.under_way
    await place.truncations.settle()
    assert not log.cuts.under_way
    assert (log.log_start_offset, log.log_end_offset) == (700, 700)


@virtual_time
async def test_a_cut_waits_while_the_disk_is_full() -> None:
    place = Followers()
    (log,) = place.logs
    place.disk.capacity_bytes = place.disk.used_bytes()
    task = asyncio.ensure_future(truncated(place, log))
    await asyncio.sleep(5)
    assert not task.done()
    place.disk.capacity_bytes = None
    await task
    assert log.append(batch(), 2, NOW_MS).base_offset == 6


@virtual_time
async def test_a_disk_that_fails_under_a_cut_is_told_to_its_asker() -> None:
    place = Followers()
    (log,) = place.logs
    place.disk.fail_next("truncate", errno.EIO, after=4)
    with pytest.raises(KafkaError):
        await truncated(place, log)
    assert log.offline
    await place.truncations.settle()


@virtual_time
async def test_rule_16_a_cut_takes_back_what_write_outs_had_reached() -> None:
    place = Followers()
    (log,) = place.logs
    flushing = Flushing(log, place.offload, lambda: None, lambda error: None)
    flushing.start()
    await flushing.settle()
    assert flushing.committed_end().offset == 10
    # One more runs while the log is cut, and ends after it.
    log.append(batch(), 1, NOW_MS)
    flushing.start()
    cut = asyncio.ensure_future(truncated(place, log))
    await asyncio.sleep(0)
    assert flushing.committed_end().offset <= 6
    await flushing.settle()
    assert flushing.committed_end().offset <= 6
    await cut
    assert flushing.committed_end() == log.end_position
    for fill in range(5):
        log.append(batch(fill=90 + fill), 2, NOW_MS)
    assert flushing.committed_end().offset == 6
    flushing.start()
    await flushing.settle()
    assert flushing.committed_end() == log.end_position


@virtual_time
async def test_a_stop_does_not_wait_for_a_cut_that_a_full_disk_refuses() -> None:
    place = Followers()
    (log,) = place.logs
    place.disk.capacity_bytes = place.disk.used_bytes()
    task = asyncio.ensure_future(truncated(place, log))
    await asyncio.sleep(5)
    place.truncations.retry_no_more()
    await place.truncations.settle()
    with pytest.raises(KafkaError):
        await task
    place.disk.capacity_bytes = None
    # Not a clean stop: the next start walks what it finds.
    assert not place.data_dir.close({})
    assert log.closed


@virtual_time
async def test_a_log_that_is_dropped_while_it_is_cut_is_no_fault_of_the_disk() -> None:
    place = Followers()
    (log,) = place.logs
    task = asyncio.ensure_future(truncated(place, log))
    await asyncio.sleep(0)
    place.data_dir.drop(log.topic_partition)
    assert place.data_dir.retire_directory(log.topic_partition, log.topic_id)
    await task
    assert not log.offline
    assert not place.disk.exists("/data/sync-failed")
