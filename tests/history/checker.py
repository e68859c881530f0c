"""Judges a history: pure functions over a list of events.

K1 to K4 and K15 look at the log, K6 to K8 and K11 at what the group's members were given, K13 and
I23 at who owned and committed what. What a client may do at any time is legal: repeat what was not
committed, believe in an assignment that it has lost, leave outcomes unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.history.commit_rules import (
    Members,
    Outcome,
    falling_commits,
    fenced_commits,
    find_commits,
    find_questions,
    two_owners,
    wrong_answers,
)
from tests.history.events import Assigned, Event, in_order
from tests.history.log_rules import Contents, lost_writes, reorders, stale_reads
from tests.history.poll_rules import Run, broken_runs, find_runs, not_given, skipped_within
from tests.history.report import Report, Rule

# Twice the session of a broker with its store: as long as one that was replaced may not know it.
STALE_NS: Final = 12_000_000_000


def check(history: Iterable[Event], stale_ns: int = STALE_NS) -> Report:
    events = in_order(history)
    contents = Contents(events)
    runs = find_runs(events)
    members = Members(events)
    commits = find_commits(events, members)
    report = Report(violations=list(contents.violations))
    outcomes = [commit.outcome for commit in commits]
    report.commits_accepted = outcomes.count(Outcome.ACCEPTED)
    report.commits_refused = outcomes.count(Outcome.REFUSED)
    report.commits_unknown = outcomes.count(Outcome.UNKNOWN)
    found = report.violations
    found += lost_writes(contents)
    found += reorders(events)
    found += stale_reads(events, stale_ns)
    found += broken_runs(runs, contents)
    found += two_owners(events, members)
    found += fenced_commits(commits, members)
    found += falling_commits(commits, members)
    found += wrong_answers(find_questions(events, runs), commits, contents)
    reported = skipped_within(runs) | _begun_behind(runs, report)
    found += not_given(runs, contents, reported)
    _count(report, events, runs, contents)
    return report


def _begun_behind(runs: list[Run], report: Report) -> set[tuple[str, int]]:
    """What lies before the first record of a run that was found to begin too far on."""
    begun = {
        event for each in report.violations if each.rule is Rule.POLL_SKIP for event in each.events
    }
    return {
        (run.partition, offset)
        for run in runs
        if run.polls[0][1] in begun
        for offset in range(run.first_offset)
    }


def _count(report: Report, events: list[Event], runs: list[Run], contents: Contents) -> None:
    report.rebalances = len(
        {event.generation for event in events if isinstance(event, Assigned)} - {None}
    )
    given = {(run.partition, offset) for run in runs for offset, _ in run.polls}
    report.delivered = sum(len(run.polls) for run in runs)
    report.repeats = report.delivered - len(given)
    last: dict[str, str] = {}
    for run in runs:
        if last.setdefault(run.partition, run.member) != run.member:
            report.takeovers += 1
            last[run.partition] = run.member
    for partition, acknowledged in contents.acknowledged.items():
        report.acknowledged += len(acknowledged)
        report.skips += sum((partition, offset) not in given for offset in acknowledged)
