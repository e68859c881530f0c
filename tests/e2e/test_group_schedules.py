"""Groups under real faults: seeded schedules of kills, pauses and restarts, each judged.

Members, producer and broker are processes of their own. Each writes down what it did and was told,
and the checker (`tests/history`) judges all of it together. One schedule alone:
python -m tests.e2e.group_schedules DIRECTORY SEED
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.group_schedules.runner import Runner
from tests.e2e.group_schedules.schedule import (
    MEMBERS_MAX,
    PARTITIONS_MAX,
    What,
    make_schedule,
)
from tests.e2e.group_schedules.summary import summary

LONG = os.environ.get("TIDELOG_LONG") == "1"
ALL_SEEDS = range(80)
# A kill and the broker's, a rolling restart, a static member replaced, sleepers of two client
# libraries, and all at once in consumer groups.
FEW_SEEDS = (2, 3, 6, 17, 65)


@pytest.fixture(scope="module")
def totals() -> Iterator[Counter[str]]:
    counts: Counter[str] = Counter()
    yield counts
    print("\nin all: " + ", ".join(f"{count} {what}" for what, count in counts.items()))


@pytest.mark.parametrize("seed", ALL_SEEDS if LONG else FEW_SEEDS)
def test_a_group_keeps_its_promises_through_a_schedule(
    seed: int, tmp_path: Path, totals: Counter[str]
) -> None:
    schedule = make_schedule(seed)
    directory = tmp_path / "run"
    again = f"again: python -m tests.e2e.group_schedules DIRECTORY {seed}; kept: {directory}"
    print(f"\n{again}")
    report = Runner(schedule, directory).run()
    print(summary(schedule, report))
    assert not report.violations, "\n".join([again, *map(str, report.violations[:10])])
    assert report.takeovers > 0, "a schedule without a takeover does not count"
    assert report.skips == 0
    totals["schedules"] += 1
    for what in ("acknowledged", "rebalances", "takeovers", "repeats", "skips"):
        totals[what] += getattr(report, what)
    shutil.rmtree(directory)


def test_the_schedules_have_every_fault_and_every_size() -> None:
    schedules = [make_schedule(seed) for seed in ALL_SEEDS]
    assert len(schedules) >= 50
    assert {step.what for each in schedules for step in each.steps} == set(What)
    assert {step.what for seed in FEW_SEEDS for step in make_schedule(seed).steps} == set(What)
    members = {each.members for each in schedules}
    assert (min(members), max(members)) == (1, MEMBERS_MAX)
    partitions = {each.partitions for each in schedules}
    assert (min(partitions), max(partitions)) == (1, PARTITIONS_MAX)
    clients = {slot.client for each in schedules for slot in each.slots}
    assert clients == {"aiokafka", "confluent-kafka", "kafka-python"}
    assert {each.commit for each in schedules} == {"async", "auto", "record", "sync"}
    assert {(each.protocol, each.assignor) for each in schedules} == {
        ("classic", "cooperative-sticky"),
        ("classic", "range"),
        ("consumer", "range"),
        ("consumer", "uniform"),
    }


def test_a_seed_always_gives_the_same_schedule() -> None:
    assert [make_schedule(seed) for seed in ALL_SEEDS] == [make_schedule(s) for s in ALL_SEEDS]
    assert len({make_schedule(seed).faults for seed in ALL_SEEDS}) >= 50
