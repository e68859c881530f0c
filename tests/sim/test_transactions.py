"""Transactions while brokers fail: nothing torn, lost, repeated, or read though it was aborted."""

from __future__ import annotations

import pytest

from tests.sim.run import Plan, run_seed

SEEDS = (11, 12)
LONG_SEEDS = range(1_000, 1_200)


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_stay_whole(seed: int) -> None:
    outcome = run_seed(seed, Plan(brokers=3, transactions=True))
    assert not outcome.failed, str(outcome)
    for done in ("fate committed", "fate aborted", "with an offset"):
        assert outcome.counts[f"transaction {done}"] > 0, done


@pytest.mark.long
def test_transactions_stay_whole_in_many_worlds() -> None:
    committed = 0
    for seed in LONG_SEEDS:
        outcome = run_seed(seed, Plan(brokers=3, transactions=True))
        assert not outcome.failed, str(outcome)
        committed += outcome.counts["transaction fate committed"]
    assert committed > len(LONG_SEEDS)
