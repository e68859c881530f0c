"""Consumer groups under real faults: seeded schedules of kills, pauses and restarts, each checked.

Members, producer and broker are processes; every one that hears something writes it to a history,
and the checker (`tests/history`) judges the histories together.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.group_schedules.runner import Runner
from tests.e2e.group_schedules.schedule import make_schedule
from tests.e2e.group_schedules.summary import summary

LONG = os.environ.get("TIDELOG_LONG") == "1"
SEEDS = range(60) if LONG else (0,)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_keeps_its_promises_through_a_schedule(seed: int, tmp_path: Path) -> None:
    schedule = make_schedule(seed)
    report = Runner(schedule, tmp_path / "run").run()
    print(f"\n{summary(schedule, report)}")
    assert report.violations == []
    assert report.takeovers > 0, "a schedule without a takeover does not count"
