"""Replicas are moved: begun, completed, moved elsewhere, stopped; brokers leave for good."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tests.unit.cluster.helpers import make_rules
from tests.unit.cluster.replicated import (
    TOPIC,
    after,
    back,
    cluster,
    gone,
    life,
    propose,
    state_of,
)
from tidelog.cluster.commands import (
    Command,
    CreateTopic,
    Decommission,
    DeleteTopic,
    Moving,
    PartitionDecided,
    RaiseInternalTopics,
    Reassign,
    RegisterBroker,
    RemoveBroker,
    SetReplicationFactor,
)
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.min_isr import MIN_ISR, min_isr_in
from tidelog.cluster.names import OFFSETS_TOPIC
from tidelog.cluster.planner import plan
from tidelog.cluster.reassignment import may_delete_replica
from tidelog.errors import ErrorCode, KafkaError


def five(*replicas: int) -> MetadataImage:
    """Five brokers, and a topic with one partition on some of them."""
    image = cluster(1, 2, 3)
    image = after(image, *(RegisterBroker(life(n, 100 + n)) for n in (4, 5)))
    return after(image, DeleteTopic(TOPIC), CreateTopic(TOPIC, assignments={0: replicas}))


def refused(image: MetadataImage, command: Command) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        plan(image, command, make_rules())
    return raised.value


def move(*replicas: int) -> Reassign:
    return Reassign(TOPIC, 0, replicas)


def test_a_move_adds_first_and_removes_when_all_are_in_sync() -> None:
    image = after(five(1, 2, 3), move(4, 5, 1))
    state = state_of(image)
    assert state.replicas == (4, 5, 1, 2, 3)
    assert (state.adding, state.removing) == ((4, 5), (2, 3))
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 2, 3), 0)
    # Those on their way count for nothing yet.
    assert min_isr_in(image, image.topics[TOPIC], state) == 2
    image = after(image, propose(image, 1, 2, 3, 4))
    assert state_of(image).adding == (4, 5)
    last = propose(image, 1, 2, 3, 4, 5)
    answer = plan(image, last, make_rules()).answer
    image = after(image, last)
    state = state_of(image)
    assert (state.replicas, state.isr) == ((4, 5, 1), (4, 5, 1))
    assert (state.adding, state.removing, state.leader) == ((), (), 1)
    # The leader learns by the epoch that those who were removed do not count any more.
    assert answer == PartitionDecided(state) and state.leader_epoch == 1


def test_a_leader_that_is_moved_away_hands_over_when_the_move_is_complete() -> None:
    image = after(five(1), move(2))
    assert (state_of(image).leader, state_of(image).isr) == (1, (1,))
    image = after(image, propose(image, 1, 2))
    state = state_of(image)
    assert (state.replicas, state.leader, state.isr, state.leader_epoch) == ((2,), 2, (2,), 1)


def test_r26_a_move_does_not_complete_before_all_its_replicas_are_in_sync() -> None:
    image = after(gone(five(1, 2, 3), 3), move(3, 4))
    image = after(image, propose(image, 1, 2, 4))
    state = state_of(image)
    assert (state.adding, state.removing) == ((4,), (1, 2)), "3 is away"
    image = back(image, 3)
    image = after(image, propose(image, 1, 2, 4, 3))
    assert state_of(image).replicas == (3, 4)


def test_an_order_is_changed_and_replicas_are_given_up_at_once() -> None:
    image = after(five(1, 2, 3), move(3, 1, 2))
    assert (state_of(image).replicas, state_of(image).leader) == ((3, 1, 2), 1)
    assert state_of(image).leader_epoch == 0
    image = after(image, move(3, 2))
    state = state_of(image)
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((3, 2), (3, 2), 3, 1)
    assert plan(image, move(3, 2), make_rules()).changes == ()


def test_a_move_is_stopped_and_what_it_added_is_dropped() -> None:
    image = five(1, 2, 3)
    assert refused(image, Reassign(TOPIC, 0, None)).code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    image = after(image, move(4, 5))
    image = after(image, propose(image, 1, 2, 3, 4))
    image = after(image, Reassign(TOPIC, 0, None))
    state = state_of(image)
    assert (state.replicas, state.isr) == ((1, 2, 3), (1, 2, 3))
    assert (state.adding, state.removing, state.leader) == ((), (), 1)


def test_a_move_that_goes_elsewhere_drops_what_it_no_longer_needs() -> None:
    image = after(five(1, 2, 3), move(4, 1, 2))
    image = after(image, propose(image, 1, 2))
    image = after(image, move(5, 1, 2))
    state = state_of(image)
    assert state.replicas == (5, 1, 2, 3)
    assert (state.adding, state.removing) == ((5,), (3,))


def test_a_move_is_not_stopped_where_only_the_new_replicas_are_in_sync() -> None:
    image = after(five(1, 2), move(4, 5, 1))
    image = after(image, propose(image, 1, 4))
    image = gone(image, 1)
    assert (state_of(image).leader, state_of(image).isr) == (4, (4,))
    error = refused(image, Reassign(TOPIC, 0, None))
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_move_is_not_stopped_where_only_a_new_replica_is_eligible() -> None:
    """Another one would be elected that lacks records, and nobody would hear of it."""
    image = after(five(1, 2, 3), move(4, 5, 1))
    image = after(image, propose(image, 1, 4))
    image = gone(image, 1)
    image = gone(image, 4)
    image = back(image, 1, boot_id="another")
    state = state_of(image)
    assert (state.leader, state.isr, state.elr) == (-1, (), (4,))
    error = refused(image, Reassign(TOPIC, 0, None))
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "any other leader would lack records" in error.message


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        ((), "an empty replica list"),
        ((1, 1), "the broker 1 more than once"),
        ((1, 9), "broker 9, but no such broker is registered"),
    ],
)
def test_a_move_to_nowhere_is_refused(replicas: tuple[int, ...], words: str) -> None:
    error = refused(five(1, 2), move(*replicas))
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert words in error.message


def test_a_move_to_a_broker_that_is_away_is_refused_unless_it_has_a_replica() -> None:
    image = gone(five(1, 2), 2, 5)
    assert refused(image, move(1, 5)).code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert state_of(after(image, move(2, 3))).adding == (3,)


def test_the_replication_factor_is_kept_where_the_caller_wants_that() -> None:
    command = Reassign(TOPIC, 0, (1, 2, 3), allow_factor_change=False)
    assert refused(five(1, 2), command).code is ErrorCode.INVALID_REPLICATION_FACTOR
    command = command._replace(replicas=(3, 4))
    assert state_of(after(five(1, 2), command)).adding == (3, 4)


def test_the_factor_of_a_topic_is_raised_on_the_least_loaded_brokers_of_other_racks() -> None:
    image = five(1)
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    brokers = {n: image.brokers[n]._replace(rack=rack) for n, rack in racks.items()}
    image = after(replace(image, brokers=brokers), CreateTopic("busy", assignments={0: [3, 5]}))
    planned = plan(image, SetReplicationFactor(TOPIC, 3), make_rules())
    assert planned.answer == Moving(1)
    image = after(image, SetReplicationFactor(TOPIC, 3))
    state = state_of(image)
    assert (state.replicas, state.adding) == ((1, 4, 5), (4, 5))
    assert (state.leader, state.isr) == (1, (1,))
    assert image.topics[TOPIC].replication_factor == 1, "not yet"
    error = refused(image, SetReplicationFactor(TOPIC, 6))
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    image = after(image, SetReplicationFactor("busy", 1))
    assert image.topics["busy"].partitions[0].replicas == (3,)


def test_internal_topics_grow_with_the_cluster_and_drop_a_stored_minimum() -> None:
    image = after(
        five(1),
        CreateTopic(OFFSETS_TOPIC, assignments={0: [1], 1: [2]}, configs={MIN_ISR: "1"}),
        RaiseInternalTopics(),
    )
    topic = image.topics[OFFSETS_TOPIC]
    assert [len(each.replicas) for each in topic.partitions] == [3, 3]
    assert topic.configs == {}
    assert state_of(image).replicas == (1,), "only internal ones"
    assert plan(image, RaiseInternalTopics(), make_rules()).changes == ()


def test_a_broker_leaves_for_good_in_three_moves() -> None:
    image = after(five(1, 2), CreateTopic("old", assignments={0: [2]}), DeleteTopic("old"))
    assert "running" in refused(image, RemoveBroker(2)).message
    stopped = gone(image, 2)
    assert "decommission 2" in refused(stopped, RemoveBroker(2)).message
    planned = plan(image, Decommission(2), make_rules())
    assert planned.answer == Moving(1)
    image = after(image, Decommission(2))
    (new,) = state_of(image).adding
    assert new != 2
    image = after(image, propose(image, 1, 2, new))
    assert 2 not in state_of(image).replicas
    image = after(gone(image, 2), RemoveBroker(2))
    assert 2 not in image.absent
    assert all(2 not in holders for holders in image.deleted.values())
    assert refused(image, RemoveBroker(2)).code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert refused(image, Decommission(2)).code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_minimum_that_goes_with_its_broker_leaves_nobody_eligible_who_may_lack_records() -> None:
    image = after(five(1, 2, 3), RegisterBroker(life(5, 205, min_isr=3)))
    image = after(image, propose(image, 1, 2))
    assert state_of(image).elr == (3,)
    image = after(gone(image, 5), RemoveBroker(5))
    state = state_of(image)
    assert min_isr_in(image, image.topics[TOPIC], state) == 2
    assert state.elr == ()


def test_a_broker_does_not_leave_where_there_is_no_room_for_its_replicas() -> None:
    error = refused(cluster(1, 2, 3), Decommission(3))
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_replica_is_deleted_only_on_the_word_of_an_image_that_knows_the_brokers_life() -> None:
    image = after(five(1, 2), move(2, 3))
    topic_id = image.topics[TOPIC].topic_id
    assert not may_delete_replica(image, 1, 101, topic_id, 0), "still a replica"
    image = after(image, propose(image, 1, 2, 3))
    assert may_delete_replica(image, 1, 101, topic_id, 0)
    assert not may_delete_replica(image, 1, 102, topic_id, 0), "an image of an earlier life"
    assert not may_delete_replica(gone(image, 1), 1, 101, topic_id, 0)
    assert not may_delete_replica(image, 1, 101, UUID(int=9), 0), "that needs a tombstone"
    assert not may_delete_replica(image, 1, 101, topic_id, 1)
