"""Worlds of real brokers under seeded faults keep every invariant, and replay exactly."""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.run import Plan, run_seed

LONG = os.environ.get("TIDELOG_LONG") == "1"
SEEDS = 600 if LONG else 12
KNOWN = tomllib.loads((Path(__file__).parent / "seeds.toml").read_text())["seed"]


def test_one_broker_survives_what_a_schedule_does_to_it() -> None:
    counts: Counter[str] = Counter()
    for seed in range(1_000, 1_000 + SEEDS):
        outcome = run_seed(seed)
        assert not outcome.failed, str(outcome)
        counts.update(outcome.counts)
    print(f"{SEEDS} seeds of one broker: {dict(sorted(counts.items()))}")
    assert counts["client acknowledged"] > 50 * SEEDS
    for kind in ("kill", "power cut", "pause", "session lost", "held message"):
        assert counts[f"fault {kind}"] > 0, kind


def test_a_seed_replays_exactly() -> None:
    for seed in (1_000, 1_001, 1_002):
        first, second = run_seed(seed), run_seed(seed)
        assert (first.trace, first.steps) == (second.trace, second.steps)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known['brokers']}x{known['seed']}")
def test_a_seed_that_once_failed_does_not_fail_again(known: dict[str, object]) -> None:
    plan = Plan(brokers=int(str(known["brokers"])), profile=str(known.get("profile", "")))
    outcome = run_seed(int(str(known["seed"])), plan)
    assert not outcome.failed, f"{known['reason']}\n{outcome}"
