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


def test_a_watcher_may_remove_itself_and_others_while_it_is_told() -> None:
    watchers = Watchers()
    told: list[str] = []

    def first() -> None:
        told.append("first")
        watchers.remove(first_key)
        watchers.remove(second_key)

    first_key = watchers.add(first)
    second_key = watchers.add(lambda: told.append("second"))
    watchers.notify()
    watchers.notify()
    assert told == ["first", "second"]
    assert len(watchers) == 0
