"""The leader's rules for its watermark and its in-sync replicas, one by one."""

from __future__ import annotations

from tidelog.cluster.commands import Member
from tidelog.cluster.image import PartitionState
from tidelog.replication.in_sync import InSyncReplicas, Look

LAG_S = 30.0
EPOCHS = {1: 10, 2: 20, 3: 30}


def leading(isr: tuple[int, ...] = (1, 2, 3), *, epoch_start: int = 100) -> InSyncReplicas:
    state = PartitionState(0, 1, 5, (1, 2, 3), isr, partition_epoch=7)
    return InSyncReplicas(1, state, epoch_start, high_watermark=100, now=0.0)


def look(end: int, now: float = 1.0, **others: int) -> Look:
    eligible = {**EPOCHS, **{int(name[1:]): epoch for name, epoch in others.items()}}
    return Look(end, now, LAG_S, {broker: epoch for broker, epoch in eligible.items() if epoch})


def fetched(replicas: InSyncReplicas, broker: int, offset: int, end: int, now: float = 1.0) -> bool:
    return replicas.fetched(broker, EPOCHS[broker], offset, end, now)


def test_the_watermark_is_the_least_end_of_the_isr() -> None:
    replicas = leading()
    assert not replicas.advance(120, 2, look(120))
    fetched(replicas, 2, 115, 120)
    assert not replicas.advance(120, 2, look(120))
    fetched(replicas, 3, 110, 120)
    assert replicas.advance(120, 2, look(120))
    assert replicas.high_watermark == 110


def test_the_watermark_stands_still_below_the_minimum() -> None:
    replicas = leading((1,))
    assert not replicas.advance(120, 2, look(120))
    assert replicas.advance(120, 1, look(120))


def test_the_watermark_stands_still_while_the_controller_counts_on_others_to_lead() -> None:
    replicas = leading((1, 2))
    fetched(replicas, 2, 120, 120)
    proposal = replicas.propose(look(130, now=LAG_S + 2), 10)
    assert proposal is not None and proposal.broker_ids == {1}
    # The minimum was raised to 2; this leader has yet to hear of it.
    decided = replicas.state._replace(isr=(1,), elr=(2,), partition_epoch=8)
    replicas.answered(proposal, decided, LAG_S + 3)
    assert not replicas.advance(130, 1, look(130, now=LAG_S + 3))
    assert replicas.high_watermark == 100


def test_the_watermark_never_falls_with_a_follower_that_lost_records() -> None:
    replicas = leading()
    for broker in (2, 3):
        fetched(replicas, broker, 120, 120)
    assert replicas.advance(120, 2, look(120))
    replicas.fetched(2, 21, 50, 120, 2.0)
    assert not replicas.advance(130, 2, look(130, b2=21))
    assert replicas.high_watermark == 120


def test_r7_a_proposed_member_counts_before_the_answer() -> None:
    replicas = leading((1, 2))
    fetched(replicas, 2, 120, 120)
    fetched(replicas, 3, 110, 120)
    proposal = replicas.propose(look(120), own_epoch=10)
    assert proposal is not None
    assert proposal.isr == (Member(1, 10), Member(2, 20), Member(3, 30))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 7)
    assert replicas.advance(120, 2, look(120))
    assert replicas.high_watermark == 110
    assert replicas.propose(look(120), own_epoch=10) is None


def test_a_proposed_removal_counts_only_when_it_is_decided() -> None:
    replicas = leading()
    fetched(replicas, 2, 120, 120, now=40.0)
    proposal = replicas.propose(look(120, now=40.0), own_epoch=10)
    assert proposal is not None and proposal.broker_ids == {1, 2}
    assert not replicas.advance(120, 2, look(120, now=40.0))
    decided = replicas.state._replace(isr=(1, 2), partition_epoch=8)
    replicas.answered(proposal, decided, 41.0)
    assert replicas.advance(120, 2, look(120, now=41.0))
    assert (replicas.high_watermark, replicas.isr) == (120, (1, 2))


def test_r8_an_answer_to_an_older_proposal_is_ignored() -> None:
    replicas = leading((1, 2))
    fetched(replicas, 3, 110, 120)
    first = replicas.propose(look(120), own_epoch=10)
    assert first is not None
    replicas.updated(replicas.state._replace(partition_epoch=9), 2.0)
    second = replicas.propose(look(120), own_epoch=10)
    assert second is not None and second.partition_epoch == 9
    replicas.answered(first, None, 3.0)
    assert replicas.pending is second
    assert replicas.maximal_isr == {1, 2, 3}


def test_a_refused_proposal_leaves_things_as_they_were() -> None:
    replicas = leading((1, 2))
    fetched(replicas, 3, 110, 120)
    proposal = replicas.propose(look(120), own_epoch=10)
    assert proposal is not None
    replicas.answered(proposal, None, 2.0)
    assert replicas.maximal_isr == {1, 2}


def test_r6_a_replica_joins_from_the_start_of_the_epoch_on() -> None:
    replicas = leading((1, 2), epoch_start=150)
    fetched(replicas, 3, 149, 200)
    assert replicas.propose(look(200), own_epoch=10) is None
    fetched(replicas, 3, 150, 200)
    assert replicas.propose(look(200), own_epoch=10) is not None


def test_a_replica_below_the_watermark_does_not_join() -> None:
    replicas = leading((1, 2))
    fetched(replicas, 2, 120, 120)
    assert replicas.advance(120, 2, look(120))
    fetched(replicas, 3, 119, 120)
    assert replicas.propose(look(120), own_epoch=10) is None


def test_r9_a_replica_that_was_removed_and_came_back_shows_itself_again() -> None:
    replicas = leading((1, 2))
    fetched(replicas, 3, 120, 120)
    replicas.updated(replicas.state._replace(replicas=(1, 2), partition_epoch=8), 2.0)
    replicas.updated(replicas.state._replace(replicas=(1, 2, 3), partition_epoch=9), 2.0)
    assert replicas.propose(look(120), own_epoch=10) is None


def test_r10_a_fetch_of_an_earlier_life_admits_nobody() -> None:
    replicas = leading((1, 2))
    fetched(replicas, 3, 120, 120)
    assert replicas.propose(look(120, b3=31), own_epoch=10) is None
    replicas.fetched(3, 31, 90, 120, 2.0)
    assert not fetched(replicas, 3, 120, 120, now=3.0)
    assert replicas.propose(look(120, b3=31), own_epoch=10) is None


def test_a_fenced_replica_neither_joins_nor_holds_the_watermark_back() -> None:
    replicas = leading((1, 2))
    fetched(replicas, 2, 120, 120)
    fetched(replicas, 3, 110, 120)
    assert replicas.propose(look(120, b3=0), own_epoch=10) is None
    assert replicas.advance(120, 2, look(120, b3=0))
    assert replicas.high_watermark == 120


def test_a_silent_replica_outside_the_isr_holds_the_watermark_back_for_the_lag_at_most() -> None:
    replicas = leading((1, 2))
    fetched(replicas, 3, 105, 105)
    fetched(replicas, 2, 120, 120)
    assert replicas.advance(120, 2, look(120, now=2.0))
    assert replicas.high_watermark == 105
    fetched(replicas, 2, 120, 120, now=60.0)
    assert replicas.advance(120, 2, look(120, now=60.0))
    assert replicas.high_watermark == 120


def test_a_follower_that_reaches_where_the_leader_was_is_caught_up_as_of_then() -> None:
    replicas = leading()
    fetched(replicas, 3, 120, 150, now=49.0)
    fetched(replicas, 2, 120, 150, now=1.0)
    fetched(replicas, 2, 150, 180, now=20.0)
    fetched(replicas, 2, 180, 210, now=40.0)
    proposal = replicas.propose(look(210, now=49.0), own_epoch=10)
    assert proposal is not None and proposal.broker_ids == {1, 2}


def test_a_silent_replica_that_was_removed_is_not_proposed_again_until_it_fetches() -> None:
    replicas = leading((1, 2, 3))
    for broker in (2, 3):
        fetched(replicas, broker, 120, 120)
    assert replicas.advance(120, 2, look(120))
    late = 1.0 + LAG_S + 1
    proposal = replicas.propose(look(130, late), own_epoch=10)
    assert proposal is not None and proposal.isr == (Member(1, 10),)
    replicas.answered(proposal, replicas.state._replace(isr=(1,), partition_epoch=8), late)
    # Both have all that is committed, and neither has been heard of.
    assert replicas.propose(look(130, late), own_epoch=10) is None
    fetched(replicas, 2, 130, 130, late)
    proposal = replicas.propose(look(130, late), own_epoch=10)
    assert proposal is not None and proposal.isr == (Member(1, 10), Member(2, 20))


def test_a_member_that_has_yet_to_fetch_does_not_keep_others_out() -> None:
    replicas = leading((1, 2))
    fetched(replicas, 3, 120, 120)
    proposal = replicas.propose(look(120), own_epoch=10)
    assert proposal is not None
    assert proposal.isr == (Member(1, 10), Member(2, 20), Member(3, 30))


def test_an_older_state_changes_nothing() -> None:
    replicas = leading()
    replicas.updated(replicas.state._replace(isr=(1,), partition_epoch=7), 1.0)
    assert replicas.isr == (1, 2, 3)


def test_r9_who_was_removed_does_not_come_back_by_what_it_fetched_before() -> None:
    replicas = leading()
    for broker in (2, 3):
        fetched(replicas, broker, 120, 120)
    replicas.updated(replicas.state._replace(isr=(1, 2), partition_epoch=8), 1.0)
    assert replicas.propose(look(120), own_epoch=10) is None
    fetched(replicas, 3, 120, 120)
    proposal = replicas.propose(look(120), own_epoch=10)
    assert proposal is not None and proposal.broker_ids == {1, 2, 3}


def test_a_member_that_is_behind_at_its_first_fetch_has_the_lag_time_to_catch_up() -> None:
    began = 1_000_000.0
    state = PartitionState(0, 1, 5, (1, 2, 3), (1, 2, 3), partition_epoch=7)
    replicas = InSyncReplicas(1, state, 100, high_watermark=100, now=began)
    for broker in (2, 3):
        fetched(replicas, broker, 110, 120, now=began + 1)
    assert replicas.propose(look(120, now=began + 2), own_epoch=10) is None
    # In another life as well: it was in sync when the one before ended.
    replicas.fetched(2, 21, 110, 130, began + 3)
    assert replicas.propose(look(130, now=began + 4, b2=21), own_epoch=10) is None
    proposal = replicas.propose(look(130, now=began + LAG_S + 1, b2=21), own_epoch=10)
    assert proposal is not None and proposal.broker_ids == {1}
