"""Messages that come late and brokers that die while a transaction ends change nothing."""

from __future__ import annotations

import os

import pytest

from tests.sim.run import Plan, run_seed
from tests.sim.transaction_kills import Victim, run_kill
from tests.sim.transaction_scripts import TRANSACTION_SCENARIOS

LONG = os.environ.get("TIDELOG_LONG") == "1"
SEEDS = range(1, 21) if LONG else (1,)
# Every step between a decision and its end; without much time, some of them.
STRIDE = 1 if LONG else 13
WHOLE = [each for each in TRANSACTION_SCENARIOS if each.startswith("whole")]
ENDS = WHOLE if LONG else [WHOLE[0], WHOLE[3]]


@pytest.mark.parametrize("script", TRANSACTION_SCENARIOS)
def test_whatever_is_late_changes_nothing(script: str) -> None:
    for seed in SEEDS:
        outcome = run_seed(seed, Plan(3, script=script))
        assert not outcome.failed, str(outcome)
        assert outcome.counts["CompleteCommit committed"] > 0


# What a killed broker was about to begin is never awaited.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("script", ENDS)
@pytest.mark.parametrize("victim", Victim)
def test_a_broker_that_dies_while_a_transaction_ends_changes_nothing(
    victim: Victim, script: str
) -> None:
    step = kills = 0
    while True:
        outcome, has_struck = run_kill(script, victim, step)
        assert not outcome.failed, f"killed at step {step}: {outcome}"
        if not has_struck:
            break
        kills += 1
        step += STRIDE
    print(f"{kills} kills of the {victim.name.lower()}, every {STRIDE} steps: {script}")
    assert kills * STRIDE > 60
