"""I8: the log start that clients are told never falls, whichever in-sync replica leads next."""

from __future__ import annotations

import asyncio

from tests.unit.replication.test_replicated import Cluster, replicated
from tests.unit.server.test_cluster_reads import asking, fetching, list_offset, producing
from tidelog.errors import ErrorCode
from tidelog.model import ListedOffset
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.testing.virtual_loop import virtual_time

NOT_YET = (ErrorCode.OFFSET_NOT_AVAILABLE, -1)


async def earliest(cluster: Cluster, version: int = 7) -> tuple[int, int]:
    """What a client is told, which may have to wait a moment for it."""
    asked = ListOffsetsPartition(0, current_leader_epoch=-1, timestamp=ListedOffset.EARLIEST)
    request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", [asked])])
    answer = await asking(cluster, cluster.state.leader).call("ListOffsets", version, request)
    told = answer.topics[0].partitions[0]
    return told.error_code, told.offset


def fetched_start(cluster: Cluster, broker_id: int, offset: int) -> int:
    answer = asking(cluster, broker_id).ask("Fetch", 12, fetching(offset))
    return int(answer.responses[0].partitions[0].log_start_offset)


async def produced_start(cluster: Cluster) -> int:
    waiting = asyncio.ensure_future(asking(cluster, 0).call("Produce", 9, producing()))
    await asyncio.sleep(0)
    for follower in (1, 2):
        for _ in range(2):
            await cluster.fetch(follower)
    answer = await waiting
    return int(answer.responses[0].partition_responses[0].log_start_offset)


async def on_disk(cluster: Cluster, broker_id: int) -> None:
    await cluster.places[broker_id].disk_work.truncations.checkpoints.settle()


@virtual_time
async def test_a_start_is_told_when_every_in_sync_replica_has_it_on_its_disk() -> None:
    cluster = await replicated(b"a", b"b", b"c")
    assert await earliest(cluster) == (0, 0)
    cluster.leader.delete_records(2)
    await on_disk(cluster, 0)
    for follower in (1, 1, 2):
        assert await earliest(cluster) == NOT_YET
        assert await earliest(cluster, 4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert fetched_start(cluster, 0, 3) == -1
        await cluster.fetch(follower)
    waiting = asyncio.ensure_future(earliest(cluster))
    await asyncio.sleep(0)
    await cluster.fetch(2)
    assert await waiting == (0, 2)
    assert fetched_start(cluster, 0, 3) == 2
    # A follower does not know what the others have.
    assert fetched_start(cluster, 1, 3) == -1


@virtual_time
async def test_a_start_is_told_when_it_is_on_the_leaders_own_disk() -> None:
    cluster = await replicated(b"a", b"b", b"c")
    cluster.shrink((0,))
    cluster.places[0].disk.capacity_bytes = 0
    cluster.leader.delete_records(2)
    await on_disk(cluster, 0)
    assert await earliest(cluster) == NOT_YET
    cluster.places[0].disk.capacity_bytes = None
    await cluster.places[0].disk_work.truncations.checkpoints.write()
    assert list_offset(cluster, ListedOffset.EARLIEST) == (0, 2)


@virtual_time
async def test_a_producer_is_told_no_start_that_might_fall() -> None:
    cluster = await replicated(b"a", b"b", b"c")
    cluster.leader.delete_records(2)
    assert await produced_start(cluster) == -1
    assert await produced_start(cluster) == 2


@virtual_time
async def test_a_new_leader_tells_its_start_when_the_others_have_shown_theirs() -> None:
    cluster = await replicated(b"a", b"b", b"c")
    cluster.leader.delete_records(2)
    for _ in range(2):
        await cluster.fetch(1)
    cluster.elect(1, (1, 2))
    assert await earliest(cluster) == NOT_YET
    for _ in range(3):
        await cluster.fetch(2)
    assert await earliest(cluster) == (0, 2)


@virtual_time
async def test_nobody_joins_the_isr_with_an_earlier_start_than_was_told() -> None:
    cluster = await replicated(b"a", b"b", b"c")
    cluster.shrink((0, 1))
    cluster.leader.delete_records(2)
    for _ in range(2):
        await cluster.fetch(1)
    assert await earliest(cluster) == (0, 2)
    await cluster.fetch(2)
    assert cluster.leader.leading.propose() is None, "it has all records, and a start of before"
    await cluster.fetch(2)
    proposal = cluster.leader.leading.propose()
    assert proposal is not None and proposal.broker_ids == {0, 1, 2}
