"""One line about one schedule."""

from __future__ import annotations

from tests.e2e.group_schedules.schedule import Schedule
from tests.history.report import Report


def summary(schedule: Schedule, report: Report) -> str:
    clients = "+".join(sorted({slot.client for slot in schedule.slots}))
    static = " static" if schedule.static else ""
    return (
        f"seed={schedule.seed} members={schedule.members} partitions={schedule.partitions}"
        f" {clients} {schedule.protocol} {schedule.assignor} commit={schedule.commit}{static}"
        f" [{schedule.faults}] acknowledged={report.acknowledged}"
        f" rebalances={report.rebalances} takeovers={report.takeovers}"
        f" repeats={report.repeats} skips={report.skips}"
        f" commits={report.commits_accepted}/{report.commits_refused}/{report.commits_unknown}"
        f" violations={len(report.violations)}"
    )
