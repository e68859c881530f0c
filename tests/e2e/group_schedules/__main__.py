"""Runs schedules alone: python -m tests.e2e.group_schedules DIRECTORY SEED..."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.e2e.group_schedules.runner import Runner
from tests.e2e.group_schedules.schedule import make_schedule
from tests.e2e.group_schedules.summary import summary


def main(directory: str, *seeds: str) -> int:
    broken = 0
    for seed in seeds:
        schedule = make_schedule(int(seed))
        print(schedule)
        began = time.monotonic()
        report = Runner(schedule, Path(directory) / f"seed-{seed}").run()
        print(summary(schedule, report), f"seconds={time.monotonic() - began:.1f}")
        for rule in report.rules_broken():
            broken_here = [each for each in report.violations if each.rule is rule]
            print(f"{len(broken_here)} times {broken_here[0]}")
        broken += bool(report.violations)
    return broken


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
