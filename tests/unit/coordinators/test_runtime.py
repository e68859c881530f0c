"""What a runtime promises for every kind of shard, with a shard that only counts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.unit.coordinators.helpers import BROKER, turns
from tests.unit.coordinators.tallies import (
    TIMEOUT_MS,
    TOO_LARGE,
    Tally,
    World,
    code_of,
)
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now
from tidelog.errors import ErrorCode, KafkaError
from tidelog.testing.virtual_loop import virtual_time


@virtual_time
async def test_an_answer_leaves_when_its_record_is_committed() -> None:
    world = World()
    answer = world.add(3)
    await turns()
    assert not answer.done()
    world.partition.commit()
    assert await answer == 3
    assert world.add() == 3, "nothing to wait for"
    world.runtime.stop()


@virtual_time
async def test_an_answer_rests_on_what_was_there_when_it_was_found() -> None:
    world = World()
    first = world.add(1)
    second = world.add(2)
    world.partition.commit(1)
    await turns()
    assert await first == 1 and not second.done()
    world.runtime.stop()


@virtual_time
async def test_an_answer_of_the_core_waits_for_no_notes() -> None:
    world = World()
    core = world.add(5)
    note = world.add(-1)
    assert not (beat := world.add(core_only=True)).done()
    world.partition.commit(1)
    await turns()
    assert core.done() and await beat == 5 and not note.done()
    assert world.add(core_only=True) == 5
    world.runtime.stop()


@virtual_time
async def test_a_reply_rests_on_what_its_own_handling_appends() -> None:
    world = World()
    waiting = world.wait(core_only=True)
    world.partition.commit()
    # The reply is given before the record is in the log, and must not run ahead of it.
    world.add(7)
    await turns()
    assert not waiting.done()
    world.partition.commit()
    assert await waiting == 7
    world.runtime.stop()


@virtual_time
async def test_what_takes_too_long_to_commit_is_to_be_tried_again() -> None:
    world = World()
    started = asyncio.get_running_loop().time()
    assert await code_of(world.add(1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert asyncio.get_running_loop().time() - started == pytest.approx(TIMEOUT_MS / 1000)
    assert world.runtime.stats.timeouts == 1 and not len(world.partition.waiters)
    world.runtime.stop()


@virtual_time
async def test_a_client_that_went_leaves_no_wait_behind() -> None:
    world = World()
    world.add(1).cancel()
    await turns()
    assert not len(world.partition.waiters)
    world.runtime.stop()


@virtual_time
async def test_a_refused_append_changes_nothing() -> None:
    world = World()
    world.partition.refusal = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(KafkaError) as raised:
        world.add(1)
    assert raised.value.code is ErrorCode.NOT_COORDINATOR
    assert world.add() == 0
    world.runtime.stop()


@virtual_time
async def test_a_loaded_shard_is_answered_for_when_its_tail_is_committed() -> None:
    world = World()
    world.add(1, 2, 3)
    world.runtime.stop()
    world.restart()
    with pytest.raises(KafkaError) as raised:
        world.add()
    assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    total = await world.loaded()
    beat = world.add(core_only=True)
    assert not total.done() and not beat.done()
    world.partition.commit()
    assert await total == await beat == 6
    world.runtime.stop()


@virtual_time
async def test_a_shard_is_kept_exactly_while_its_partition_is_led() -> None:
    world = World()
    late, waiting = world.add(1), world.wait()
    before = world.replicas.image
    world.replicas.lead(1, leader=BROKER + 1)
    world.runtime.image_changed(before, world.replicas.image, ())
    assert await code_of(waiting) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError) as raised:
        world.add(1)
    assert raised.value.code is ErrorCode.NOT_COORDINATOR
    world.partition.waiters.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert await code_of(late) is ErrorCode.NOT_COORDINATOR
    world.runtime.stop()


@virtual_time
async def test_a_shard_is_loaded_only_when_its_partition_leads_in_that_epoch() -> None:
    world = World()
    world.add(1)
    world.partition.commit()
    before = world.replicas.image
    world.replicas.lead(1, leader=BROKER + 1)
    world.runtime.image_changed(before, world.replicas.image, ())
    # A truncation is under way: the log ends elsewhere before the partition leads again.
    before = world.replicas.image
    world.replicas.lead(2, at_once=False)
    world.runtime.image_changed(before, world.replicas.image, ())
    await asyncio.sleep(2)
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        world.add()
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        list(world.runtime.call_each(lambda shard, _: Outcome(shard.total)))
    assert world.runtime.stats.loads == 0
    world.replicas.lead(2)
    await asyncio.sleep(1)
    assert await world.loaded() == 1 and world.runtime.stats.loads == 1
    world.runtime.stop()


@virtual_time
async def test_a_partition_that_leads_no_more_is_not_answered_for_before_the_metadata_says_so() -> (
    None
):
    world = World()
    world.add(1)
    world.partition.commit()
    assert world.add() == 1
    world.partition.follow()
    for core_only in (False, True):
        with pytest.raises(KafkaError) as raised:
            world.add(core_only=core_only)
        assert raised.value.code is ErrorCode.NOT_COORDINATOR
    world.runtime.stop()


@virtual_time
async def test_nothing_is_answered_where_another_broker_may_lead_by_now() -> None:
    world = World()
    world.add(1)
    world.partition.commit()
    world.partition.leading.may_be_deposed = True
    with pytest.raises(KafkaError) as raised:
        world.add()
    assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.partition.leading.may_be_deposed = False
    assert world.add() == 1
    world.runtime.stop()


@virtual_time
async def test_leading_comes_and_goes_while_a_shard_is_being_loaded() -> None:
    world = World()
    world.add(1, 2)
    world.partition.commit()
    for epoch in range(1, 12, 2):
        before = world.replicas.image
        world.replicas.lead(epoch, leader=BROKER + 1)
        world.runtime.image_changed(before, world.replicas.image, ())
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            world.add()
        before = world.replicas.image
        world.replicas.lead(epoch + 1)
        world.runtime.image_changed(before, world.replicas.image, ())
        await turns(epoch // 2)
    assert await world.loaded() == 3
    assert world.runtime.stats.loads >= 1
    world.runtime.stop()


@virtual_time
async def test_a_shard_that_must_not_be_is_loaded_again_and_the_request_fails() -> None:
    world = World()
    world.add(4)
    world.partition.commit()
    waiting = world.wait()

    def break_it(shard: Tally, _: Now) -> Outcome:
        shard.total = 99
        raise AssertionError("the total is wrong")

    with pytest.raises(AssertionError):
        world.runtime.call("k", break_it)
    assert await code_of(waiting) is ErrorCode.NOT_COORDINATOR
    assert await world.loaded() == 4
    # And the same where nobody asked: the other timers go on.
    world.runtime.call("k", lambda shard, now: _schedule(shard, "broken", now.ms + 10))
    await asyncio.sleep(1)
    assert await world.loaded() == 4
    world.runtime.call("k", lambda shard, now: _schedule(shard, "sound", now.ms + 10))
    await asyncio.sleep(0.05)
    world.partition.commit()
    assert await world.loaded() == 5
    world.runtime.stop()


@virtual_time
async def test_a_shard_that_fails_whenever_it_is_loaded_is_loaded_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.add(4)
    world.partition.commit()
    world.runtime.stop()
    loads: list[int] = []

    def fail(shard: Tally, now: Now) -> Iterator[Outcome]:
        loads.append(now.ms)
        raise AssertionError("what was loaded must not be")
        yield

    with monkeypatch.context() as broken:
        broken.setattr(Tally, "loaded", fail)
        world.restart()
        while len(loads) < 3:
            await asyncio.sleep(0.1)
            with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
                world.add(1)
    assert all(later - earlier >= 5_000 for earlier, later in pairwise(loads))
    assert await world.loaded() == 4
    world.runtime.stop()


@pytest.mark.parametrize("timer", ["failing", "large"])
@virtual_time
async def test_no_failure_ends_the_watch_over_deadlines(timer: str) -> None:
    world = World()
    world.add(4)
    world.partition.commit()
    world.runtime.call("k", lambda shard, now: _schedule(shard, timer, now.ms + 10))
    await asyncio.sleep(1)
    assert await world.loaded() == 4
    world.runtime.call("k", lambda shard, now: _schedule(shard, "sound", now.ms + 10))
    await asyncio.sleep(0.05)
    world.partition.commit()
    assert await world.loaded() == 5
    world.runtime.stop()


@virtual_time
async def test_a_record_that_cannot_be_written_is_refused_and_the_shard_stays() -> None:
    world = World()
    waiting = world.wait()
    with pytest.raises(KafkaError) as raised:
        world.runtime.call("k", lambda *_: Outcome(None, [TOO_LARGE]))
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    world.add(1)
    world.partition.commit()
    assert await waiting == 1
    world.runtime.stop()


@virtual_time
async def test_a_request_that_fails_has_its_shard_loaded_again() -> None:
    world = World()
    world.add(4)
    world.partition.commit()

    def fail(shard: Tally, _: Now) -> Outcome:
        shard.total = 99
        raise LookupError("nobody thought of this")

    with pytest.raises(LookupError):
        world.runtime.call("k", fail)
    assert await world.loaded() == 4
    world.runtime.stop()


def _schedule(shard: Tally, timer: str, deadline_ms: int) -> Outcome:
    shard.timers.schedule(timer, deadline_ms)
    return Outcome()


@virtual_time
async def test_who_waits_is_told_when_the_broker_stops() -> None:
    world = World()
    late, waiting = world.add(1), world.wait()
    world.runtime.stop()
    assert await code_of(waiting) is ErrorCode.NOT_COORDINATOR
    assert await code_of(late) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError):
        world.add()


@virtual_time
async def test_a_shard_hears_what_of_its_records_is_committed_in_their_order() -> None:
    world = World()
    told: list[int] = []

    def add(number: int) -> None:
        outcome = Outcome(None, [number], committed=lambda: told.append(number))
        world.runtime.call("k", lambda shard, now: outcome)

    add(1)
    add(2)
    assert told == []
    world.partition.commit(1)
    await turns()
    assert told == [1]
    # It may take longer than any request waits.
    await asyncio.sleep(1_000)
    world.partition.commit()
    await turns()
    assert told == [1, 2]
    # A leader that may be deposed tells those who wait; where it was not, the shard goes on.
    add(3)
    world.partition.waiters.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    await turns()
    world.partition.commit()
    await asyncio.sleep(1)
    assert told == [1, 2, 3]
    add(4)
    world.partition.follow()
    await asyncio.sleep(1)
    assert told == [1, 2, 3]
