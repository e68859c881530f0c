"""Who leads because somebody asked for it, and who leads no more because it stops."""

from __future__ import annotations

import pytest

from tests.unit.cluster.helpers import make_rules
from tests.unit.cluster.replicated import TOPIC, after, back, cluster, gone, propose, state_of
from tidelog.cluster.commands import (
    AddPartitions,
    AlterConfigs,
    BalanceLeaders,
    BeginShutdown,
    ConfigChange,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
)
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.planner import plan
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_LEADER, ConfigResourceType


def refusal(image: MetadataImage, command: ElectLeader) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        plan(image, command, make_rules())
    return raised.value.code


def rejoined(image: MetadataImage, broker_id: int) -> MetadataImage:
    """The broker came back and caught up."""
    image = back(image, broker_id)
    return after(image, propose(image, *state_of(image).isr, broker_id))


def shut_down(image: MetadataImage, broker_id: int) -> BeginShutdown:
    return BeginShutdown(broker_id, image.brokers[broker_id].epoch)


def test_the_preferred_replica_is_elected_once_it_is_in_sync() -> None:
    preferred = ElectLeader(TOPIC, 0)
    assert refusal(cluster(1, 2, 3), preferred) is ErrorCode.ELECTION_NOT_NEEDED
    image = gone(cluster(1, 2, 3), 1)
    assert refusal(image, preferred) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    image = rejoined(image, 1)
    assert state_of(image).leader == 2
    before, state = state_of(image), state_of(after(image, preferred))
    assert (state.leader, state.isr) == (1, (1, 2, 3))
    assert state.leader_epoch == before.leader_epoch + 1


def test_an_unclean_election_needs_a_partition_that_nobody_leads() -> None:
    unclean = ElectLeader(TOPIC, 0, unclean=True)
    image = cluster(1, 2, 3)
    assert refusal(image, unclean) is ErrorCode.ELECTION_NOT_NEEDED
    # The last in sync is gone, and who is back was not in sync.
    image = back(gone(image, 1, 2, 3), 1)
    assert state_of(image).leader == NO_LEADER
    planned = plan(image, unclean, make_rules())
    (loss,) = planned.losses
    assert loss.lost_by == (2, 3)
    image = after(image, unclean)
    assert (state_of(image).leader, state_of(image).isr, state_of(image).elr) == (1, (1,), ())
    nobody = gone(cluster(1), 1)
    assert refusal(nobody, unclean) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


@pytest.mark.parametrize("command", [ElectLeader("other", 0), ElectLeader(TOPIC, 1)])
def test_nobody_is_elected_where_there_is_no_partition(command: ElectLeader) -> None:
    assert refusal(cluster(1, 2, 3), command) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_leaders_are_balanced_where_the_preferred_replica_is_in_sync() -> None:
    image = gone(cluster(1, 2, 3), 1)
    assert plan(image, BalanceLeaders(), make_rules()).changes == ()
    image = after(rejoined(image, 1), BalanceLeaders())
    assert state_of(image).leader == 1
    assert plan(image, BalanceLeaders(), make_rules()).changes == ()


def test_a_broker_that_shuts_down_hands_over_and_is_given_nothing() -> None:
    image = cluster(1, 2, 3)
    image = after(image, shut_down(image, 1))
    assert (state_of(image).leader, state_of(image).isr) == (2, (2, 3))
    assert plan(image, BalanceLeaders(), make_rules()).changes == ()
    with pytest.raises(KafkaError) as raised:
        plan(image, propose(image, 1, 2, 3), make_rules())
    assert raised.value.code is ErrorCode.INELIGIBLE_REPLICA
    # In its next life it is one of the others.
    image = rejoined(image, 1)
    assert state_of(after(image, BalanceLeaders())).leader == 1


def test_a_broker_that_shuts_down_leads_on_where_nobody_else_can() -> None:
    image = gone(cluster(1, 2, 3), 2, 3)
    image = back(after(image, shut_down(image, 1)), 2)
    assert (state_of(image).leader, state_of(image).isr) == (1, (1,))
    # Another one has caught up: it takes over with that.
    image = after(image, propose(image, 1, 2))
    assert state_of(image).leader == 2


def test_only_the_present_life_can_begin_to_shut_down() -> None:
    image = cluster(1, 2, 3)
    with pytest.raises(KafkaError) as raised:
        plan(back(image, 1), shut_down(image, 1), make_rules())
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_new_partitions_are_not_given_to_a_broker_that_shuts_down() -> None:
    image = cluster(1, 2, 3)
    image = after(image, shut_down(image, 1), CreateTopic("new", 4, 2), CreateTopic("three", 4, 3))
    assert {each for state in image.topics["new"].partitions for each in state.replicas} == {2, 3}
    for state in image.topics["three"].partitions:
        # It is named where there is no other, and neither leads nor counts as in sync.
        assert sorted(state.replicas) == [1, 2, 3] and sorted(state.isr) == [2, 3]
        assert state.leader in state.isr
    assert state_of(after(image, DeleteTopic(TOPIC), recreated(1, 2))).leader == 2
    with pytest.raises(KafkaError, match="for partition 0 are fenced or in controlled shutdown"):
        plan(image, CreateTopic("there", assignments={0: (1,)}), make_rules())


def recreated(*replicas: int) -> CreateTopic:
    return CreateTopic(TOPIC, assignments={0: replicas})


def test_a_broker_that_is_away_is_no_reason_to_refuse_a_topic() -> None:
    """As in Kafka: it gets its replicas when it comes back. Else a rolling restart refuses them."""
    image = gone(cluster(1, 2, 3), 3)
    image = after(image, CreateTopic("new", 6, 3), AddPartitions(TOPIC, 3))
    for state in image.topics["new"].partitions:
        assert sorted(state.replicas) == [1, 2, 3] and state.replicas[-1] == 3
        assert sorted(state.isr) == [1, 2] and state.leader == state.replicas[0]
    assert [sorted(each.isr) for each in image.topics[TOPIC].partitions[1:]] == [[1, 2], [1, 2]]
    with pytest.raises(KafkaError, match=r"because only 3 broker\(s\) are registered"):
        plan(image, CreateTopic("larger", 1, 4), make_rules())
    image = gone(image, 1, 2)
    with pytest.raises(KafkaError, match="All brokers are currently fenced"):
        plan(image, CreateTopic("nowhere", 1, 1), make_rules())


@pytest.mark.parametrize("of_all", [False, True])
def test_allowing_unclean_elections_elects_where_nobody_leads(of_all: bool) -> None:
    image = cluster(1, 2, 3, min_insync_replicas="1")
    image = after(image, propose(image, 1))
    image = gone(image, 1)
    assert not state_of(image).has_leader
    allowed = [ConfigChange("unclean.leader.election.enable", "true")]
    command = (
        AlterConfigs(ConfigResourceType.BROKER, "", allowed)
        if of_all
        else AlterConfigs(ConfigResourceType.TOPIC, TOPIC, allowed)
    )
    planned = plan(image, command, make_rules())
    assert [(loss.topic, loss.state.leader, loss.lost_by) for loss in planned.losses] == [
        (TOPIC, 2, (1,))
    ]
    image = after(image, command)
    assert (state_of(image).leader, state_of(image).isr) == (2, (2,))
    # Where somebody leads it changes nothing.
    assert plan(cluster(1, 2, 3), command, make_rules()).losses == ()
