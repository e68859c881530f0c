"""What brokers that go and come back mean for partitions, as the controller decides it."""

from __future__ import annotations

import pytest

from tests.unit.cluster.helpers import image_with, make_rules
from tests.unit.cluster.replicated import TOPIC, after, back, cluster, gone, life, propose, state_of
from tidelog.cluster.commands import (
    Command,
    ElectLeader,
    GiveUpReplicas,
    PartitionDecided,
    Reassign,
    RegisterBroker,
    ReplicaKey,
)
from tidelog.cluster.failover import Loss
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.planner import plan
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_LEADER


def losses(image: MetadataImage, command: Command) -> tuple[Loss, ...]:
    return plan(image, command, make_rules()).losses


def test_a_broker_that_is_gone_leaves_the_isr_and_is_eligible_below_the_minimum() -> None:
    image = gone(cluster(1, 2, 3), 3)
    assert (state_of(image).isr, state_of(image).elr) == ((1, 2), ())
    image = gone(image, 1)
    state = state_of(image)
    assert (state.leader, state.isr, state.elr) == (2, (2,), (1,))
    assert (state.leader_epoch, state.partition_epoch) == (1, 2)


def test_r10_a_bounced_leader_was_gone_and_is_back_in_one_step() -> None:
    image = back(cluster(1, 2, 3), 1)
    state = state_of(image)
    assert (state.leader, state.isr) == (2, (2, 3))
    assert (state.leader_epoch, state.partition_epoch) == (1, 1)
    image = back(image, 3)
    assert (state_of(image).leader, state_of(image).isr) == (2, (2,))
    assert (state_of(image).elr, state_of(image).partition_epoch) == ((3,), 2)


def test_r13_a_lossy_bounce_of_the_last_in_sync_replica_elects_nobody_who_lacks_records() -> None:
    image = gone(cluster(1, 2, 3), 1, 2)
    assert (state_of(image).isr, state_of(image).elr) == ((3,), (2,))
    image = back(image, 3, boot_id="another boot")
    state = state_of(image)
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (NO_LEADER, (), (2,), (3,))
    assert state_of(back(image, 1)).leader == NO_LEADER, "it was not in sync"
    assert state_of(back(image, 2)).leader == 2


@pytest.mark.parametrize(
    ("changes", "is_lossy"),
    [
        ({}, False),
        ({"boot_id": "other"}, True),
        ({"mount_id": "other"}, True),
        ({"mount_id": ""}, True),
        ({"boot_id": ""}, True),
        ({"boot_id": "other", "clean_epoch": 101}, False),
        ({"boot_id": "other", "clean_epoch": 100}, True),
        ({"boot_id": "other", "clean_epoch": 102}, True),
        ({"directory_id": "other"}, True),
        ({"directory_id": "other", "clean_epoch": 101}, True),
    ],
)
def test_a_restart_is_lossy_unless_something_proves_the_contrary(
    changes: dict[str, object], is_lossy: bool
) -> None:
    image = cluster(1)
    command = RegisterBroker(life(1, 500, **changes))
    assert bool(losses(image, command)) == is_lossy
    state = state_of(after(image, command))
    # A sole replica leads at once, and what it may have lost is reported.
    assert (state.leader, state.isr, state.leader_epoch, state.partition_epoch) == (1, (1,), 1, 1)


def test_the_same_is_judged_of_a_broker_that_was_seen_to_be_gone() -> None:
    image = gone(cluster(1), 1)
    lossy = RegisterBroker(life(1, 500, boot_id="other"))
    (loss,) = losses(image, lossy)
    assert (loss.topic, loss.state.leader, loss.lost_by) == (TOPIC, 1, (1,))
    assert losses(image, RegisterBroker(life(1, 500))) == ()


def test_r21_an_emptied_broker_leads_nothing_that_another_one_has_more_of() -> None:
    image = gone(cluster(1, 2, 3, min_insync_replicas="1"), 2, 3)
    assert (state_of(image).isr, state_of(image).elr) == ((1,), ())
    image = back(image, 1, directory_id="new")
    assert state_of(image).leader == NO_LEADER
    assert state_of(back(image, 2)).leader == NO_LEADER, "that would be an unclean election"
    allowed = cluster(1, 2, 3, min_insync_replicas="1", unclean_leader_election_enable="true")
    image = gone(allowed, 2, 3)
    command = RegisterBroker(life(2, 500))
    image = gone(image, 1)
    assert len(losses(image, command)) == 1
    assert state_of(after(image, command)).leader == 2


def test_where_all_lost_their_power_the_last_leader_leads_again_and_it_is_reported() -> None:
    image = gone(cluster(1, 2, 3), 1, 2, 3)
    assert state_of(image).last_known_elr == (3,)
    for broker in (1, 2):
        image = back(image, broker, boot_id="other")
        assert state_of(image).leader == NO_LEADER
    command = RegisterBroker(life(3, 900, boot_id="other"))
    assert len(losses(image, command)) == 1
    state = state_of(after(image, command))
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (3, (3,), (), ())


def test_a_replica_joins_by_a_proposal_and_ends_the_eligible() -> None:
    image = gone(cluster(1, 2, 3), 3, 2)
    image = back(image, 2)
    assert (state_of(image).isr, state_of(image).elr) == ((1,), (2,))
    command = propose(image, 1, 2)
    answer = plan(image, command, make_rules()).answer
    image = after(image, command)
    assert answer == PartitionDecided(state_of(image))
    assert (state_of(image).isr, state_of(image).elr) == ((1, 2), ())
    assert state_of(image).leader_epoch == 0


def test_a_proposal_that_was_done_before_is_answered_with_the_state() -> None:
    image = cluster(1, 2, 3)
    command = propose(image, 1, 2)
    image = after(image, command)
    again = plan(image, command, make_rules())
    assert again.changes == ()
    assert again.answer == PartitionDecided(state_of(image))


@pytest.mark.parametrize(
    ("changes", "isr", "code"),
    [
        ({"broker_epoch": 7}, (1, 2), ErrorCode.STALE_BROKER_EPOCH),
        ({"broker_epoch": 100_000}, (1, 2), ErrorCode.STALE_BROKER_EPOCH),
        ({"leader_epoch": -1}, (1, 2), ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 9}, (1, 2), ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 9}, (1, 2), ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": -1}, (1, 2), ErrorCode.INVALID_UPDATE_VERSION),
        ({"leader": 2}, (1, 2), ErrorCode.INVALID_REQUEST),
        ({}, (2, 3), ErrorCode.INVALID_REQUEST),
        ({}, (1, 4), ErrorCode.INVALID_REQUEST),
        ({}, (1, 2, 2), ErrorCode.INVALID_REQUEST),
        # KAFKA-15221: an epoch above the known one is as wrong as one below.
        ({"epoch_2": 7}, (1, 2), ErrorCode.INELIGIBLE_REPLICA),
        ({"epoch_2": 100_000}, (1, 2), ErrorCode.INELIGIBLE_REPLICA),
        ({"epoch_1": 7}, (1, 2), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_a_proposal_is_refused_as_kafka_refuses_it(
    changes: dict[str, int], isr: tuple[int, ...], code: ErrorCode
) -> None:
    image = cluster(1, 2, 3)
    with pytest.raises(KafkaError) as raised:
        plan(image, propose(image, *isr, **changes), make_rules())
    assert raised.value.code is code


def test_one_that_is_gone_or_shuts_down_may_not_join() -> None:
    image = after(cluster(1, 2, 3), propose(cluster(1, 2, 3), 1, 2))
    with pytest.raises(KafkaError) as raised:
        plan(gone(image, 3), propose(gone(image, 3), 1, 2, 3, epoch_3=103), make_rules())
    assert raised.value.code is ErrorCode.INELIGIBLE_REPLICA
    leaving = back(image, 3, shutting_down=True)
    with pytest.raises(KafkaError) as raised:
        plan(leaving, propose(leaving, 1, 2, 3), make_rules())
    assert raised.value.code is ErrorCode.INELIGIBLE_REPLICA


def test_nobody_knows_a_partition_that_is_not_there() -> None:
    image = cluster(1, 2)
    command = propose(image, 1)._replace(partition=1)
    with pytest.raises(KafkaError) as raised:
        plan(image, command, make_rules())
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as raised:
        plan(image_with((1,)), propose(image, 1), make_rules())
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_ID


def given_up(image: MetadataImage, broker_id: int, *, damaged: bool = False) -> MetadataImage:
    topic_id = image.topics[TOPIC].topic_id
    epoch = image.brokers[broker_id].epoch
    replicas = [ReplicaKey(topic_id, 0)]
    return after(image, GiveUpReplicas(broker_id, epoch, replicas, damaged=damaged))


def test_s3_a_damaged_replica_leaves_where_another_one_leads_in_a_new_epoch() -> None:
    image = given_up(cluster(1, 2, 3), 1, damaged=True)
    state = state_of(image)
    assert (state.leader, state.leader_epoch, state.isr, state.elr) == (2, 1, (2, 3), ())
    # A follower as well, and one that is not in sync: its leader forgets what it has shown.
    state = state_of(given_up(image, 3, damaged=True))
    assert (state.leader, state.leader_epoch, state.isr, state.elr) == (2, 2, (2,), ())
    state = state_of(given_up(image, 1, damaged=True))
    assert (state.leader, state.leader_epoch, state.isr) == (2, 2, (2, 3))


def test_s3_a_damaged_replica_stays_where_nobody_else_has_all() -> None:
    image = given_up(given_up(cluster(1, 2, 3), 3), 2)
    before = state_of(image)
    assert (before.leader, before.isr, before.elr) == (1, (1,), ())
    assert state_of(given_up(image, 1, damaged=True)) == before
    assert state_of(given_up(cluster(1), 1, damaged=True)) == state_of(cluster(1))


def test_s15_a_replica_on_a_failed_disk_is_given_up_and_another_one_leads() -> None:
    image = given_up(cluster(1, 2, 3), 1)
    state = state_of(image)
    assert (state.leader, state.leader_epoch, state.isr, state.elr) == (2, 1, (2, 3), ())
    assert given_up(image, 1).version == image.version + 1 and state_of(image) == state
    # It had everything when it left an ISR at the minimum, and cannot give it.
    image = given_up(given_up(image, 2), 3)
    assert (state_of(image).leader, state_of(image).isr, state_of(image).elr) == (NO_LEADER, (), ())


def test_a_sole_replica_on_a_failed_disk_stays_the_leader() -> None:
    image = cluster(1)
    assert state_of(given_up(image, 1)) == state_of(image)


def test_a_replica_that_was_given_up_leads_again_in_its_next_life_only() -> None:
    image = given_up(gone(cluster(1, 2), 2), 1)
    image = back(image, 2)
    assert state_of(image).leader == NO_LEADER, "broker 1 runs, and its disk has failed"
    state = state_of(back(image, 1))
    assert (state.leader, state.isr) == (1, (1,))
    # Who does not want to wait for it takes what the other one has.
    image = after(image, Reassign(TOPIC, 0, (2, 1)), ElectLeader(TOPIC, 0, unclean=True))
    assert (state_of(image).leader, state_of(image).isr) == (2, (2,))
