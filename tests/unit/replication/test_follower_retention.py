"""Retention on a follower: never beyond what is committed, and the log's start from the leader."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.replication.helpers import Place
from tests.unit.storage.helpers import NOW_MS, batch, offsets
from tidelog.cluster.image import PartitionState
from tidelog.replication.partition import Partition
from tidelog.testing.virtual_loop import virtual_time


def follower(place: Place) -> Partition:
    partition = place.build()
    partition.reconfigure(
        replace(partition.config, segment_bytes=1024, retention_bytes=1024, retention_ms=-1)
    )
    partition.follow_image(PartitionState(0, 1, 3, (0, 1), (0, 1)), 1)
    return partition


def fetched(partition: Partition, count: int, high_watermark: int, leader_start: int = 0) -> None:
    """So many records come from the leader, with what it says of its own log."""
    following = partition.following
    asked = following.next_fetch()
    assert asked is not None
    records = b"".join(
        bytes(batch(size=200, base_offset=asked.offset + number, leader_epoch=3).buffer)
        for number in range(count)
    )
    assert following.append_from_leader(asked, memoryview(records), high_watermark, leader_start)


@virtual_time
async def test_a_follower_keeps_what_is_not_committed_whatever_its_size() -> None:
    place = Place()
    partition = follower(place)
    fetched(partition, 30, high_watermark=0)
    assert len(partition.log.segments) > 5
    assert partition.apply_retention(NOW_MS) == 0
    fetched(partition, 0, high_watermark=9)
    assert partition.apply_retention(NOW_MS) > 0
    assert 0 < partition.log.log_start_offset <= 9
    assert offsets(partition.log)[-1] == 29


@virtual_time
async def test_a_followers_log_starts_where_its_leaders_does_and_never_before() -> None:
    place = Place()
    partition = follower(place)
    fetched(partition, 30, high_watermark=20, leader_start=12)
    assert partition.log.log_start_offset == 12
    fetched(partition, 0, high_watermark=20, leader_start=4)
    assert partition.log.log_start_offset == 12
    # Deleted up to a record that the follower has yet to fetch: no further than its own end.
    fetched(partition, 0, high_watermark=40, leader_start=35)
    assert partition.log.log_start_offset == partition.high_watermark == 30


@virtual_time
async def test_retention_waits_while_a_log_is_being_cut() -> None:
    place = Place()
    partition = follower(place)
    fetched(partition, 30, high_watermark=25)
    log = partition.log
    cut = log.cuts.truncation(27)
    assert partition.apply_retention(NOW_MS) == 0
    await place.disk_work.truncations.finish(log, cut)
    assert partition.apply_retention(NOW_MS) > 0
