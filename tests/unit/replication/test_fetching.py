"""Followers take what their leader has, and nothing that was an answer to another question."""

from __future__ import annotations

import asyncio

from tests.unit.replication.fetch_fakes import (
    TOPIC_ID,
    FakePartition,
    Stage,
    large_log,
    new_log,
    staged,
    write,
)
from tests.unit.storage.helpers import append, batch
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_LEADER
from tidelog.protocol.messages.fetch import FetchRequest, ReplicaState
from tidelog.testing.virtual_loop import VirtualOffload


def named(request: FetchRequest) -> list[int]:
    return [part.partition for topic in request.topics for part in topic.partitions]


def forgotten(request: FetchRequest) -> list[int]:
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


@staged
async def test_a_follower_comes_to_hold_what_its_leader_holds(stage: Stage) -> None:
    led = stage.leader.lead(new_log())
    write(led.log, 0, 1, 2, 3)
    follower = FakePartition()
    stage.fetchers.follow(follower, 1)
    await stage.until_equal(follower)
    write(led.log, 0, 4, 5)
    await stage.until_equal(follower)
    assert follower.high_watermark == led.log.log_end_offset
    first = stage.leader.fetches[0]
    assert first.replica_state == ReplicaState(2, 40)
    assert (first.session_epoch, first.max_wait_ms, first.min_bytes) == (0, 500, 1)


@staged
async def test_idle_partitions_are_named_once(stage: Stage) -> None:
    followers = [FakePartition(index) for index in range(20)]
    for index, follower in enumerate(followers):
        stage.leader.lead(new_log(), index)
        stage.fetchers.follow(follower, 1)
    busy = stage.leader.led[TOPIC_ID, 3]
    await asyncio.sleep(1)
    stage.leader.fetches.clear()
    for fill in range(5):
        write(busy.log, 0, fill)
        await stage.until_equal(followers[3])
    assert {index for request in stage.leader.fetches for index in named(request)} == {3}
    assert not any(forgotten(request) for request in stage.leader.fetches)


@staged
async def test_the_next_request_waits_for_the_answer(stage: Stage) -> None:
    led = stage.leader.lead(new_log())
    write(led.log, 0, 1)
    follower = FakePartition()
    stage.fetchers.follow(follower, 1)
    await stage.until_equal(follower)
    stage.broker.answers_now = False
    await asyncio.sleep(0.1)
    before = len(stage.leader.fetches)
    await asyncio.sleep(5)
    assert len(stage.leader.fetches) == before


@staged
async def test_an_answer_that_comes_after_a_new_epoch_changes_nothing(stage: Stage) -> None:
    led = stage.leader.lead(new_log())
    write(led.log, 0, 1)
    follower = FakePartition()
    stage.fetchers.follow(follower, 1)
    await stage.until_equal(follower)
    stage.broker.answers_now = False
    await asyncio.sleep(0.1)
    # An answer with a record of epoch 0 is under way when the follower hears of epoch 1.
    write(led.log, 0, 2)
    await asyncio.sleep(0.1)
    follower.leader_epoch = 1
    stage.fetchers.follow(follower, 1)
    end = follower.log_end_offset
    stage.broker.connections[0].answer_held()
    await asyncio.sleep(0.1)
    assert follower.log_end_offset == end and not follower.cuts
    led.epoch = 1
    led.log.epochs.assign(1, led.log.log_end_offset)
    stage.broker.answer_held()
    await stage.until_equal(follower)


@staged
async def test_a_late_divergence_cuts_nothing(stage: Stage) -> None:
    led = stage.leader.lead(new_log(), epoch=1)
    write(led.log, 1, 1)
    follower = FakePartition()
    follower.leader_epoch = 1
    write(follower.log, 0, 7, 8)
    follower.gate = asyncio.Event()
    stage.fetchers.follow(follower, 1)
    await asyncio.sleep(0.1)
    # The word of the leader of epoch 1 is about to be followed when epoch 2 begins.
    follower.leader_epoch = 2
    stage.fetchers.follow(follower, 1)
    follower.gate.set()
    await asyncio.sleep(0.1)
    assert not follower.cuts
    led.epoch = 2
    led.log.epochs.assign(2, led.log.log_end_offset)
    await stage.until_equal(follower)
    assert follower.cuts


@staged
async def test_a_follower_that_diverged_is_cut_by_epochs_and_catches_up(stage: Stage) -> None:
    led = stage.leader.lead(new_log())
    follower = FakePartition()
    write(led.log, 0, 1, 2)
    write(follower.log, 0, 1, 2)
    write(follower.log, 1, 30, 31)
    write(led.log, 2, 40)
    write(follower.log, 3, 50)
    led.epoch = follower.leader_epoch = 4
    led.log.epochs.assign(4, led.log.log_end_offset)
    follower.high_watermark = 6
    stage.fetchers.follow(follower, 1)
    await stage.until_equal(follower)
    # Twice: the leader does not know epoch 3, nor epoch 1 (KIP-279).
    assert len(follower.cuts) == 2 and min(follower.cuts) == 6
    assert not follower.alarms


@staged
async def test_a_follower_below_the_leaders_log_starts_over_at_its_start(stage: Stage) -> None:
    led = stage.leader.lead(new_log())
    write(led.log, 0, *range(10))
    led.log.advance_log_start(15)
    follower = FakePartition()
    write(follower.log, 0, 0, 1)
    stage.fetchers.follow(follower, 1)
    await stage.until(lambda: follower.log_end_offset == 30)
    assert follower.log.log_start_offset == 15 and not follower.cuts


@staged
async def test_a_follower_above_the_watermark_and_within_the_log_is_in_range(stage: Stage) -> None:
    led = stage.leader.lead(new_log())
    write(led.log, 0, 1, 2, 3)
    led.high_watermark = 3
    follower = FakePartition()
    write(follower.log, 0, 1, 2)
    stage.fetchers.follow(follower, 1)
    await stage.until_equal(follower)
    assert not follower.cuts and follower.high_watermark == 3


@staged
async def test_an_epoch_that_the_leader_does_not_know_cuts_nothing(stage: Stage) -> None:
    led = stage.leader.lead(new_log())
    write(led.log, 0, 1)
    follower = FakePartition()
    write(follower.log, 0, 1)
    write(follower.log, 5, 2, 3)
    stage.fetchers.follow(follower, 1)
    await asyncio.sleep(3)
    assert follower.log_end_offset == 9 and not follower.cuts
    assert stage.fetchers.failures["OFFSET_OUT_OF_RANGE"] > 1


@staged
async def test_trouble_of_one_partition_does_not_stop_the_others(stage: Stage) -> None:
    followers = [FakePartition(index) for index in range(6)]
    for index, follower in enumerate(followers):
        write(stage.leader.lead(new_log(), index).log, 0, 1)
        stage.fetchers.follow(follower, 1)
    stage.leader.led[TOPIC_ID, 0].error = ErrorCode.KAFKA_STORAGE_ERROR
    stage.leader.led[TOPIC_ID, 1].error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    stage.leader.led[TOPIC_ID, 2].epoch = 3
    followers[3].refuses = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    followers[4].refuses = RuntimeError("a fault of ours")
    await stage.until_equal(followers[5])
    write(stage.leader.led[TOPIC_ID, 5].log, 0, 2)
    await stage.until_equal(followers[5])
    await asyncio.sleep(10)
    # Out of the session, and tried again about once in a second.
    assert stage.leader.session is not None
    assert 5 <= stage.fetchers.failures["NOT_LEADER_OR_FOLLOWER"] <= 20
    for index in range(2):
        stage.leader.led[TOPIC_ID, index].error = ErrorCode.NONE
    followers[2].leader_epoch = 3
    followers[3].refuses = followers[4].refuses = None
    stage.fetchers.follow(followers[2], 1)
    await stage.until_equal(*followers)


@staged
async def test_a_partition_that_waits_for_newer_metadata_comes_back_with_it(stage: Stage) -> None:
    led = stage.leader.lead(new_log(), epoch=1)
    write(led.log, 1, 1)
    follower = FakePartition()
    stage.fetchers.follow(follower, 1)
    await asyncio.sleep(10)
    assert not follower.appended and stage.fetchers.failures["FENCED_LEADER_EPOCH"]
    follower.leader_epoch = 1
    stage.fetchers.follow(follower, 1)
    await stage.until(lambda: bool(follower.appended), limit_s=0.1)


@staged
async def test_a_lost_connection_begins_a_new_session(stage: Stage) -> None:
    led = stage.leader.lead(new_log())
    follower = FakePartition()
    stage.fetchers.follow(follower, 1)
    await asyncio.sleep(0.1)
    stage.broker.connections[0].transport.abort()
    write(led.log, 0, 1)
    await stage.until_equal(follower)
    assert len(stage.broker.connections) == 2
    assert [each.session_epoch for each in stage.leader.fetches].count(0) == 2
    assert stage.fetchers.failures["connection"] == 1


@staged
async def test_an_answer_that_is_overdue_costs_the_connection(stage: Stage) -> None:
    led = stage.leader.lead(new_log())
    follower = FakePartition()
    stage.fetchers.follow(follower, 1)
    await asyncio.sleep(0.1)
    stage.broker.answers_now = False
    await asyncio.sleep(20)
    assert len(stage.broker.connections) == 1
    await asyncio.sleep(20)
    assert len(stage.broker.connections) == 2
    write(led.log, 0, 1)
    stage.broker.answer_held()
    await stage.until_equal(follower)


@staged
async def test_a_session_that_the_leader_does_not_know_is_begun_again(stage: Stage) -> None:
    led = stage.leader.lead(new_log())
    follower = FakePartition()
    stage.fetchers.follow(follower, 1)
    await asyncio.sleep(0.1)
    stage.leader.session = None
    write(led.log, 0, 1)
    await stage.until_equal(follower)
    assert len(stage.broker.connections) == 1


@staged
async def test_a_leader_without_room_for_sessions_is_asked_for_all_each_time(stage: Stage) -> None:
    stage.leader.gives_sessions = False
    followers = [FakePartition(index) for index in range(3)]
    for index, follower in enumerate(followers):
        write(stage.leader.lead(new_log(), index).log, 0, 1)
        stage.fetchers.follow(follower, 1)
    await stage.until_equal(*followers)
    write(stage.leader.led[TOPIC_ID, 2].log, 0, 2)
    await stage.until_equal(*followers)
    assert all(named(each) == [0, 1, 2] for each in stage.leader.fetches)


@staged
async def test_another_life_of_this_broker_shows_every_partition_again(stage: Stage) -> None:
    for index in range(3):
        stage.leader.lead(new_log(), index)
        stage.fetchers.follow(FakePartition(index), 1)
    await asyncio.sleep(0.1)
    stage.leader.fetches.clear()
    stage.replica = ReplicaState(2, 41)
    await asyncio.sleep(0.1)
    (full,) = [each for each in stage.leader.fetches if each.session_epoch == 0]
    assert named(full) == [0, 1, 2] and full.replica_state == ReplicaState(2, 41)


@staged
async def test_a_partition_that_follows_no_more_leaves_the_session(stage: Stage) -> None:
    followers = [FakePartition(index) for index in range(2)]
    for index, follower in enumerate(followers):
        stage.leader.lead(new_log(), index)
        stage.fetchers.follow(follower, 1)
    await asyncio.sleep(0.1)
    stage.fetchers.follow(followers[0], NO_LEADER)
    write(stage.leader.led[TOPIC_ID, 0].log, 0, 1)
    write(stage.leader.led[TOPIC_ID, 1].log, 0, 1)
    await stage.until_equal(followers[1])
    assert followers[0].log_end_offset == 0
    assert stage.leader.session is not None
    assert list(stage.leader.session.parts) == [(TOPIC_ID, 1)]
    # With the last one the connection ends, too.
    stage.fetchers.follow(followers[1], NO_LEADER)
    await stage.until(lambda: stage.broker.connections[0].is_lost)


@staged
async def test_a_partition_without_a_place_is_left_out_until_it_has_one(stage: Stage) -> None:
    followers = [FakePartition(index) for index in range(2)]
    for index, follower in enumerate(followers):
        write(stage.leader.lead(new_log(), index).log, 0, 1)
        stage.fetchers.follow(follower, 1)
    await stage.until_equal(*followers)
    # As while what came is being synced.
    followers[0].follows = False
    followers[0].moved()
    write(stage.leader.led[TOPIC_ID, 0].log, 0, 2)
    write(stage.leader.led[TOPIC_ID, 1].log, 0, 2)
    await stage.until_equal(followers[1])
    assert stage.leader.session is not None
    assert list(stage.leader.session.parts) == [(TOPIC_ID, 1)]
    followers[0].follows = True
    followers[0].moved()
    await stage.until_equal(*followers)


@staged
async def test_news_cut_a_waiting_fetch_short(stage: Stage) -> None:
    followers = [FakePartition(index) for index in range(2)]
    for index in range(2):
        stage.leader.lead(new_log(), index)
    stage.fetchers.follow(followers[0], 1)
    await asyncio.sleep(0.1)
    stage.broker.answers_now = False
    await asyncio.sleep(0.1)
    before = len(stage.leader.fetches)
    stage.fetchers.follow(followers[1], 1)
    await asyncio.sleep(0.1)
    assert [named(each) for each in stage.leader.fetches[before:]] == [[1]]
    # Never a third one.
    followers[0].leader_epoch = 5
    stage.fetchers.follow(followers[0], 1)
    await asyncio.sleep(0.1)
    assert len(stage.leader.fetches) == before + 1


@staged
async def test_a_range_is_looked_into_once_no_other_answer_is_due(stage: Stage) -> None:
    followers = [FakePartition(index) for index in range(2)]
    for index in range(2):
        write(stage.leader.lead(new_log(), index).log, 0, *range(10))
    stage.fetchers.follow(followers[0], 1)
    await stage.until_equal(followers[0])
    connection = stage.broker.connections[0]
    stage.broker.answers_now = False
    await stage.until(lambda: len(connection.held) == 1)
    # The next answer says that partition 0 is out of range; then another request is sent.
    led = stage.leader.led[TOPIC_ID, 0]
    write(led.log, 0, *range(10))
    led.log.advance_log_start(45)
    connection.answer_next()
    await stage.until(lambda: len(connection.held) == 1)
    stage.fetchers.follow(followers[1], 1)
    await stage.until(lambda: len(connection.held) == 2)
    connection.answer_next()
    await asyncio.sleep(0.1)
    stage.broker.answer_held()
    await stage.until(lambda: followers[0].log_end_offset == 60, limit_s=2)
    await stage.until_equal(followers[1])


@staged
async def test_nothing_is_asked_while_an_answer_is_being_taken(stage: Stage) -> None:
    led = stage.leader.lead(large_log())
    stage.leader.lead(new_log(), 1)
    followers = [FakePartition(log=large_log()), FakePartition(1)]
    stage.fetchers.follow(followers[0], 1)
    await asyncio.sleep(0.1)
    connection = stage.broker.connections[0]
    stage.broker.answers_now = False
    await stage.until(lambda: len(connection.held) == 1)
    append(led.log, batch(5, size=1 << 20))
    connection.answer_next()
    await stage.until(lambda: len(connection.held) == 1)
    stage.fetchers.follow(followers[1], 1)
    await stage.until(lambda: len(connection.held) == 2)
    # The checksums of the large answer are compared on a thread; meanwhile there is news.
    stage.host.offload = VirtualOffload(3, delay_seconds=1.0)
    connection.answer_next()
    await asyncio.sleep(0.1)
    before = len(stage.leader.fetches)
    followers[1].leader_epoch = 5
    stage.fetchers.follow(followers[1], 1)
    await asyncio.sleep(0.02)
    assert not followers[0].checked_elsewhere
    assert len(stage.leader.fetches) == before
    stage.broker.answer_held()
    await stage.until_equal(followers[0])


@staged
async def test_a_stop_waits_for_a_log_that_is_being_cut_though_it_follows_no_more(
    stage: Stage,
) -> None:
    led = stage.leader.lead(new_log(), epoch=1)
    write(led.log, 1, 1)
    follower = FakePartition()
    follower.leader_epoch = 1
    write(follower.log, 0, 7, 8)
    follower.gate = asyncio.Event()
    stage.fetchers.follow(follower, 1)
    await asyncio.sleep(0.1)
    stage.fetchers.follow(follower, NO_LEADER)
    stop = asyncio.ensure_future(stage.fetchers.stop())
    await asyncio.sleep(0.1)
    assert not stop.done()
    follower.gate.set()
    await stop
    assert follower.cuts == [0]


@staged
async def test_large_chunks_are_checked_on_a_thread(stage: Stage) -> None:
    led = stage.leader.lead(large_log())
    append(led.log, batch(5, size=1 << 20))
    follower = FakePartition(log=large_log())
    stage.fetchers.follow(follower, 1)
    await stage.until_equal(follower)
    assert follower.checked_elsewhere == 1


@staged
async def test_a_leader_that_cannot_be_reached_is_tried_again_and_lag_grows(stage: Stage) -> None:
    endpoint, stage.endpoint = stage.endpoint, None
    led = stage.leader.lead(new_log())
    write(led.log, 0, 1)
    follower = FakePartition()
    stage.fetchers.follow(follower, 1)
    await asyncio.sleep(20)
    (lag,) = stage.fetchers.lags()
    assert 15 < lag.seconds < 25
    assert 15 <= stage.fetchers.failures["connection"] <= 45
    stage.endpoint = endpoint
    await stage.until_equal(follower)
    (lag,) = stage.fetchers.lags()
    assert (lag.records, lag.seconds) == (0, 0.0)


@staged
async def test_a_follower_that_is_behind_says_by_how_much(stage: Stage) -> None:
    led = stage.leader.lead(new_log())
    write(led.log, 0, *range(4))
    follower = FakePartition()
    stage.fetchers.follow(follower, 1)
    await stage.until_equal(follower)
    follower.refuses = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    write(led.log, 0, 5, 6)
    await asyncio.sleep(10)
    (lag,) = stage.fetchers.lags()
    assert 9 < lag.seconds < 11
