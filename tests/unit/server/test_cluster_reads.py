"""What readers of a partition with replicas are told: offsets, leaders, where else to read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.unit.replication.test_replicated import EPOCHS, Cluster, replicated
from tests.unit.server.cluster_answers import TOPIC_ID, Asking, broker, image, topic
from tidelog.config import load
from tidelog.errors import ErrorCode
from tidelog.host.line_rate import LineRate
from tidelog.model import ListedOffset
from tidelog.protocol.batches import Record, decode_records, encode_batch, iterate_batches
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.replication.partition import Partition
from tidelog.security.authorizer import Principal
from tidelog.server.fetch_sessions import FetchSessions, SessionLimits
from tidelog.server.metrics import BrokerMetrics
from tidelog.testing.virtual_loop import virtual_time


def asking(cluster: Cluster, broker_id: int, **connection: Any) -> Asking:
    """A client of one broker of the cluster."""
    known = image([broker(each) for each in cluster.places], [topic(cluster.state)])
    place = cluster.places[broker_id]
    return Asking(
        known,
        broker_id=broker_id,
        replicas=SimpleNamespace(
            find=lambda *_: cluster.partitions[broker_id],
            config=load(),
            checkpoints=place.disk_work.truncations.checkpoints,
            standing=place.standing,
        ),
        offload=place.offload,
        clock=place.clock,
        fetch_sessions=FetchSessions(SessionLimits(10, 10, 10_000), place.clock, place.host.random),
        metrics=BrokerMetrics(),
        damage_rate=LineRate(place.clock),
        **connection,
    )


def list_offset(cluster: Cluster, timestamp: int, version: int = 7) -> tuple[int, int]:
    asked = ListOffsetsPartition(0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", [asked])])
    answer = asking(cluster, cluster.state.leader).ask("ListOffsets", version, request)
    told = answer.topics[0].partitions[0]
    return told.error_code, told.offset


@virtual_time
async def test_the_end_is_not_told_before_all_that_was_committed_is_known() -> None:
    cluster = await replicated(b"a")
    cluster.put(b"b")
    for follower in (1, 2, 1, 2):
        await cluster.fetch(follower)
    assert list_offset(cluster, ListedOffset.LATEST) == (0, 2)
    # Broker 1 has the record, and does not know yet that it is committed.
    cluster.partitions[1].watermark.offset = 1
    cluster.elect(1, (1, 2))
    assert list_offset(cluster, ListedOffset.LATEST) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert list_offset(cluster, ListedOffset.LATEST, 4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert list_offset(cluster, ListedOffset.EARLIEST) == (0, 0)
    await cluster.fetch(2)
    assert list_offset(cluster, ListedOffset.LATEST) == (0, 2)


def fetching(offset: int, known_epoch: int = -1, **fields: Any) -> FetchRequest:
    asked = FetchPartition(
        0, fetch_offset=offset, current_leader_epoch=known_epoch, partition_max_bytes=1 << 20
    )
    topics = [FetchTopic("t", TOPIC_ID, [asked])]
    return FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=-1, topics=topics, **fields)


def producing() -> ProduceRequest:
    records = memoryview(bytearray(encode_batch([Record(0, 1, None, b"x", [])])))
    data = PartitionProduceData(0, records)
    return ProduceRequest(None, -1, 1_000, [TopicProduceData("t", TOPIC_ID, [data])])


@virtual_time
async def test_a_producer_at_the_wrong_broker_is_told_who_leads() -> None:
    cluster = await replicated(b"a")
    for version in (9, 10, 12, 13):
        answer = asking(cluster, 1).ask("Produce", version, producing())
        told = answer.responses[0].partition_responses[0]
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version < 10:
            assert told.current_leader is None and answer.node_endpoints == []
        else:
            leader = told.current_leader
            assert (leader.leader_id, leader.leader_epoch) == (0, cluster.state.leader_epoch)
            (node,) = answer.node_endpoints
            assert (node.node_id, node.host, node.port, node.rack) == (0, "b0", 9092, "rack0")


@virtual_time
async def test_a_producer_that_waits_is_told_who_leads_when_its_broker_does_not_any_more() -> None:
    cluster = await replicated(b"a")
    waiting = asyncio.ensure_future(asking(cluster, 0).call("Produce", 10, producing()))
    await asyncio.sleep(0)
    cluster.elect(1, (1, 2))
    # The broker's own image has moved as well.
    answer: ProduceResponse = await waiting
    told = answer.responses[0].partition_responses[0]
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert told.current_leader is not None


@virtual_time
async def test_a_consumer_at_the_wrong_broker_or_epoch_is_told_who_leads() -> None:
    cluster = await replicated(b"a")
    epoch = cluster.state.leader_epoch
    cluster.partitions[2].stop(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")
    for broker_id, known, code in (
        (2, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (0, epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (0, epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        for version in (12, 16):
            answer = asking(cluster, broker_id).ask("Fetch", version, fetching(0, known))
            told = answer.responses[0].partitions[0]
            assert told.error_code == code
            if version == 16 and code != ErrorCode.UNKNOWN_LEADER_EPOCH:
                assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (
                    0,
                    epoch,
                )
                assert [each.node_id for each in answer.node_endpoints] == [0]
            else:
                assert told.current_leader is None and answer.node_endpoints == []


async def delete_records(cluster: Cluster, offset: int, timeout_ms: int = 10_000) -> Any:
    partitions = [DeleteRecordsPartition(0, offset)]
    request = DeleteRecordsRequest([DeleteRecordsTopic("t", partitions)], timeout_ms)
    answer = await asking(cluster, cluster.state.leader).call("DeleteRecords", 2, request)
    told = answer.topics[0].partitions[0]
    return told.error_code, told.low_watermark


@virtual_time
async def test_a_deletion_is_answered_when_every_live_replica_has_deleted() -> None:
    cluster = await replicated(b"a", b"b", b"c")
    deletion = asyncio.ensure_future(delete_records(cluster, 2))
    await asyncio.sleep(0)
    for follower in (1, 2, 1):
        await cluster.fetch(follower)
        await asyncio.sleep(0)
        assert not deletion.done()
    await cluster.fetch(2)
    assert await deletion == (0, 2)
    assert [each.log.log_start_offset for each in cluster.partitions.values()] == [2, 2, 2]


@virtual_time
async def test_a_deletion_does_not_wait_for_a_replica_that_is_dead() -> None:
    cluster = await replicated(b"a", b"b", b"c")
    deletion = asyncio.ensure_future(delete_records(cluster, 2))
    await asyncio.sleep(0)
    for _ in range(2):
        await cluster.fetch(1)
        await asyncio.sleep(0)
    assert not deletion.done()
    cluster.places[0].standing.eligible = {0: 10, 1: 11}
    cluster.shrink((0, 1))
    assert await deletion == (0, 2)


@virtual_time
async def test_r22_a_deletion_waits_for_a_dead_replica_that_may_lead_again() -> None:
    """What it answered for would be there again, once that replica leads."""
    cluster = await replicated(b"a", b"b", b"c")
    deletion = asyncio.ensure_future(delete_records(cluster, 2, 500))
    await asyncio.sleep(0)
    cluster.places[0].standing.eligible = {0: 10}
    cluster.state = cluster.state._replace(elr=(1,))
    cluster.shrink((0,))
    assert await deletion == (ErrorCode.REQUEST_TIMED_OUT, -1)


@virtual_time
async def test_a_deletion_that_takes_too_long_tells_how_far_it_has_come() -> None:
    cluster = await replicated(b"a", b"b", b"c")
    assert await delete_records(cluster, 2, 500) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert len(cluster.leader.leading.deletion_waiters) == 0


@virtual_time
async def test_a_deletion_whose_leader_goes_is_told_so() -> None:
    cluster = await replicated(b"a", b"b", b"c")
    deletion = asyncio.ensure_future(delete_records(cluster, 2))
    await asyncio.sleep(0)
    cluster.elect(1, (1, 2))
    assert await deletion == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def fetch(cluster: Cluster, broker_id: int, offset: int, version: int = 12, **fields: Any) -> Any:
    """Error, where else to read, and what was read, of a consumer's fetch."""
    answer = asking(cluster, broker_id).ask("Fetch", version, fetching(offset, **fields))
    told = answer.responses[0].partitions[0]
    data = bytes(told.records or b"")
    values = [each.value for at, _ in iterate_batches(data) for each in decode_records(data, at)]
    return told.error_code, told.preferred_read_replica, values


@virtual_time
async def test_who_diverges_is_told_so_though_it_stands_beyond_the_end() -> None:
    """KAFKA-12996: out of range would have it start over."""
    cluster = await replicated(b"a", b"b")
    request = fetching(9)
    request.topics[0].partitions[0].last_fetched_epoch = cluster.state.leader_epoch
    told = asking(cluster, 0).ask("Fetch", 12, request).responses[0].partitions[0]
    assert told.error_code == ErrorCode.NONE
    assert told.diverging_epoch is not None and told.diverging_epoch.end_offset == 2


@virtual_time
async def test_a_consumer_is_sent_to_the_replica_in_its_rack() -> None:
    cluster = await replicated(b"a", b"b")
    assert fetch(cluster, 0, 0, rack_id="rack2") == (0, 2, [])
    assert fetch(cluster, 0, 0, rack_id="rack0") == (0, -1, [b"a", b"b"])
    assert fetch(cluster, 0, 0, rack_id="elsewhere") == (0, -1, [b"a", b"b"])
    assert fetch(cluster, 0, 0, rack_id="") == (0, -1, [b"a", b"b"])
    assert fetch(cluster, 0, 0, version=10, rack_id="rack2") == (0, -1, [b"a", b"b"])


@virtual_time
async def test_nobody_is_sent_to_a_replica_that_is_behind_or_not_in_sync() -> None:
    cluster = await replicated(b"a")
    cluster.put(b"b")
    for _ in range(2):
        await cluster.fetch(1)
    assert fetch(cluster, 0, 2, rack_id="rack1")[1] == 1
    assert fetch(cluster, 0, 2, rack_id="rack2")[1] == -1, "it does not have the offset"
    cluster.shrink((0, 1))
    assert fetch(cluster, 0, 0, rack_id="rack2")[1] == -1, "it is not in sync"


@virtual_time
async def test_a_follower_serves_what_it_knows_to_be_committed_and_no_more() -> None:
    cluster = await replicated(b"a")
    cluster.put(b"b")
    for follower in (1, 2, 1):
        await cluster.fetch(follower)
    assert cluster.partitions[1].log.log_end_offset == 2
    assert cluster.partitions[1].high_watermark == 1
    assert fetch(cluster, 1, 0) == (0, -1, [b"a"])
    epoch = cluster.state.leader_epoch
    assert fetch(cluster, 1, 0, known_epoch=epoch - 1)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert fetch(cluster, 1, 0, known_epoch=epoch + 1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert fetch(cluster, 1, 0, version=10)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


@virtual_time
async def test_r20_a_consumer_ahead_of_its_follower_is_not_out_of_range() -> None:
    cluster = await replicated(b"a")
    cluster.put(b"b")
    cluster.put(b"c")
    for _ in range(2):
        await cluster.fetch(2)
    follower = cluster.partitions[1]
    assert (follower.high_watermark, follower.log.log_end_offset) == (1, 1)
    assert fetch(cluster, 1, 3)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    await cluster.fetch(1)
    assert (follower.high_watermark, follower.log.log_end_offset) == (1, 3)
    assert fetch(cluster, 1, 3) == (0, -1, []), "the offset is here, and waits to be committed"
    await cluster.fetch(1)
    await cluster.fetch(1)
    assert fetch(cluster, 1, 1) == (0, -1, [b"b", b"c"])


@virtual_time
async def test_a_follower_that_has_lost_touch_serves_nobody() -> None:
    cluster = await replicated(b"a")
    entry = cluster.places[1].standing.entry
    entry.out_of_touch = True  # type: ignore[misc]
    assert fetch(cluster, 1, 0)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


@virtual_time
async def test_r18_a_leader_that_may_be_deposed_is_read_by_its_followers_alone() -> None:
    cluster = await replicated(b"a")
    entry = cluster.places[0].standing.entry
    entry.out_of_touch = True  # type: ignore[misc]
    assert fetch(cluster, 0, 0) == (0, -1, [b"a"]), "all who could lead instead follow it"
    assert list_offset(cluster, ListedOffset.LATEST) == (0, 1)
    await asyncio.sleep(10)
    assert fetch(cluster, 0, 0)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert list_offset(cluster, ListedOffset.LATEST)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for follower in (1, 2):
        await cluster.fetch(follower)
    assert fetch(cluster, 0, 0) == (0, -1, [b"a"])


@virtual_time
async def test_a_fetch_that_waits_at_a_follower_hears_of_what_is_committed() -> None:
    cluster = await replicated(b"a")
    request = fetching(1)
    request.max_wait_ms = 60_000
    waiting = asyncio.ensure_future(asking(cluster, 1).call("Fetch", 12, request))
    await asyncio.sleep(0)
    cluster.put(b"b")
    for follower in (1, 2, 1, 2, 1):
        assert not waiting.done()
        await cluster.fetch(follower)
        await asyncio.sleep(0)
    answer = await waiting
    assert bytes(answer.responses[0].partitions[0].records or b"").count(b"b") >= 1


@virtual_time
async def test_an_idle_follower_that_was_removed_shows_itself_with_its_next_fetch() -> None:
    cluster = await replicated(b"a")
    leader = asking(cluster, 0, principal=Principal("User:__broker", is_broker=True))
    proposed: list[Partition] = []
    cluster.places[0].standing.reconsider = proposed.append
    request = fetching(1, cluster.state.leader_epoch, replica_state=ReplicaState(2, EPOCHS[2]))
    request.max_wait_ms, request.session_epoch = 500, 0
    first = await leader.call("Fetch", 15, request)
    request.session_id, request.session_epoch, request.topics = first.session_id, 1, []
    waiting = asyncio.ensure_future(leader.call("Fetch", 15, request))
    await asyncio.sleep(0.1)
    # While its fetch waits: it is told nothing, and has nothing to tell.
    cluster.shrink((0, 1))
    assert cluster.leader.leading.propose() is None
    proposed.clear()
    assert (await waiting).responses == []
    assert proposed == []
    request.session_epoch = 2
    await leader.call("Fetch", 15, request)
    assert proposed == [cluster.leader]


def following(cluster: Cluster, offset: int) -> tuple[Asking, FetchRequest]:
    """The leader, as its follower 2 asks it, and a fetch that may wait for a minute."""
    leader = asking(cluster, 0, principal=Principal("User:__broker", is_broker=True))
    state = ReplicaState(2, EPOCHS[2])
    request = fetching(offset, cluster.state.leader_epoch, replica_state=state)
    request.max_wait_ms, request.min_bytes, request.session_epoch = 60_000, 1, 0
    return leader, request


@virtual_time
async def test_a_follower_gets_what_was_appended_together_in_one_answer() -> None:
    cluster = await replicated(b"a")
    leader, request = following(cluster, 1)
    waiting = asyncio.ensure_future(leader.call("Fetch", 15, request))
    await asyncio.sleep(1)
    cluster.put(b"b")
    cluster.put(b"c")
    (told,) = (await waiting).responses[0].partitions
    assert [header.base_offset for _, header in iterate_batches(told.records)] == [1, 2]


@virtual_time
async def test_a_follower_that_waits_hears_of_the_watermark_when_its_time_is_up() -> None:
    cluster = await replicated(b"a")
    cluster.put(b"b")
    await cluster.fetch(2)
    leader, request = following(cluster, 2)
    request.max_wait_ms = 0
    session = await leader.call("Fetch", 15, request)
    request.max_wait_ms = 60_000
    request.session_id, request.session_epoch, request.topics = session.session_id, 1, []
    began = asyncio.get_running_loop().time()
    waiting = asyncio.ensure_future(leader.call("Fetch", 15, request))
    await asyncio.sleep(1)
    before = cluster.leader.high_watermark
    await cluster.fetch(1)
    await cluster.fetch(1)
    assert (before, cluster.leader.high_watermark) == (1, 2)
    (told,) = (await waiting).responses[0].partitions
    assert told.high_watermark == 2 and not told.records
    assert asyncio.get_running_loop().time() - began == 60, "it was not woken for it"
