"""Which session gives way to which, and that all of them together have a bound."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.random import SystemRandom
from tidelog.model import NO_TOPIC_ID
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest
from tidelog.server import fetch_sessions
from tidelog.server.fetch_sessions import (
    FetchSession,
    FetchSessions,
    FetchTarget,
    SessionLimits,
)


class HandClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


class Cache:
    """Sessions of three slots and room for thirty partitions."""

    def __init__(self) -> None:
        self.clock = HandClock()
        limits = SessionLimits(slots=3, partitions=20, size_bytes=30 * 501)
        self.sessions = FetchSessions(limits, self.clock, SystemRandom())

    def open(self, partitions: int, *, is_follower: bool = False) -> FetchSession:
        plan = self.sessions.begin(FetchRequest(session_epoch=0), 11, is_follower)
        for index in range(partitions):
            plan.session.add("t", NO_TOPIC_ID, FetchPartition(partition=index))
        self.sessions.settle(plan)
        return plan.session

    def use(self, session: FetchSession) -> None:
        request = FetchRequest(session_id=session.session_id, session_epoch=session.epoch)
        self.sessions.settle(self.sessions.begin(request, 11, session.is_privileged))


def test_without_room_a_client_gets_no_session_and_the_others_keep_theirs() -> None:
    cache = Cache()
    kept = [cache.open(5) for _ in range(3)]
    assert not cache.open(6).is_kept
    assert all(each.is_kept for each in kept)
    assert len(cache.sessions) == 3


def test_a_session_unused_for_two_minutes_gives_way() -> None:
    cache = Cache()
    first, second, third = (cache.open(5) for _ in range(3))
    cache.clock.now += 100
    cache.use(first)
    cache.use(third)
    cache.clock.now += 30
    assert cache.open(1).is_kept
    assert [each.is_kept for each in (first, second, third)] == [True, False, True]
    with pytest.raises(KafkaError) as caught:
        cache.use(second)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_larger_session_replaces_a_smaller_one_only_when_that_is_old() -> None:
    cache = Cache()
    sessions = [cache.open(size) for size in (4, 3, 5)]
    cache.clock.now += 100
    for each in sessions:
        cache.use(each)
    assert not cache.open(6).is_kept
    cache.clock.now += 30
    assert not cache.open(3).is_kept
    assert cache.open(4).is_kept
    assert [each.is_kept for each in sessions] == [True, False, True]


def test_a_follower_replaces_a_consumer_and_no_consumer_a_follower() -> None:
    cache = Cache()
    consumer = cache.open(5)
    followers = [cache.open(2, is_follower=True) for _ in range(3)]
    assert all(each.is_kept for each in followers)
    assert not consumer.is_kept
    cache.clock.now += 110
    for each in followers:
        cache.use(each)
    cache.clock.now += 20
    assert not cache.open(10).is_kept
    assert all(each.is_kept for each in followers)


def test_memory_is_bounded_over_all_sessions_and_comes_back() -> None:
    cache = Cache()
    first = cache.open(20)
    assert cache.sessions.size_bytes == 20 * 501
    assert not cache.open(11).is_kept
    assert not cache.open(21).is_kept
    second = cache.open(10)
    assert cache.sessions.size_bytes == 30 * 501
    # One that is kept cannot grow beyond it either.
    request = FetchRequest(session_id=second.session_id, session_epoch=second.epoch)
    plan = cache.sessions.begin(request, 11, False)
    plan.session.add("t", NO_TOPIC_ID, FetchPartition(partition=10))
    with pytest.raises(KafkaError):
        cache.sessions.settle(plan)
    assert cache.sessions.size_bytes == 20 * 501
    cache.sessions.begin(FetchRequest(session_id=first.session_id, session_epoch=-1), 11, False)
    assert (cache.sessions.size_bytes, len(cache.sessions)) == (0, 0)
    assert first.is_closed and not first.targets


def test_a_session_that_finds_nothing_is_the_first_to_give_way() -> None:
    cache = Cache()
    kept, useless, other = (cache.open(5) for _ in range(3))
    for target in list(useless.targets.values())[:3]:
        useless.missed(target)
    assert cache.open(1).is_kept
    assert [each.is_kept for each in (kept, useless, other)] == [True, False, True]


def test_a_session_whose_partitions_appear_or_are_forgotten_is_as_good_as_any() -> None:
    cache = Cache()
    session, *_ = (cache.open(4) for _ in range(3))
    first, second, third, fourth = session.targets.values()
    for target in (first, second, third, fourth):
        session.missed(target)
        session.missed(target)
    assert session.missing == 4
    session.found(first)
    session.found(first)
    session.forget(second.key)
    session.missed(second)
    session.forget(third.key)
    assert session.missing == 1
    assert not cache.open(1).is_kept


def test_a_follower_with_missing_partitions_gives_way_to_no_consumer() -> None:
    cache = Cache()
    followers = [cache.open(2, is_follower=True) for _ in range(3)]
    for target in followers[0].targets.values():
        followers[0].missed(target)
    assert not cache.open(3).is_kept
    assert cache.open(3, is_follower=True).is_kept


def test_a_large_fetch_that_waits_gets_the_memory_of_sessions_that_give_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_sessions, "SMALL_FETCH_PARTITIONS", 5)
    cache = Cache()
    useless, kept = cache.open(15), cache.open(15)
    for target in useless.targets.values():
        useless.missed(target)

    def without_session(partitions: int) -> FetchSession:
        plan = cache.sessions.begin(FetchRequest(session_epoch=-1), 11, False)
        for index in range(partitions):
            plan.session.add("t", NO_TOPIC_ID, FetchPartition(partition=index))
        return plan.session

    assert cache.sessions.hold(without_session(5))
    assert not cache.sessions.hold(without_session(16))
    assert useless.is_kept
    waiting = without_session(15)
    assert cache.sessions.hold(waiting)
    assert (useless.is_kept, kept.is_kept) == (False, True)
    assert cache.sessions.size_bytes == 30 * 501
    cache.sessions.let_go(waiting)
    assert cache.sessions.size_bytes == 15 * 501


# -- what a session looks at ---------------------------------------------------------------------


class Watched:
    """A partition, as far as it tells its watchers."""

    def __init__(self) -> None:
        self.watchers: set[Any] = set()

    @property
    def watermark(self) -> Watched:
        return self

    @property
    def replica_watchers(self) -> set[Any]:
        return set()

    def tell(self) -> None:
        told, self.watchers = self.watchers, set()
        for each in told:
            each.news()


class Waiting:
    """A fetch that waits for news of its session."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.is_finished = False

    def news(self, target: FetchTarget) -> None:
        self.heard.append(target.key[2])

    def finish(self) -> None:
        self.is_finished = True


def ready(session: FetchSession) -> list[int]:
    return [target.key[2] for target in session.ready]


def target_of(session: FetchSession, index: int) -> FetchTarget:
    return session.targets["t", NO_TOPIC_ID, index]


def watch(session: FetchSession, index: int) -> Watched:
    partition = Watched()
    session.watch(target_of(session, index), partition)  # type: ignore[arg-type]
    return partition


def test_a_partition_without_news_rests_until_it_has_some() -> None:
    session = Cache().open(3)
    partitions = [watch(session, index) for index in range(3)]
    for index in (0, 2):
        session.rest(target_of(session, index))
    assert ready(session) == [1]
    partitions[2].tell()
    partitions[2].tell()
    assert ready(session) == [1, 2]
    assert target_of(session, 2).watched is None, "it was told once and has to look again"


def test_a_partition_that_nobody_watches_does_not_rest() -> None:
    session = Cache().open(2)
    watch(session, 0).tell()
    session.rest(target_of(session, 0))
    assert ready(session) == [0, 1]


def test_those_that_were_served_come_last_the_next_time() -> None:
    session = Cache().open(4)
    session.served(target_of(session, 0))
    session.served(target_of(session, 2))
    assert ready(session) == [1, 3, 0, 2]
    watch(session, 1)
    session.rest(target_of(session, 1))
    session.served(target_of(session, 1))
    assert ready(session) == [3, 0, 2], "serving does not wake one that rests"


def test_a_forgotten_partition_has_no_news_any_more() -> None:
    session = Cache().open(2)
    waiting = Waiting()
    session.waiting = waiting
    partition = watch(session, 0)
    gone = target_of(session, 0)
    session.forget(gone.key)
    assert ready(session) == [1] and not partition.watchers
    gone.news()
    assert ready(session) == [1] and waiting.heard == []
    watch(session, 1).tell()
    assert waiting.heard == [1]


def test_a_session_that_is_dropped_watches_nothing_and_ends_the_fetch_that_waits() -> None:
    cache = Cache()
    session = cache.open(3)
    partitions = [watch(session, index) for index in range(3)]
    waiting = Waiting()
    session.waiting = waiting
    cache.sessions.drop(session.session_id)
    assert waiting.is_finished and not session.is_kept and not session.targets
    assert not any(each.watchers for each in partitions)
    late = FetchTarget(("t", NO_TOPIC_ID, 9), session)
    session.watch(late, partitions[0])  # type: ignore[arg-type]
    assert not partitions[0].watchers
    assert cache.sessions.size_bytes == 0 and len(cache.sessions) == 0


def test_another_isolation_level_looks_at_everything_again() -> None:
    cache = Cache()
    session = cache.open(3)
    for index in range(3):
        watch(session, index)
        session.rest(target_of(session, index))
    request = FetchRequest(session_id=session.session_id, session_epoch=session.epoch)
    cache.sessions.begin(request, 11, False)
    assert ready(session) == []
    request = FetchRequest(
        session_id=session.session_id, session_epoch=session.epoch, isolation_level=1
    )
    cache.sessions.begin(request, 11, False)
    assert ready(session) == [0, 1, 2]


def test_epochs_rise_by_one_and_start_over_after_the_largest() -> None:
    cache = Cache()
    session = cache.open(1)
    assert session.epoch == 1
    cache.use(session)
    assert session.epoch == 2
    with pytest.raises(KafkaError) as caught:
        cache.sessions.begin(
            FetchRequest(session_id=session.session_id, session_epoch=1), 11, False
        )
    assert caught.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch = 2**31 - 1
    cache.use(session)
    assert session.epoch == 1


def test_a_session_names_its_topics_in_one_way() -> None:
    cache = Cache()
    session = cache.open(1)
    request = FetchRequest(session_id=session.session_id, session_epoch=session.epoch)
    with pytest.raises(KafkaError) as caught:
        cache.sessions.begin(request, 13, False)
    assert caught.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert session.epoch == 1, "the request counts for nothing"


@pytest.mark.parametrize("epoch", [fetch_sessions.INITIAL_EPOCH, fetch_sessions.FINAL_EPOCH])
def test_a_full_fetch_ends_the_session_that_it_names(epoch: int) -> None:
    cache = Cache()
    session = cache.open(2)
    request = FetchRequest(session_id=session.session_id, session_epoch=epoch)
    assert not cache.sessions.begin(request, 11, False).is_incremental
    assert not session.is_kept and len(cache.sessions) == 0


def test_a_client_cannot_go_on_with_the_session_of_a_follower_nor_end_it() -> None:
    cache = Cache()
    session = cache.open(5, is_follower=True)
    asked = FetchRequest(session_id=session.session_id, session_epoch=session.epoch)
    with pytest.raises(KafkaError) as caught:
        cache.sessions.begin(asked, 11, False)
    assert caught.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    for epoch in (fetch_sessions.INITIAL_EPOCH, fetch_sessions.FINAL_EPOCH):
        asked.session_epoch = epoch
        cache.sessions.begin(asked, 11, False)
        assert session.is_kept
    cache.use(session)
    asked.session_epoch = fetch_sessions.FINAL_EPOCH
    cache.sessions.begin(asked, 11, True)
    assert not session.is_kept


def test_n13_a_follower_that_connects_again_ends_the_session_that_it_had() -> None:
    """A request that comes late on the old connection is of an epoch that is over."""
    cache = Cache()

    def begin(replica_id: int) -> FetchSession:
        plan = cache.sessions.begin(FetchRequest(session_epoch=0), 17, is_privileged=True)
        plan.session.add("t", NO_TOPIC_ID, FetchPartition(partition=0))
        cache.sessions.settle(plan, replica_id)
        return plan.session

    other, first = begin(2), begin(1)
    old = FetchRequest(session_id=first.session_id, session_epoch=first.epoch)
    second = begin(1)
    assert [each.is_kept for each in (other, first, second)] == [True, False, True]
    with pytest.raises(KafkaError) as caught:
        cache.sessions.begin(old, 17, is_privileged=True)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache.sessions) == 2
