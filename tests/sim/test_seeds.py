"""Worlds of real brokers under seeded faults keep every invariant, and replay exactly."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.run import Plan, run_seed
from tidelog.testing.simulation.schedule import PROFILES

LONG = os.environ.get("TIDELOG_LONG") == "1"
SEEDS = 600 if LONG else 12
CPU_SECONDS = 1_200.0 if LONG else 40.0
# Of each of these at least one must have struck.
FAULTS = (
    ("kill",),
    ("pause",),
    ("power cut", "power cut in a call", "wipe"),
    ("failed write", "failed sync", "full disk"),
    ("store cut", "session lost", "store loss before", "store loss after"),
    ("one-way cut", "isolated", "swizzle"),
    ("held message",),
    ("reset",),
)
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


def test_three_brokers_survive_what_schedules_do_to_them() -> None:
    """As many seeds as fit the time, all profiles in turn; how many is printed."""
    counts: Counter[str] = Counter()
    started, seeds = time.process_time(), 0
    while seeds < 2 * len(PROFILES) or time.process_time() - started < CPU_SECONDS:
        outcome = run_seed(2_000 + seeds, Plan(3, list(PROFILES)[seeds % len(PROFILES)]))
        assert not outcome.failed, str(outcome)
        counts.update(outcome.counts)
        seeds += 1
    print(f"{seeds} seeds of three brokers: {dict(sorted(counts.items()))}")
    assert counts["client acknowledged"] > 20 * seeds
    for kinds in FAULTS:
        assert any(counts[f"fault {kind}"] for kind in kinds), kinds
    for branch in ("isr shrunk", "isr grown", "leader epoch", "elr", "controller"):
        assert counts[branch] > 0, branch


def test_replicas_are_moved_and_leaders_elected_while_brokers_fail() -> None:
    """Four brokers, so that there is somewhere to move to; each kind of faults once."""
    counts: Counter[str] = Counter()
    for number, profile in enumerate(list(PROFILES) * (20 if LONG else 1)):
        outcome = run_seed(3_000 + number, Plan(4, profile, moves=True))
        assert not outcome.failed, str(outcome)
        counts.update(outcome.counts)
    for done in ("moved", "elect", "cancel", "drain", "limit"):
        assert counts[f"operator {done}"] > 0, done


def test_a_seed_replays_exactly() -> None:
    for seed, brokers in ((1_000, 1), (1_001, 1), (1_002, 1), (2_000, 3), (2_001, 3)):
        first, second = (run_seed(seed, Plan(brokers)) for _ in range(2))
        assert (first.trace, first.steps) == (second.trace, second.steps)


_TELL_TRACES = """
from tests.sim.run import Plan, run_seed
for seed, plan in (
    (1_000, Plan()), (2_008, Plan(3)), (2_012, Plan(3)), (2_008, Plan(4, moves=True)),
    (2_010, Plan(4, moves=True)), (2_010, Plan(3, groups=True)), (4_001, Plan(3, groups=True)),
):
    print(seed, run_seed(seed, plan).trace)
"""


def test_a_seed_replays_exactly_in_another_process() -> None:
    """Nothing follows the order of a set: a process hashes and places things as no other does."""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", _TELL_TRACES],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (run.communicate()[0].splitlines() for run in runs)
    assert len(first) == 7
    assert first == second


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known['brokers']}x{known['seed']}")
def test_a_seed_that_once_failed_does_not_fail_again(known: dict[str, object]) -> None:
    plan = Plan(
        brokers=int(str(known["brokers"])),
        profile=str(known.get("profile", "")),
        moves=bool(known.get("moves", False)),
        groups=bool(known.get("groups", False)),
        transactions=bool(known.get("transactions", False)),
    )
    outcome = run_seed(int(str(known["seed"])), plan)
    assert not outcome.failed, f"{known['reason']}\n{outcome}"
