"""Runs schedules alone: python -m tests.e2e.group_schedules DIRECTORY SEED..."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from scripts.guardian import guard
from tests.e2e.group_schedules.runner import Runner
from tests.e2e.group_schedules.schedule import make_schedule
from tests.e2e.group_schedules.summary import summary


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.group_schedules")
    parser.add_argument("directory", type=Path)
    parser.add_argument("seeds", type=int, nargs="+")
    given = parser.parse_args()
    guard()
    broken = 0
    for seed in given.seeds:
        schedule = make_schedule(seed)
        print(schedule)
        began = time.monotonic()
        report = Runner(schedule, given.directory / f"seed-{seed}").run()
        print(summary(schedule, report), f"seconds={time.monotonic() - began:.1f}")
        for rule in report.rules_broken():
            found = [each for each in report.violations if each.rule is rule]
            print(f"{len(found)} times {found[0]}")
        broken += bool(report.violations)
    return broken


if __name__ == "__main__":
    sys.exit(main())
