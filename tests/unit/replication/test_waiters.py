"""Waiting for an offset, and hearing of news."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.errors import ErrorCode, KafkaError
from tidelog.replication.waiters import CommitWaiters, Watchers


def test_waiters_wake_when_the_committed_end_passes_their_offset() -> None:
    async def scenario() -> None:
        waiters = CommitWaiters()
        low, same, high = (waiters.wait_beyond(offset) for offset in (5, 5, 9))
        waiters.advance(5)
        assert not low.done()
        waiters.advance(6)
        assert low.done() and same.done() and not high.done()
        waiters.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        with pytest.raises(KafkaError):
            await high
        assert len(waiters) == 0

    asyncio.run(scenario())


def test_a_waiter_that_gave_up_disturbs_nobody() -> None:
    async def scenario() -> None:
        waiters = CommitWaiters()
        gone, stays = waiters.wait_beyond(1), waiters.wait_beyond(1)
        gone.cancel()
        waiters.advance(2)
        assert stays.done()

    asyncio.run(scenario())


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
