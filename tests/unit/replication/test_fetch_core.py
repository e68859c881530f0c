"""To which question an answer belongs, and what a leader is told."""

from __future__ import annotations

import pytest

from tests.unit.replication.fetch_fakes import SETTINGS, TOPIC_ID, FakePartition, write
from tidelog.config import load
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from tidelog.replication.fetch_core import Asked, LeaderSession
from tidelog.replication.fetchers import FetchSettings
from tidelog.testing.virtual_loop import SeededRandom

REPLICA = ReplicaState(2, 7)


class Heard:
    count = 0

    def __call__(self) -> None:
        self.count += 1


def new_session(*partitions: FakePartition) -> LeaderSession:
    session = LeaderSession(SETTINGS, SeededRandom(), Heard())
    for partition in partitions:
        session.follow(partition)
    return session


def ask(session: LeaderSession) -> Asked:
    asked = session.next_request(REPLICA, 500)
    assert asked is not None
    return asked


def answer(*data: PartitionData, session_id: int = 9) -> FetchResponse:
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(data))
    return FetchResponse(session_id=session_id, responses=[topic])


def named(asked: Asked) -> dict[int, int]:
    return {
        part.partition: part.fetch_offset
        for topic in asked.request.topics
        for part in topic.partitions
    }


def forgotten(asked: Asked) -> list[int]:
    return [each for topic in asked.request.forgotten_topics_data for each in topic.partitions]


def established(*partitions: FakePartition) -> LeaderSession:
    session = new_session(*partitions)
    assert session.accept(ask(session), answer()) is ErrorCode.NONE
    return session


def test_a_session_names_what_changed_and_counts_its_epochs() -> None:
    one, two = FakePartition(1), FakePartition(2)
    session = new_session(one, two)
    first = ask(session)
    assert first.is_full and named(first) == {1: 0, 2: 0}
    assert (first.request.session_id, first.request.session_epoch) == (0, 0)
    session.accept(first, answer())
    second = ask(session)
    assert named(second) == {} and not forgotten(second)
    assert (second.request.session_id, second.request.session_epoch) == (9, 1)
    write(two.log, 0, 1)
    list(session.parts(second, answer(PartitionData(partition_index=2))))
    third = ask(session)
    assert named(third) == {2: 3} and third.request.session_epoch == 2


def test_an_answer_is_to_its_own_request_though_a_later_one_is_under_way() -> None:
    partition = FakePartition(1)
    session = established(partition)
    first = ask(session)
    write(partition.log, 0, 1)
    partition.moved()
    assert session.has_news
    second = ask(session)
    assert named(second) == {1: 3}
    diverging = PartitionData(partition_index=1, diverging_epoch=EpochEndOffset(0, 0))
    (to_first,) = session.parts(first, answer(diverging))
    assert to_first.asked.offset == 0
    (to_second,) = session.parts(second, answer(diverging))
    assert to_second.asked.offset == 3


def test_what_was_not_asked_for_is_not_taken() -> None:
    one, two = FakePartition(1), FakePartition(2)
    session = established(one)
    asked = ask(session)
    session.follow(two)
    both = answer(PartitionData(partition_index=1), PartitionData(partition_index=2))
    assert [each.followed.partition for each in session.parts(asked, both)] == [one]
    session.leave(one)
    assert not list(session.parts(asked, both))


def test_another_object_for_the_same_partition_takes_nothing_of_the_old_ones_answers() -> None:
    old, new = FakePartition(1), FakePartition(1)
    session = established(old)
    asked = ask(session)
    session.follow(new)
    assert not list(session.parts(asked, answer(PartitionData(partition_index=1))))
    # It is named again, and therefore not forgotten: a leader adds first and forgets then.
    again = ask(session)
    assert named(again) == {1: 0} and not forgotten(again)


def test_nothing_counts_that_was_asked_in_a_session_that_is_gone() -> None:
    partition = FakePartition(1)
    session = established(partition)
    asked = ask(session)
    session.start_over()
    assert not list(session.parts(asked, answer(PartitionData(partition_index=1))))
    assert ask(session).is_full


def test_an_error_of_the_session_begins_a_new_one() -> None:
    session = established(FakePartition(1))
    error = FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert session.accept(ask(session), error) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert ask(session).is_full


def test_a_session_epoch_goes_round_to_one() -> None:
    session = established(FakePartition(1))
    session._epoch = 2**31 - 1
    assert ask(session).request.session_epoch == 2**31 - 1
    assert ask(session).request.session_epoch == 1


def test_a_log_start_that_moved_is_told_and_is_no_other_place() -> None:
    partition = FakePartition(1)
    write(partition.log, 0, 1)
    session = established(partition)
    asked = ask(session)
    partition.log.advance_log_start(2)
    (answered,) = session.parts(asked, answer(PartitionData(partition_index=1)))
    assert partition.append_from_leader(answered.asked, memoryview(b""), 0, 0)
    (told,) = ask(session).request.topics[0].partitions
    assert told.log_start_offset == 2


def test_a_resting_partition_leaves_the_session_and_comes_back_in_time() -> None:
    one, two = FakePartition(1), FakePartition(2)
    session = established(one, two)
    followed = session.followed[TOPIC_ID, 1]
    session.rest(followed, now=100.0)
    assert forgotten(ask(session)) == [1]
    assert session.next_wake_at == pytest.approx(100.02, abs=0.005)
    session.wake_due(100.01)
    assert named(ask(session)) == {}
    session.wake_due(100.03)
    assert named(ask(session)) == {1: 0}


def test_rests_double_up_to_the_backoff_and_are_short_again_when_it_went_well() -> None:
    session = established(FakePartition(1))
    followed = session.followed[TOPIC_ID, 1]
    rests = []
    for _ in range(12):
        session.rest(followed, now=100.0)
        assert followed.resting_until is not None
        rests.append(followed.resting_until - 100.0)
        session.wake_due(200.0)
    assert rests[0] < 0.03 and 0.8 <= min(rests[6:]) <= max(rests) <= 1.2
    session.went_well(followed)
    session.rest(followed, now=100.0)
    assert followed.resting_until is not None and followed.resting_until < 100.03


def test_nothing_is_asked_where_every_partition_rests() -> None:
    session = established(FakePartition(1))
    session.rest(session.followed[TOPIC_ID, 1], now=100.0)
    assert session.next_request(REPLICA, 500) is None
    session.wake_due(200.0)
    again = ask(session)
    assert named(again) == {1: 0} and not forgotten(again)


def test_news_of_the_same_epoch_do_not_end_a_rest() -> None:
    partition = FakePartition(1)
    session = established(partition)
    session.rest(session.followed[TOPIC_ID, 1], now=100.0)
    partition.moved()
    assert session.next_request(REPLICA, 500) is None
    partition.leader_epoch = 1
    partition.moved()
    assert named(ask(session)) == {1: 0}


def test_the_settings_are_those_of_the_broker() -> None:
    assert FetchSettings.of(load()) == SETTINGS
