"""Who leads because somebody asked for it, and who leads no more because it stops."""

from __future__ import annotations

import pytest

from tests.unit.cluster.helpers import make_rules
from tests.unit.cluster.replicated import TOPIC, after, back, cluster, gone, propose, state_of
from tidelog.cluster.commands import (
    BalanceLeaders,
    BeginShutdown,
    ElectLeader,
    ShutdownBegun,
)
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.planner import plan
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_LEADER


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
    planned = plan(image, shut_down(image, 1), make_rules())
    assert planned.answer == ShutdownBegun(0)
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
    assert plan(image, shut_down(image, 1), make_rules()).answer == ShutdownBegun(1)
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
