"""A few of the faults of `make chaos`, one of each kind that takes little time."""

from __future__ import annotations

import random
from pathlib import Path

from tests.chaos.kinds import FAULTS
from tests.chaos.run import run


def test_nothing_acknowledged_is_lost_by_a_short_schedule_of_faults(tmp_path: Path) -> None:
    names = ("kill leader", "store leader", "pause", "wipe")
    outcome = run(tmp_path / "chaos", [(name, FAULTS[name]) for name in names], random.Random(1))
    print(outcome.text())
    assert (outcome.faults, outcome.problems) == (len(names), [])
    assert outcome.acknowledged > 1_000
