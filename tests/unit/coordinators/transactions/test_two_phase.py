"""Transactions that somebody else ends (KIP-939): no time-out, and who may act for them."""

from __future__ import annotations

import dataclasses

import pytest

from tests.unit.coordinators.transactions.helpers import P0, P1, TIMEOUT_MS, World
from tidelog.coordinators.transactions.transaction import (
    EPOCH_LAST,
    NO_TIMEOUT_MS,
    NOBODY,
    Coming,
    Producer,
    State,
)
from tidelog.errors import ErrorCode

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
TWO_PHASE = Coming(0, two_phase=True)
KEEPING = Coming(0, two_phase=True, keeps=True)
LONG_MS = 40 * 24 * 3_600_000


def opened(world: World) -> Producer:
    """A two-phase producer with records in two partitions."""
    answer = world.come(TWO_PHASE)
    assert answer.code is NONE
    assert world.add(answer.producer, P0, P1) is NONE
    return answer.producer


def taken_over(world: World) -> Producer:
    answer = world.come(KEEPING)
    assert answer.code is NONE
    return answer.producer


@pytest.mark.parametrize("fails_over", [True, False])
def test_no_time_out_ends_a_two_phase_transaction(fails_over: bool) -> None:
    world = World()
    producer = opened(world)
    assert world.log[-1].value is not None
    assert world.log[-1].value.transaction_timeout_ms == NO_TIMEOUT_MS
    if fails_over:
        world.fail_over()
    world.pass_time(LONG_MS)
    assert world.state() is State.ONGOING
    world.finish(producer)
    assert world.state() is State.COMPLETE_COMMIT


def test_an_id_can_become_two_phase_and_stop_being_so() -> None:
    world = World()
    world.add(world.given())
    world.end(Producer(world.shard_producer("x").producer_id, 0))
    world.carry_out()
    world.finish(opened(world))
    world.add(world.given())
    world.pass_time(TIMEOUT_MS)
    assert world.state() is State.PREPARE_ABORT


def test_where_the_setting_is_off_nobody_is_two_phase() -> None:
    world = World()
    world.settings = dataclasses.replace(world.settings, is_two_phase_enabled=False)
    world.fail_over()
    assert world.come(TWO_PHASE).code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert not world.stored


def test_only_a_two_phase_producer_can_keep() -> None:
    world = World()
    opened(world)
    refused = world.come(Coming(TIMEOUT_MS, keeps=True))
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert world.state() is State.ONGOING


def test_without_an_open_transaction_there_is_nothing_to_keep() -> None:
    world = World()
    first = world.come(KEEPING)
    assert (first.code, first.producer.epoch, first.ongoing) == (NONE, 0, NOBODY)


@pytest.mark.parametrize("fails_over", [True, False])
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_who_takes_a_transaction_over_ends_it_and_its_writer_cannot(
    version: int, committed: bool, fails_over: bool
) -> None:
    world = World()
    writer = opened(world)
    answer = world.come(KEEPING)
    assert answer.ongoing == writer
    keeper = answer.producer
    assert keeper == Producer(writer.producer_id, writer.epoch + 1)
    if fails_over:
        world.fail_over()
    assert world.end(writer, version=version).code is FENCED
    assert world.add(writer) is FENCED and world.verify(writer) is FENCED
    goes_on = world.finish(keeper, committed=committed, version=version)
    decision = world.decided[-1]
    # The marker follows the epoch that wrote the data.
    assert decision.producer == Producer(writer.producer_id, writer.epoch + (version == 2))
    assert (decision.committed, decision.partitions) == (committed, {P0, P1})
    again = world.end(keeper, committed=committed, version=version)
    assert (again.code, again.producer) == (NONE, goes_on)
    assert goes_on.epoch == keeper.epoch + (version == 2)
    assert world.add(goes_on) is NONE


def test_nothing_is_written_to_a_transaction_that_was_taken_over() -> None:
    world = World()
    opened(world)
    keeper = taken_over(world)
    assert world.add(keeper) is ErrorCode.INVALID_TXN_STATE
    assert world.verify(keeper) is ErrorCode.INVALID_TXN_STATE


def test_the_last_who_takes_a_transaction_over_ends_it() -> None:
    world = World()
    writer = opened(world)
    first, second = taken_over(world), taken_over(world)
    assert second.epoch == first.epoch + 1
    assert world.end(first).code is FENCED
    goes_on = world.finish(second)
    assert world.decided[-1].producer == Producer(writer.producer_id, writer.epoch + 1)
    for late in (writer, first):
        assert world.end(late).code is FENCED
        assert world.init(expected=late).code is FENCED
    assert goes_on.epoch == second.epoch + 1


def test_an_ordinary_transaction_that_is_taken_over_has_no_time_out_any_more() -> None:
    world = World()
    writer = world.given()
    world.add(writer)
    assert taken_over(world).epoch == writer.epoch + 1
    world.pass_time(LONG_MS)
    assert world.state() is State.ONGOING


def test_who_comes_without_keeping_aborts_what_was_taken_over_and_fences_everybody() -> None:
    world = World()
    writer = opened(world)
    keeper = taken_over(world)
    assert world.come(TWO_PHASE).code is CONCURRENT
    decision = world.carry_out()
    assert (decision.committed, decision.producer.epoch) == (False, writer.epoch + 1)
    new = world.come(TWO_PHASE).producer
    assert new.epoch > keeper.epoch
    assert world.end(keeper).code is FENCED
    assert world.add(new) is NONE


def test_a_two_phase_producer_that_is_not_the_current_one_aborts_nothing() -> None:
    """A request that was late would otherwise tear what somebody else has decided to commit."""
    world = World()
    first = world.come(TWO_PHASE).producer
    claimed = world.come(TWO_PHASE._replace(expected=first)).producer
    assert claimed.epoch == first.epoch + 1
    # Nobody gets the same epoch, not even who asks again.
    assert world.come(TWO_PHASE._replace(expected=first)).code is FENCED
    world.add(claimed)
    for late in (TWO_PHASE, KEEPING):
        assert world.come(late._replace(expected=first)).code is FENCED
    assert world.state() is State.ONGOING
    assert world.end(claimed).code is NONE


@pytest.mark.parametrize("fails_over", [True, False])
def test_behind_the_last_epoch_a_new_id_takes_over(fails_over: bool) -> None:
    world = World()
    last = world.at_epoch(EPOCH_LAST)
    world.add(last)
    answer = world.come(KEEPING)
    keeper = answer.producer
    assert answer.ongoing == last
    assert keeper.producer_id != last.producer_id and keeper.epoch == 0
    if fails_over:
        world.fail_over()
    assert world.end(last).code is FENCED
    goes_on = world.finish(keeper)
    assert world.decided[-1].producer == Producer(last.producer_id, EPOCH_LAST + 1)
    assert goes_on == Producer(keeper.producer_id, 1)


def test_the_last_epoch_of_a_keeper_is_followed_by_a_new_id() -> None:
    world = World()
    last = world.at_epoch(EPOCH_LAST - 1)
    world.add(last)
    keeper = taken_over(world)
    assert keeper == Producer(last.producer_id, EPOCH_LAST)
    goes_on = world.finish(keeper)
    assert goes_on.producer_id != last.producer_id and goes_on.epoch == 0
    again = world.end(keeper)
    assert (again.code, again.producer) == (NONE, goes_on)


def test_the_last_epoch_of_a_keeper_can_be_fenced() -> None:
    world = World()
    last = world.at_epoch(EPOCH_LAST - 1)
    world.add(last)
    taken_over(world)
    assert world.init().code is CONCURRENT
    world.carry_out()
    new = world.given()
    assert new.producer_id != last.producer_id and new.epoch == 0


def test_a_take_over_is_not_given_out_before_it_is_committed() -> None:
    world = World()
    writer = opened(world)
    world.commits = False
    taken_over(world)
    assert world.come(KEEPING).code is CONCURRENT
    assert world.end(writer).code in (CONCURRENT, FENCED)
    world.fail_over(loses=1)
    world.commit()
    world.commits = True
    assert world.finish(writer) == Producer(writer.producer_id, writer.epoch + 1)
