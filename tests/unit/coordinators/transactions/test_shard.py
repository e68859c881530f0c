"""The coordinator's state machine: who writes under which epoch, and how transactions end."""

from __future__ import annotations

import pytest

from tests.unit.coordinators.transactions.helpers import P0, P1, TIMEOUT_MS, World
from tidelog.coordinators.producer_ids import ProducerIdMissingError
from tidelog.coordinators.transactions.transaction import (
    EPOCH_LAST,
    NOBODY,
    Producer,
    State,
    Transaction,
)
from tidelog.errors import ErrorCode, KafkaError

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
VERSIONS = pytest.mark.parametrize("version", [1, 2])


def test_a_producer_that_comes_again_gets_the_next_epoch_of_the_same_id() -> None:
    world = World()
    first, second = world.given(), world.given()
    assert second == Producer(first.producer_id, first.epoch + 1)


def test_ids_of_two_producers_differ() -> None:
    world = World()
    assert world.given("x").producer_id != world.given("y").producer_id


def test_a_producer_that_goes_on_after_an_error_and_asks_twice_gets_one_epoch() -> None:
    world = World()
    first = world.given()
    second = world.given(expected=first)
    assert second.epoch == first.epoch + 1
    assert world.given(expected=first) == second


def test_a_producer_that_was_replaced_cannot_go_on() -> None:
    world = World()
    first = world.given()
    world.given()
    assert world.init(expected=first).code is FENCED
    assert world.add(first) is FENCED
    assert world.verify(first) is FENCED
    assert world.end(first).code is FENCED
    assert world.end(first, version=1).code is FENCED


def test_a_foreign_producer_id_is_refused() -> None:
    world = World()
    known = world.given()
    foreign = Producer(known.producer_id + 50, known.epoch)
    assert world.init(expected=foreign).code is FENCED
    for code in (world.add(foreign), world.verify(foreign), world.end(foreign).code):
        assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_a_time_out_outside_the_bounds_is_refused_and_nothing_is_kept(timeout_ms: int) -> None:
    world = World()
    assert world.init(timeout_ms=timeout_ms).code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert not world.shard.transactions and not world.stored


@VERSIONS
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_when_its_markers_are_written(version: int, committed: bool) -> None:
    world = World()
    producer = world.given()
    assert world.add(producer, P0, P1) is NONE
    assert world.verify(producer, P1) is NONE
    assert world.end(producer, committed=committed, version=version).code is NONE
    decision = world.carry_out()
    assert (decision.committed, decision.partitions) == (committed, {P0, P1})
    assert world.state() is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
    assert world.completed == ["x"]


def test_an_end_in_version_1_keeps_the_epoch() -> None:
    world = World()
    producer = world.given()
    world.add(producer)
    assert world.finish(producer, version=1) == producer
    assert world.add(producer) is NONE


def test_an_end_in_version_2_raises_the_epoch_and_the_marker_has_it() -> None:
    world = World()
    producer = world.given()
    world.add(producer)
    raised = world.finish(producer)
    assert raised == Producer(producer.producer_id, producer.epoch + 1)
    assert world.decided[-1].producer == raised
    assert world.add(raised) is NONE


@VERSIONS
def test_an_end_whose_answer_was_lost_gets_the_same_answer(version: int) -> None:
    world = World()
    producer = world.given()
    world.add(producer)
    goes_on = world.finish(producer, version=version)
    again = world.end(producer, version=version)
    assert (again.code, again.producer) == (NONE, goes_on)
    wrong = world.end(producer, committed=False, version=version)
    assert wrong.code is ErrorCode.INVALID_TXN_STATE


@VERSIONS
def test_while_a_decision_is_carried_out_everything_else_waits(version: int) -> None:
    world = World()
    producer = world.given()
    world.add(producer)
    goes_on = world.end(producer, version=version).producer
    assert world.add(goes_on) is CONCURRENT
    assert world.verify(goes_on) is CONCURRENT
    assert world.end(producer, version=version).code is CONCURRENT
    assert world.init().code is CONCURRENT


def test_a_producer_may_abort_before_the_transaction_before_it_has_ended() -> None:
    """Java's producer aborts a transaction of which nothing was sent yet."""
    world = World()
    producer = world.given()
    world.add(producer)
    raised = world.end(producer).producer
    assert world.end(raised, committed=False).code is CONCURRENT
    world.carry_out()
    assert world.end(raised, committed=False).code is NONE


def test_an_empty_transaction_has_no_markers() -> None:
    world = World()
    producer = world.given()
    assert world.end(producer, committed=True).code is ErrorCode.INVALID_TXN_STATE
    raised = world.end(producer, committed=False).producer
    assert raised.epoch == producer.epoch + 1
    assert world.decided[-1].partitions == frozenset()
    world.carry_out()
    # The same where a transaction has ended before.
    world.add(raised)
    raised = world.finish(raised)
    assert world.end(raised, committed=True).code is ErrorCode.INVALID_TXN_STATE
    again = world.finish(raised, committed=False)
    assert again.epoch == raised.epoch + 1


def test_a_partition_is_in_a_transaction_from_when_it_was_added_to_its_end() -> None:
    world = World()
    producer = world.given()
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert world.verify(producer) is abortable
    world.add(producer, P0)
    assert world.verify(producer, P1) is abortable
    assert world.verify(producer, P0) is NONE
    world.finish(producer, version=1)
    assert world.verify(producer, P0) is abortable


def test_what_is_in_the_transaction_already_writes_nothing() -> None:
    world = World()
    producer = world.given()
    world.add(producer, P0, P1)
    before = len(world.stored)
    assert world.add(producer, P1) is NONE
    assert len(world.stored) == before


def test_kafka_19367_somebody_who_comes_has_what_is_open_aborted_and_then_the_next_epoch() -> None:
    """KAFKA-19367: one epoch for the abort, one for the new producer, and not a third."""
    world = World()
    first = world.given()
    world.add(first)
    assert world.init().code is CONCURRENT
    assert world.init().code is CONCURRENT
    decision = world.carry_out()
    assert not decision.committed and decision.producer.epoch == first.epoch + 1
    assert world.given() == Producer(first.producer_id, first.epoch + 2)
    assert world.add(first) is FENCED


# Time


@VERSIONS
def test_a_transaction_that_outlives_its_time_out_is_aborted_and_its_producer_fenced(
    version: int,
) -> None:
    world = World()
    producer = world.given()
    world.add(producer)
    world.pass_time(TIMEOUT_MS - 1)
    assert world.state() is State.ONGOING
    world.pass_time(1)
    decision = world.carry_out()
    assert not decision.committed and decision.producer.epoch == producer.epoch + 1
    assert world.add(producer) is FENCED
    ended = world.end(producer, committed=True, version=version).code
    assert ended in (FENCED, ErrorCode.INVALID_TXN_STATE)
    assert world.stats.aborted_by == {"time-out": 1}


def test_adding_partitions_does_not_move_the_time_out() -> None:
    world = World()
    producer = world.given()
    world.add(producer, P0)
    world.pass_time(TIMEOUT_MS // 2)
    world.add(producer, P1)
    world.pass_time(TIMEOUT_MS // 2)
    assert world.state() is State.PREPARE_ABORT


def test_t17_a_commit_that_was_decided_before_the_time_out_stands() -> None:
    world = World()
    producer = world.given()
    world.add(producer)
    world.end(producer)
    world.pass_time(10 * TIMEOUT_MS)
    assert world.carry_out().committed
    assert len(world.decided) == 1


def test_a_time_out_that_cannot_be_written_is_tried_again() -> None:
    world = World()
    world.add(world.given())
    world.refuses = True
    world.pass_time(TIMEOUT_MS)
    assert world.state() is State.ONGOING
    world.refuses = False
    world.pass_time(1_000)
    assert world.state() is State.PREPARE_ABORT


def test_a_transaction_keeps_its_time_out_over_a_failover() -> None:
    world = World()
    world.add(world.given())
    world.pass_time(TIMEOUT_MS - 10)
    world.fail_over()
    world.pass_time(9)
    assert world.state() is State.ONGOING
    world.pass_time(1)
    assert world.state() is State.PREPARE_ABORT


def test_ids_that_nobody_uses_expire_and_never_with_a_transaction_open() -> None:
    world = World()
    world.settings = type(world.settings)(expiration_ms=10 * TIMEOUT_MS, expiry_interval_ms=1_000)
    world.fail_over()
    idle, busy = world.given("idle"), world.given("x")
    world.init("decided")
    world.add(world.shard_producer("decided"), transactional_id="decided")
    world.pass_time(TIMEOUT_MS)
    assert world.state("decided") is State.PREPARE_ABORT
    for _ in range(20):
        world.pass_time(TIMEOUT_MS - 1)
        world.add(busy)
    assert "idle" not in world.shard.transactions
    assert {"x", "decided"} <= world.shard.transactions.keys()
    world.fail_over()
    assert "idle" not in world.shard.transactions
    assert world.given("idle").producer_id != idle.producer_id


# What a record must be before anything rests on it


def test_t16_a_raised_epoch_is_not_raised_again_before_it_is_committed() -> None:
    """Each try would use up an epoch, of which there are 32,767."""
    world = World()
    first = world.given()
    world.commits = False
    world.init()
    for _ in range(10):
        assert world.init().code is CONCURRENT
    world.commit()
    assert world.given().epoch == first.epoch + 2


def test_t16_a_refused_append_raises_nothing() -> None:
    """KAFKA-9666"""
    world = World()
    first = world.given()
    world.refuses = True
    for _ in range(10):
        with pytest.raises(KafkaError):
            world.init()
    world.refuses = False
    assert world.given().epoch == first.epoch + 1


def test_a_decision_is_carried_out_once_it_is_committed_and_not_before() -> None:
    world = World()
    producer = world.given()
    world.add(producer)
    world.commits = False
    world.end(producer)
    assert not world.decided
    world.commit()
    assert len(world.decided) == 1


def test_t14_a_commit_survives_its_coordinator() -> None:
    """It dies between the decision and the last marker."""
    world = World()
    producer = world.given()
    world.add(producer, P0, P1)
    raised = world.end(producer).producer
    world.fail_over()
    decision = world.carry_out()
    assert decision.committed and decision.partitions == {P0, P1}
    assert (decision.producer, decision.coordinator_epoch) == (raised, 1)
    again = world.end(producer)
    assert (again.code, again.producer) == (NONE, raised)


def test_a_decision_that_was_lost_with_its_leader_can_still_be_the_other() -> None:
    world = World()
    producer = world.given()
    world.add(producer)
    world.commits = False
    world.end(producer, committed=True)
    world.commits = True
    world.fail_over(loses=1)
    assert world.finish(producer, committed=False).epoch == producer.epoch + 1
    assert not world.decided[-1].committed


def test_nothing_is_decided_from_a_tail_that_is_not_committed() -> None:
    world = World()
    producer = world.given()
    world.add(producer)
    world.commits = False
    world.end(producer)
    world.fail_over()
    assert not world.decided
    assert world.init().code is CONCURRENT
    world.commit()
    assert len(world.decided) == 1


def test_an_id_that_comes_before_the_tail_is_committed_settles_by_its_own_record() -> None:
    world = World()
    world.commits = False
    world.fail_over()
    assert world.init("newcomer").code is ErrorCode.NONE
    tail, own = world.uncommitted
    tail()
    assert world.init("newcomer").code is CONCURRENT, "its epoch is not committed yet"
    own()
    assert world.init("newcomer").code is ErrorCode.NONE


def test_what_another_coordinator_decided_is_not_completed_here() -> None:
    world = World()
    producer = world.given()
    world.add(producer)
    world.end(producer)
    stale = world.decided[-1]
    world.fail_over()
    assert world.apply(world.shard.complete(stale, world.now)) is False
    world.carry_out()
    assert world.apply(world.shard.complete(stale, world.now)) is False


# The last epochs


def test_behind_the_last_epoch_follows_a_new_id_when_a_producer_comes() -> None:
    world = World()
    last = world.at_epoch(EPOCH_LAST)
    new = world.given()
    assert new.producer_id != last.producer_id and new.epoch == 0


def test_a_producer_in_the_last_epoch_goes_on_with_a_new_id_and_may_ask_twice() -> None:
    world = World()
    last = world.at_epoch(EPOCH_LAST)
    new = world.given(expected=last)
    assert new.producer_id != last.producer_id and new.epoch == 0
    assert world.given(expected=last) == new


def test_kafka_18660_an_end_in_the_last_epoch_gives_out_the_id_that_takes_over() -> None:
    """KAFKA-18660: the answer names the new id, the markers have the old one."""
    world = World()
    last = world.at_epoch(EPOCH_LAST)
    world.add(last)
    answer = world.end(last)
    new = answer.producer
    assert new.producer_id != last.producer_id and new.epoch == 0
    # Until the markers are written the old id is the one that counts, over a failover, too.
    world.fail_over()
    decision = world.carry_out()
    assert decision.producer == Producer(last.producer_id, EPOCH_LAST + 1)
    again = world.end(last)
    assert (again.code, again.producer) == (NONE, new)
    assert world.add(last) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.add(new) is NONE


@pytest.mark.parametrize("by_time", [True, False])
def test_kafka_20090_a_transaction_in_the_last_epoch_can_be_fenced(by_time: bool) -> None:
    """KAFKA-20090: one epoch is kept for that, and what follows it is a new id."""
    world = World()
    last = world.at_epoch(EPOCH_LAST)
    world.add(last)
    if by_time:
        world.pass_time(TIMEOUT_MS)
    else:
        world.init()
    assert world.carry_out().producer == Producer(last.producer_id, EPOCH_LAST + 1)
    new = world.given()
    assert new.producer_id != last.producer_id and new.epoch == 0


def test_where_no_producer_id_is_at_hand_nothing_happens() -> None:
    world = World()
    last = world.at_epoch(EPOCH_LAST)
    world.add(last)
    world.has_ids = False
    before = len(world.stored)
    for ask in (lambda: world.init("new"), lambda: world.end(last)):
        with pytest.raises(ProducerIdMissingError):
            ask()
    assert len(world.stored) == before and world.state() is State.ONGOING


# What is late


def test_t12_a_late_end_does_not_end_the_next_transaction() -> None:
    world = World()
    producer = world.given()
    world.add(producer)
    raised = world.finish(producer, committed=False)
    world.add(raised)
    for committed in (True, False):
        assert world.end(producer, committed=committed).code is FENCED
    assert world.state() is State.ONGOING


def test_t9_a_zombie_is_fenced_over_a_failover() -> None:
    world = World()
    zombie = world.given()
    world.given()
    world.fail_over()
    assert world.add(zombie) is FENCED
    assert world.end(zombie).code is FENCED
    assert world.init(expected=zombie).code is FENCED


def test_the_state_after_a_load_is_the_state_before() -> None:
    world = World()
    producer = world.given()
    world.add(producer, P0, P1)
    world.given("y")
    before = {name: str(each.value(each.state, 0)) for name, each in known(world)}
    world.fail_over()
    assert {name: str(each.value(each.state, 0)) for name, each in known(world)} == before
    assert world.init(expected=NOBODY).code is CONCURRENT


def known(world: World) -> list[tuple[str, Transaction]]:
    return sorted(world.shard.transactions.items())
