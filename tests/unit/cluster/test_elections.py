"""Who may lead a partition after what: the ISR, the eligible, the last known leader, anybody."""

from __future__ import annotations

import random

from tidelog.cluster.elections import Circumstances, decide, leaves
from tidelog.cluster.image import PartitionState
from tidelog.model import NO_LEADER

CASES = 4_000


def state(
    leader: int = 1, isr: tuple[int, ...] = (1, 2, 3), elr: tuple[int, ...] = (), **rest: object
) -> PartitionState:
    made = PartitionState(0, leader, 4, (1, 2, 3), isr, 9, elr)
    return made._replace(**rest)


def when(
    *can_lead: int, min_isr: int = 2, lossy: tuple[int, ...] = (), **rest: bool
) -> Circumstances:
    return Circumstances(can_lead, min_isr, frozenset(lossy), **rest)


def test_a_leader_that_goes_is_followed_by_the_next_of_the_isr() -> None:
    decided = leaves(state(), {1}, when(2, 3))
    assert decided is not None and not decided.may_have_lost
    after = decided.state
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (2, 5, 10)
    assert (after.isr, after.elr) == ((2, 3), ())


def test_a_follower_that_goes_keeps_the_leader_and_its_epoch() -> None:
    decided = leaves(state(), {3}, when(1, 2))
    assert decided is not None
    assert (decided.state.leader, decided.state.leader_epoch) == (1, 4)
    assert (decided.state.isr, decided.state.partition_epoch) == ((1, 2), 10)


def test_r13_below_the_minimum_those_who_leave_are_eligible() -> None:
    decided = leaves(state(isr=(1, 2)), {2}, when(1))
    assert decided is not None
    assert (decided.state.isr, decided.state.elr) == ((1,), (2,))
    gone = leaves(decided.state, {1}, when())
    assert gone is not None
    assert (gone.state.leader, gone.state.isr, gone.state.elr) == (NO_LEADER, (), (1, 2))
    back = decide(gone.state, when(2))
    assert back is not None and not back.may_have_lost
    assert (back.state.leader, back.state.isr, back.state.elr) == (2, (2,), (1,))


def test_r13_a_lossy_restart_leaves_both_sets_before_anybody_is_elected() -> None:
    before = state(leader=NO_LEADER, isr=(), elr=(1, 2))
    decided = decide(before, when(1, lossy=(1,)))
    assert decided is not None
    assert (decided.state.leader, decided.state.elr) == (NO_LEADER, (2,))
    assert decided.state.last_known_elr == (1,)
    second = decide(decided.state, when(1, 2))
    assert second is not None and not second.may_have_lost
    assert second.state.leader == 2


def test_where_all_lost_records_the_last_known_leader_leads_and_it_is_told() -> None:
    decided = decide(state(isr=(1, 2)), when(1, 2, 3, lossy=(1, 2)))
    assert decided is not None and decided.may_have_lost
    assert decided.lost_by == (1, 2)
    assert (decided.state.leader, decided.state.isr) == (1, (1,))


def test_a_lossy_sole_replica_leads_at_once_in_a_new_epoch() -> None:
    sole = PartitionState(0, 1, 4, (1,), (1,), 9)
    decided = decide(sole, when(1, min_isr=1, lossy=(1,)))
    assert decided is not None and decided.may_have_lost
    assert (decided.state.leader, decided.state.isr) == (1, (1,))
    assert decided.state.leader_epoch == 5


def test_nobody_leads_uncleanly_unless_it_was_asked_for() -> None:
    before = state(leader=NO_LEADER, isr=(), elr=(1, 2))
    assert decide(before, when(3)) is None
    asked = decide(before, when(3, unclean=True))
    assert asked is not None and asked.may_have_lost
    assert (asked.state.leader, asked.state.isr, asked.state.elr) == (3, (3,), ())


def test_an_isr_that_is_large_enough_ends_the_eligible() -> None:
    decided = decide(state(isr=(1,), elr=(2,)), when(1, 2, 3), isr=(1, 2))
    assert decided is not None
    assert (decided.state.isr, decided.state.elr, decided.state.leader_epoch) == ((1, 2), (), 4)


def test_the_first_replica_is_preferred_where_it_is_in_sync() -> None:
    decided = decide(state(leader=2), when(1, 2, 3, prefer_first=True))
    assert decided is not None and decided.state.leader == 1
    assert decide(state(leader=2, isr=(2, 3)), when(1, 2, 3, prefer_first=True)) is None


def test_whatever_happens_a_clean_leader_has_what_every_ack_needed() -> None:
    """A model: which replicas surely have all that is committed."""
    chance = random.Random(7)
    clean_elections = 0
    for _ in range(CASES):
        now = PartitionState(0, 1, 0, (1, 2, 3), (1, 2, 3))
        complete = {1, 2, 3}
        alive = {1, 2, 3}
        for _ in range(12):
            lossy: tuple[int, ...] = ()
            isr: list[int] | None = None
            kind = chance.randrange(4)
            broker = chance.randint(1, 3)
            if kind == 0:
                alive.discard(broker)
                isr = [each for each in now.isr if each != broker]
            elif kind == 1 and broker not in alive:
                alive.add(broker)
                if chance.random() < 0.4:
                    lossy = (broker,)
                    complete.discard(broker)
            elif kind == 2 and now.leader != NO_LEADER:
                # The leader proposes: those who caught up join, others are left out.
                isr = [each for each in (1, 2, 3) if each == now.leader or
                       (each in alive and chance.random() < 0.7)]  # fmt: skip
                complete |= set(isr)
            decided = decide(now, when(*alive, lossy=lossy), isr)
            if decided is None:
                continue
            if decided.state.leader != now.leader and decided.state.leader != NO_LEADER:
                if decided.may_have_lost:
                    break
                clean_elections += 1
                assert decided.state.leader in complete, (now, decided)
            now = decided.state
            if now.leader != NO_LEADER and len(now.isr) >= 2:
                # Records are committed, which those outside the ISR do not have.
                complete = set(now.isr)
            assert set(now.isr) | set(now.elr) <= complete, (now, complete)
    assert clean_elections > CASES / 2
