"""What many ask of one shard at a time goes into its log together, and each is answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.coordinators.helpers import turns
from tests.unit.coordinators.tallies import TIMEOUT_MS, TOO_LARGE, World
from tidelog.coordinators.gathering import Rounds
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.prompt import when_done
from tidelog.testing.virtual_loop import virtual_time


class Gathering(World):
    def __init__(self, *, syncs: bool = False) -> None:
        super().__init__()
        self.partition.config.durability_fsync = syncs

    def ask(self, *numbers: int) -> asyncio.Future[Any]:
        """Add numbers; the answer is them, or the code of an error."""
        return self.runtime.gather(
            "k", lambda _shard, _now: Outcome(numbers, list(numbers)), lambda error: error.code
        )

    def asked_for(self, error: Exception) -> asyncio.Future[Any]:
        def handler(_shard: object, _now: Now) -> Outcome:
            raise error

        return self.runtime.gather("k", handler, lambda refusal: refusal.code)


@virtual_time
async def test_what_is_asked_in_one_turn_is_one_batch() -> None:
    world = Gathering()
    answers = [world.ask(number) for number in (1, 2, 3)]
    assert world.partition.batches == []
    await turns()
    assert len(world.partition.batches) == 1
    assert not any(answer.done() for answer in answers)
    world.partition.commit()
    assert await asyncio.gather(*answers) == [(1,), (2,), (3,)]
    assert await world.loaded() == 6
    world.runtime.stop()


@virtual_time
async def test_without_a_sync_the_next_batch_does_not_wait_for_the_one_before() -> None:
    world = Gathering()
    world.ask(1)
    await turns()
    world.ask(2)
    await turns()
    assert len(world.partition.batches) == 2
    world.runtime.stop()


@virtual_time
async def test_what_comes_during_a_sync_goes_with_the_next_one() -> None:
    world = Gathering(syncs=True)
    first = world.ask(1)
    await turns()
    later = [world.ask(2), world.ask(3)]
    await turns()
    assert len(world.partition.batches) == 1
    world.partition.commit()
    assert await first == (1,)
    await turns()
    assert len(world.partition.batches) == 2
    world.partition.commit()
    assert await asyncio.gather(*later) == [(2,), (3,)]
    last = world.ask(4)
    await turns()
    world.partition.commit()
    assert await last == (4,), "nothing was under way any more"
    world.runtime.stop()


@virtual_time
async def test_what_takes_too_long_is_to_be_tried_again_and_the_next_goes_on() -> None:
    world = Gathering(syncs=True)
    slow = world.ask(1)
    await turns()
    behind = world.ask(2)
    await asyncio.sleep(TIMEOUT_MS / 1000 + 0.1)
    assert await slow == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(world.partition.batches) == 2
    world.partition.commit()
    assert await behind == (2,)
    world.runtime.stop()


@virtual_time
async def test_one_that_is_refused_or_cannot_be_written_keeps_nobody_out() -> None:
    world = Gathering()
    answers = [
        world.ask(1),
        world.asked_for(KafkaError(ErrorCode.ILLEGAL_GENERATION)),
        world.ask(TOO_LARGE),
        world.ask(2),
    ]
    await turns()
    world.partition.commit()
    assert await asyncio.gather(*answers) == [
        (1,), ErrorCode.ILLEGAL_GENERATION, ErrorCode.INVALID_REQUEST, (2,),
    ]  # fmt: skip
    assert await world.loaded() == 3
    world.runtime.stop()


@virtual_time
async def test_a_refused_batch_changes_nothing() -> None:
    world = Gathering()
    world.partition.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")
    answers = [world.ask(1), world.ask(2)]
    assert await asyncio.gather(*answers) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    world.partition.refusal = None
    again = world.ask(5)
    await turns()
    world.partition.commit()
    assert await again == (5,)
    assert await world.loaded() == 5
    world.runtime.stop()


@virtual_time
async def test_a_client_that_left_has_its_change_written_all_the_same() -> None:
    world = Gathering()
    left, stayed = world.ask(1), world.ask(2)
    left.cancel()
    await turns()
    world.partition.commit()
    assert await stayed == (2,)
    assert await world.loaded() == 3
    assert len(world.partition.waiters) == 0
    world.runtime.stop()


@virtual_time
async def test_who_is_gathered_is_told_when_the_shard_goes() -> None:
    world = Gathering(syncs=True)
    world.ask(1)
    await turns()
    waiting = world.ask(2)
    world.partition.follow()
    assert await waiting == ErrorCode.NOT_COORDINATOR
    assert len(world.partition.batches) == 1
    world.runtime.stop()


@virtual_time
async def test_who_is_gathered_is_told_when_the_broker_stops() -> None:
    world = Gathering(syncs=True)
    on_its_way = world.ask(1)
    await turns()
    waiting = world.ask(2)
    world.runtime.stop()
    told = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert await on_its_way in told
    assert await waiting in told
    await turns()
    assert len(world.partition.batches) == 1


@virtual_time
async def test_a_failure_that_nobody_foresaw_reaches_all_and_has_the_shard_loaded_again() -> None:
    world = Gathering()
    before = world.ask(1)
    broken = world.asked_for(LookupError("nobody thought of this"))
    behind = world.ask(2)
    for answer in (before, broken, behind):
        with pytest.raises(LookupError):
            await answer
    assert world.partition.batches == []
    await asyncio.sleep(6)
    again = world.ask(4)
    await turns()
    world.partition.commit()
    assert await again == (4,)
    world.runtime.stop()


@virtual_time
async def test_answers_leave_in_the_turn_in_which_the_commit_is_heard_of() -> None:
    world = Gathering(syncs=True)
    heard: list[int] = []
    for number in (1, 2):
        when_done(world.ask(number), lambda done: heard.extend(done.result()))
    await turns()
    world.partition.commit()
    assert heard == []
    await asyncio.sleep(0)
    assert heard == [1, 2], "one turn for the wait, and none for the answers"
    world.runtime.stop()


@virtual_time
async def test_a_turn_handles_some_of_what_was_gathered_and_the_next_one_more() -> None:
    handled: list[int] = []
    rounds: Rounds[int] = Rounds(handled.append, lambda _: 100)
    for number in range(7):
        rounds.later(number)
    assert handled == []
    await asyncio.sleep(0)
    assert handled == [0, 1, 2], "250 changes, and what completes them"
    rounds.now(7)
    assert handled == [0, 1, 2], "others wait before it"
    await asyncio.sleep(0)
    assert handled == [0, 1, 2, 3, 4, 5]
    await turns()
    assert handled == list(range(8))
    for number in (8, 9, 10, 11):
        rounds.now(number)
    assert handled == list(range(11)), "at once, for as long as there is room in this turn"
    await turns()
    assert handled == list(range(12))
