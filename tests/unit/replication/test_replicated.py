"""Replicas of one partition on several brokers, with the network left out."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from tests.unit.replication.helpers import Place, in_seconds, read
from tidelog.cluster.image import PartitionState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import Isolation
from tidelog.replication.following import EpochEnd, FetchFrom
from tidelog.replication.partition import Partition
from tidelog.replication.standing import Unregistered
from tidelog.testing.virtual_loop import virtual_time

REPLICAS: Final = (0, 1, 2)
EPOCHS: Final = {0: 10, 1: 11, 2: 12}


class Cluster:
    """One partition with three replicas, whose fetches are made by hand."""

    def __init__(self, min_isr: int = 2, **settings: str) -> None:
        self.min_isr = min_isr
        self.places = {each: Place(broker_id=each) for each in REPLICAS}
        self.partitions: dict[int, Partition] = {}
        for broker_id, place in self.places.items():
            place.standing.eligible = EPOCHS
            place.standing.entry = Unregistered(EPOCHS[broker_id])
            self.partitions[broker_id] = place.build(**settings)
        self.state = PartitionState(0, 0, 1, REPLICAS, REPLICAS)

    def elect(self, leader: int, isr: tuple[int, ...], told: tuple[int, ...] = REPLICAS) -> None:
        """A new leader; brokers that are not told go on as they were."""
        self.change(leader, isr, self.state.leader_epoch + 1, told)

    def shrink(self, isr: tuple[int, ...]) -> None:
        """Another ISR in the same epoch."""
        self.change(self.state.leader, isr, self.state.leader_epoch, REPLICAS)

    def change(
        self, leader: int, isr: tuple[int, ...], epoch: int, told: tuple[int, ...] = REPLICAS
    ) -> None:
        self.state = self.state._replace(
            leader=leader, isr=isr, leader_epoch=epoch,
            partition_epoch=self.state.partition_epoch + 1,
        )  # fmt: skip
        for broker_id in told:
            self.partitions[broker_id].follow_image(self.state, self.min_isr)

    @property
    def leader(self) -> Partition:
        return self.partitions[self.state.leader]

    def put(self, *values: bytes, acks: int = -1) -> int:
        """Append at the leader; the last offset."""
        place = self.places[self.state.leader]
        return place.put(self.leader, *values, acks=acks).last_offset

    async def fetch(self, follower_id: int) -> None:
        """One fetch of a follower, to its end."""
        partition = self.partitions[follower_id]
        following = partition.following
        await partition.settle()
        # A new start of the log is written down first.
        following.next_fetch()
        await self.places[follower_id].disk_work.truncations.checkpoints.settle()
        asked = following.next_fetch()
        assert asked is not None
        answer = self.answer(follower_id, asked)
        if isinstance(answer, EpochEnd):
            assert await following.truncate_to(asked, answer)
        else:
            records, watermark, log_start = answer
            assert following.append_from_leader(asked, memoryview(records), watermark, log_start)

    def answer(self, follower_id: int, asked: FetchFrom) -> EpochEnd | tuple[bytes, int, int]:
        """What the leader has for a fetch from this place."""
        leader = self.leader
        leader.check_leader(asked.leader_epoch)
        end = leader.epoch_end(asked.last_epoch)
        if asked.last_epoch >= 0 and (end[0] < asked.last_epoch or end[1] < asked.offset):
            return end
        leader.replica_fetches(follower_id, EPOCHS[follower_id], asked.offset, asked.log_start)
        found = leader.read(asked.offset, 1 << 20, Isolation.REPLICA, at_least_one=True)
        data = b""
        if found.slices is not None:
            data = bytes(found.slices.read_all())
            found.slices.release()
        return data, found.high_watermark, found.log_start_offset

    def watermarks(self) -> list[int]:
        return [self.partitions[each].high_watermark for each in REPLICAS]


async def replicated(*values: bytes, **settings: str) -> Cluster:
    """A cluster in epoch 2 whose replicas all have these values, committed."""
    cluster = Cluster(**settings)
    cluster.elect(0, REPLICAS)
    for value in values:
        cluster.put(value)
    for _ in range(3):
        for follower in (1, 2):
            await cluster.fetch(follower)
    assert cluster.watermarks() == [len(values)] * 3
    return cluster


@virtual_time
async def test_a_record_is_committed_once_every_replica_in_sync_has_asked_for_the_next() -> None:
    cluster = Cluster()
    cluster.elect(0, REPLICAS)
    last = cluster.put(b"a", b"b")
    wait = cluster.leader.committed(last, in_seconds(60))
    for follower in (1, 1, 2):
        await cluster.fetch(follower)
    assert not wait.done() and read(cluster.leader) == []
    await cluster.fetch(2)
    await wait
    assert read(cluster.leader) == [b"a", b"b"]
    assert cluster.watermarks()[1:] == [0, 2]


@virtual_time
async def test_r1_a_new_leader_does_not_commit_what_only_it_has() -> None:
    cluster = await replicated(b"a")
    cluster.put(b"b")
    await cluster.fetch(1)
    cluster.elect(1, (1, 2))
    assert cluster.leader.log.log_end_offset == 2
    assert read(cluster.leader) == [b"a"] and not cluster.leader.latest_is_known
    for _ in range(2):
        await cluster.fetch(2)
    assert read(cluster.leader) == [b"a", b"b"] and cluster.leader.latest_is_known


@virtual_time
async def test_r1_a_follower_is_not_cut_to_its_watermark() -> None:
    cluster = await replicated(b"a")
    cluster.put(b"b")
    for follower in (1, 2):
        await cluster.fetch(follower)
    cluster.elect(1, (1, 2))
    assert cluster.partitions[2].high_watermark == 1
    await cluster.fetch(2)
    assert cluster.partitions[2].log.log_end_offset == 2


@virtual_time
async def test_r3_a_follower_steps_back_epoch_by_epoch_until_it_agrees_with_the_leader() -> None:
    cluster = await replicated(b"a")
    # Two leaders append what nobody fetches.
    cluster.put(b"only 0")
    cluster.elect(1, (1, 2), told=(1, 2))
    cluster.put(b"only 1")
    cluster.elect(2, (2,), told=(2, 0, 1))
    cluster.put(b"b", acks=1)
    for follower in (0, 1):
        while cluster.partitions[follower].log.log_end_offset != 2 or (
            cluster.partitions[follower].log.epochs.latest != 4
        ):
            await cluster.fetch(follower)
    contents = []
    for partition in cluster.partitions.values():
        found = partition.read(0, 1 << 20, Isolation.REPLICA, at_least_one=True)
        assert found.slices is not None
        contents.append(bytes(found.slices.read_all()))
        found.slices.release()
    assert contents[0] == contents[1] == contents[2]


@virtual_time
async def test_a_leader_that_wrote_nothing_in_its_epoch_can_follow_the_next() -> None:
    cluster = await replicated(b"a")
    cluster.elect(1, (1, 2), told=(1,))
    cluster.elect(2, (2,))
    for _ in range(2):
        await cluster.fetch(1)
    assert cluster.partitions[1].log.epochs.latest == 2
    cluster.put(b"b", acks=1)
    await cluster.fetch(1)
    assert cluster.partitions[1].log.epochs.latest == 4


@virtual_time
async def test_r12_an_answer_to_an_earlier_question_changes_nothing() -> None:
    cluster = await replicated(b"a")
    cluster.put(b"b")
    follower = cluster.partitions[1].following
    asked = follower.next_fetch()
    assert asked is not None
    answer = cluster.answer(1, asked)
    assert isinstance(answer, tuple)
    await cluster.fetch(1)
    # The same records a second time, and a divergence that is none any more.
    assert not follower.append_from_leader(asked, memoryview(answer[0]), answer[1], answer[2])
    assert not await follower.truncate_to(asked, EpochEnd(2, 0))
    # The same place in a newer epoch is another place.
    place = follower.next_fetch()
    assert place is not None
    cluster.elect(2, (2, 1))
    assert not await follower.truncate_to(place, EpochEnd(2, 0))
    assert cluster.partitions[1].log.log_end_offset == 2


@virtual_time
async def test_a_follower_between_the_watermark_and_the_end_is_in_range() -> None:
    cluster = await replicated(b"a")
    cluster.put(b"b")
    await cluster.fetch(1)
    await cluster.fetch(1)
    assert cluster.leader.high_watermark == 1
    assert read(cluster.leader, 2) == []
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
        cluster.leader.replica_fetches(1, EPOCHS[1], 3, 0)


@virtual_time
async def test_r14_nothing_is_committed_below_the_minimum_of_replicas() -> None:
    cluster = await replicated(b"a")
    cluster.shrink((0,))
    with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
        cluster.put(b"b")
    assert cluster.put(b"c", acks=1) == 1
    for _ in range(2):
        for follower in (1, 2):
            await cluster.fetch(follower)
    assert cluster.leader.high_watermark == 1
    cluster.shrink((0, 1))
    assert cluster.leader.high_watermark == 2


@virtual_time
async def test_on_an_fsync_topic_a_follower_asks_for_nothing_that_is_not_on_its_disk() -> None:
    cluster = Cluster(durability="fsync")
    cluster.elect(0, REPLICAS)
    cluster.put(b"a")
    follower = cluster.partitions[1]
    await cluster.fetch(1)
    assert follower.log.log_end_offset == 1 and follower.following.next_fetch() is None
    await follower.settle()
    asked = follower.following.next_fetch()
    assert asked is not None and asked.offset == 1 == follower.log.flushed_offset


@virtual_time
async def test_acks_of_one_on_an_fsync_topic_wait_for_the_own_disk_alone() -> None:
    cluster = Cluster(durability="fsync")
    cluster.elect(0, REPLICAS)
    last = cluster.put(b"a")
    assert not cluster.leader.is_on_disk(last)
    await cluster.leader.on_disk(last, in_seconds(60))
    assert not cluster.leader.is_committed(last)


@virtual_time
async def test_a_leader_that_is_replaced_tells_those_who_wait_for_a_commit() -> None:
    cluster = await replicated(b"a")
    wait = cluster.leader.committed(cluster.put(b"b"), in_seconds(60))
    old = cluster.leader
    cluster.elect(1, (1, 2))
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        await wait
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        old.check_leader()


@virtual_time
async def test_a_role_that_comes_during_a_truncation_is_taken_when_it_has_ended() -> None:
    cluster = await replicated(b"a")
    old = cluster.leader
    cluster.put(b"only 0")
    cluster.elect(1, (1, 2))
    cluster.put(b"b")
    asked = old.following.next_fetch()
    assert asked is not None
    answer = cluster.answer(0, asked)
    assert isinstance(answer, EpochEnd)
    old.flush()
    heard: list[bool] = []
    cluster.places[0].standing.role_changed = lambda partition: heard.append(partition.leads)
    cut = asyncio.ensure_future(old.following.truncate_to(asked, answer))
    await asyncio.sleep(0)
    assert old.following.is_cutting and old.following.next_fetch() is None
    cluster.elect(0, (0,))
    assert not old.leads
    await cut
    # Fetchers hear of it: nobody else would tell them.
    assert heard == [True]
    old.check_leader(cluster.state.leader_epoch)
    assert old.log.log_end_offset == 1


@virtual_time
async def test_a_replica_that_is_dropped_while_its_log_is_cut_takes_no_role_any_more() -> None:
    cluster = await replicated(b"a")
    old = cluster.leader
    cluster.put(b"only 0")
    cluster.elect(1, (1, 2))
    cluster.put(b"b")
    asked = old.following.next_fetch()
    assert asked is not None
    answer = cluster.answer(0, asked)
    assert isinstance(answer, EpochEnd)
    heard: list[Partition] = []
    cluster.places[0].standing.role_changed = heard.append
    cut = asyncio.ensure_future(old.following.truncate_to(asked, answer))
    await asyncio.sleep(0)
    assert old.following.is_cutting
    old.stop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t was deleted")
    await cut
    assert not heard and not old.following.is_active and not old.leads


@virtual_time
async def test_a_client_in_touch_with_the_leader_alone_is_refused_what_only_it_would_have() -> None:
    cluster = await replicated(b"a")
    place = cluster.places[0]
    place.standing.entry = Unregistered(EPOCHS[0], out_of_touch=True)
    with pytest.raises(KafkaError, match="lost touch"):
        place.put(cluster.leader, b"b", acks=1)
    assert place.put(cluster.leader, b"b").last_offset == 1


@virtual_time
async def test_a_leader_out_of_touch_is_sure_of_itself_while_all_of_the_isr_asks_it() -> None:
    cluster = await replicated(b"a")
    place, leading = cluster.places[0], cluster.leader.leading
    await asyncio.sleep(10)
    assert not leading.may_be_deposed, "the store would have said so"
    place.standing.entry = Unregistered(EPOCHS[0], out_of_touch=True)
    assert leading.may_be_deposed
    await cluster.fetch(1)
    assert leading.may_be_deposed, "the other one may follow somebody else"
    await cluster.fetch(2)
    assert not leading.may_be_deposed
    await asyncio.sleep(10)
    assert leading.may_be_deposed
    cluster.shrink((0,))
    assert not leading.may_be_deposed


@virtual_time
async def test_a_producer_does_not_wait_at_a_leader_that_may_be_deposed() -> None:
    """It waited for as long as it may, while the next leader could be written."""
    cluster = await replicated(b"a")
    place, leader = cluster.places[0], cluster.leader
    wait = leader.committed(place.put(leader, b"b").last_offset, in_seconds(60))
    await asyncio.sleep(10)
    leader.doubt()
    assert not wait.done(), "the store would have said so"
    place.standing.entry = Unregistered(EPOCHS[0], out_of_touch=True)
    with pytest.raises(KafkaError, match="another broker may lead") as refused:
        place.put(leader, b"c")
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.doubt()
    with pytest.raises(KafkaError, match="another broker may lead") as unsure:
        await wait
    # It may be committed all the same.
    assert unsure.value.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    for follower in (1, 2):
        await cluster.fetch(follower)
    assert place.put(leader, b"c").last_offset == 2


@virtual_time
async def test_an_older_state_of_a_partition_is_not_followed() -> None:
    cluster = await replicated(b"a")
    old = cluster.state
    cluster.elect(1, (1, 2))
    cluster.partitions[0].follow_image(old, 2)
    with pytest.raises(KafkaError) as refused:
        cluster.partitions[0].check_leader()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@virtual_time
async def test_no_isolation_level_of_a_client_shows_more_than_is_committed() -> None:
    cluster = await replicated(b"a")
    cluster.put(b"not committed")
    for level in range(-128, 128):
        assert cluster.leader.readable_end(level).offset == 1
        found = cluster.leader.read(1, 1 << 20, level, at_least_one=True)
        assert found.slices is None


@virtual_time
async def test_a_consumer_beyond_what_a_new_leader_knows_as_committed_waits() -> None:
    cluster = await replicated(b"a")
    cluster.put(b"b")
    for follower in (1, 2, 1, 2):
        await cluster.fetch(follower)
        # Their own watermark follows with the next fetch.
    assert cluster.leader.high_watermark == 2
    cluster.partitions[1].watermark.offset = 1
    cluster.elect(1, (1, 2))
    assert cluster.leader.high_watermark == 1
    assert read(cluster.leader, 2) == [], "a consumer that has read all is not out of range"
    with pytest.raises(KafkaError) as caught:
        read(cluster.leader, 3)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@virtual_time
async def test_r22_a_follower_tells_no_start_that_its_next_life_would_not_find() -> None:
    """Else a deletion is acknowledged, and undone by a kill of the follower that leads then."""
    cluster = await replicated(b"a", b"b", b"c")
    cluster.leader.delete_records(2)
    await cluster.fetch(1)
    assert cluster.partitions[1].log.log_start_offset == 2
    news = asyncio.Event()
    cluster.partitions[1].following.fetch_watchers.add(_Listener(news))
    assert _told_start(cluster, 1) == 0
    await news.wait()
    assert (_told_start(cluster, 1), _checkpointed_start(cluster, 1)) == (2, 2)


@virtual_time
async def test_r22_a_start_that_a_full_disk_does_not_take_is_told_when_it_does() -> None:
    cluster = await replicated(b"a", b"b", b"c")
    place = cluster.places[1]
    cluster.leader.delete_records(2)
    await cluster.fetch(1)
    place.disk.capacity_bytes = 0
    assert _told_start(cluster, 1) == 0
    checkpoints = place.disk_work.truncations.checkpoints
    await checkpoints.settle()
    assert _told_start(cluster, 1) == 0
    place.disk.capacity_bytes = None
    await checkpoints.write()
    assert _told_start(cluster, 1) == 2


class _Listener:
    def __init__(self, heard: asyncio.Event) -> None:
        self._heard = heard

    def news(self) -> None:
        self._heard.set()

    def small_news(self) -> None:
        self._heard.set()


def _told_start(cluster: Cluster, follower_id: int) -> int:
    asked = cluster.partitions[follower_id].following.next_fetch()
    assert asked is not None
    return asked.log_start


def _checkpointed_start(cluster: Cluster, follower_id: int) -> int:
    content = cluster.places[follower_id].disk.content("/data/log-start-offset-checkpoint")
    rows = [line.split() for line in content.decode().splitlines()[2:]]
    return next((int(start) for topic, _, start in rows if topic == "orders"), 0)
