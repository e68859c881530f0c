"""What the harness allows when more disks are lost than may be, and what it does not."""

from __future__ import annotations

from tests.chaos.budget import Budget, judge, reported_losses
from tests.history.report import Rule, Violation

LOST = Violation(Rule.LOST_WRITE, "work-3@17 was acknowledged, 20 was read, it never was")
TWICE = Violation(Rule.TWO_OWNERS, "work-3 belongs to a and b in 4")
LOG = (
    "2026-01-01 00:00:00,000 level=WARNING logger=tidelog.audit elected a leader that may lack"
    " committed records partition=work-3 leader=1 leader_epoch=9 replicas_that_had_them=[0, 2]\n"
)


def test_one_lossy_broker_at_a_time_is_within_the_budget() -> None:
    budget = Budget(min_isr=2)
    for broker in (0, 1, 1, 2):
        budget.lose(broker)
        budget.lose(broker)
        budget.whole()
    assert not budget.exceeded
    assert judge([LOST], budget, {"work-3"}) == ([LOST], 0)


def test_a_second_one_before_all_is_whole_is_beyond_it() -> None:
    budget = Budget(min_isr=2)
    budget.lose(0)
    budget.lose(2)
    budget.whole()
    assert budget.exceeded
    assert judge([LOST, TWICE], budget, reported_losses(["", LOG])) == ([TWICE], 1)


def test_a_loss_that_nobody_reported_is_wrong_even_beyond_the_budget() -> None:
    budget = Budget(min_isr=2, exceeded=True)
    other = LOG.replace("work-3", "work-31")
    assert judge([LOST], budget, reported_losses([other])) == ([LOST], 0)
