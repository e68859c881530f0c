"""Waiting for an offset, and hearing of news."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.errors import ErrorCode, KafkaError
from tidelog.replication.waiters import CommitWaiters, Watchers
from tidelog.testing.virtual_loop import DeadlockError, run_virtual, virtual_time

FAR = 10_000.0


@virtual_time
async def test_waiters_wake_when_the_committed_end_passes_their_offset() -> None:
    waiters = CommitWaiters()
    high, low, same = (waiters.wait_beyond(offset, FAR) for offset in (9, 5, 5))
    waiters.advance(5)
    assert not low.done()
    waiters.advance(6)
    assert low.done() and same.done() and not high.done()
    waiters.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    with pytest.raises(KafkaError):
        await high
    assert len(waiters) == 0


@virtual_time
async def test_a_wait_that_timed_out_or_was_cancelled_does_not_stay() -> None:
    waiters = CommitWaiters()
    now = asyncio.get_running_loop().time()
    late, given_up, stays, later = (
        waiters.wait_beyond(offset, deadline)
        for offset, deadline in ((1, now + 5), (1, now + 60), (1, now + 60), (0, now + 7))
    )
    waiting = asyncio.create_task(asyncio.wait_for(given_up, 1))
    with pytest.raises(TimeoutError):
        await waiting
    assert len(waiters) == 3
    await asyncio.sleep(5)
    assert (late.done(), later.done(), len(waiters)) == (True, False, 2)
    with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
        late.result()
    with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
        await later
    waiters.advance(2)
    assert stays.done()
    assert len(waiters) == 0


def test_an_ended_wait_leaves_no_timer() -> None:
    async def scenario() -> None:
        waiters = CommitWaiters()
        waiters.wait_beyond(0, FAR)
        waiters.wait_beyond(9, FAR).cancel()
        failed = waiters.wait_beyond(5, FAR)
        waiters.advance(1)
        waiters.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert failed.exception() is not None
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context))
        await loop.create_future()

    # A timer that is left would wake an ended wait.
    faults: list[object] = []
    with pytest.raises(DeadlockError, match="no timer is set"):
        run_virtual(scenario())
    assert faults == []


class Listening:
    """Counts its news, and watches again for as long as it wants to."""

    def __init__(self, watchers: Watchers, times: int = 1) -> None:
        self.heard = 0
        self._watchers = watchers
        self._times = times
        watchers.add(self)

    def news(self) -> None:
        self.heard += 1
        if self.heard < self._times:
            self._watchers.add(self)


def test_a_watcher_is_told_once_unless_it_comes_again() -> None:
    watchers = Watchers()
    once, twice, gone = Listening(watchers), Listening(watchers, 2), Listening(watchers)
    watchers.discard(gone)
    for _ in range(3):
        watchers.notify()
    assert (once.heard, twice.heard, gone.heard) == (1, 2, 0)
    assert len(watchers) == 0


def test_a_watcher_that_fails_keeps_no_news_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing:
        def news(self) -> None:
            raise ValueError("not today")

    watchers = Watchers()
    before = Listening(watchers)
    watchers.add(Failing())
    behind = Listening(watchers)
    watchers.notify()
    assert (before.heard, behind.heard) == (1, 1)
    assert "not today" in caplog.text
