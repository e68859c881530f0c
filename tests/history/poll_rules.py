"""The rules about what a group's members were given (K6 to K8, K11).

A *run* is what one member gets of one partition from its assignment on until it is revoked or
assigned anew: within it every record that exists follows the one before. Where a run may begin is
a matter of what was committed (`commit_rules`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.history.events import Assigned, Event, Polled, Revoked
from tests.history.log_rules import Contents
from tests.history.report import Rule, Violation


@dataclass(slots=True)
class Run:
    partition: str
    member: str
    assigned: Event
    polls: list[tuple[int, Polled]] = field(default_factory=list)  # offset, and what gave it

    @property
    def first_offset(self) -> int:
        return self.polls[0][0]

    @property
    def first_poll_ns(self) -> int:
        return self.polls[0][1].time_ns


def find_runs(events: Iterable[Event]) -> list[Run]:
    """The runs that gave anything, in the order of their first records."""
    runs: list[Run] = []
    current: dict[tuple[str, str], Run] = {}
    for event in events:
        if isinstance(event, Assigned):
            for partition in event.partitions:
                current[event.member, partition] = Run(partition, event.member, event)
        elif isinstance(event, Revoked):
            for partition in event.partitions:
                current.pop((event.member, partition), None)
        elif isinstance(event, Polled):
            for record in event.records:
                key = (event.member, record.partition)
                run = current.get(key)
                if run is None:
                    run = current[key] = Run(record.partition, event.member, event)
                if not run.polls:
                    runs.append(run)
                run.polls.append((record.offset, event))
    return runs


def broken_runs(runs: Iterable[Run], contents: Contents) -> Iterator[Violation]:
    """K6, K7 and, within one poll, K8."""
    for run in runs:
        for (before, earlier), (offset, event) in zip(run.polls, run.polls[1:], strict=False):
            seen = contents.seen[run.partition]
            if offset <= before:
                rule, what = Rule.NON_MONOTONIC_POLL, f"{offset} after {before}"
            elif any(each in seen for each in range(before + 1, offset)):
                rule, what = Rule.POLL_SKIP, f"{offset} after {before}, with records between"
            else:
                continue
            if event is earlier:
                rule = Rule.WITHIN_ONE_POLL
            yield Violation(rule, f"{run.member} got {run.partition}@{what}", (earlier, event))


def not_given(
    runs: Iterable[Run], contents: Contents, reported: set[tuple[str, int]]
) -> Iterator[Violation]:
    """K11: acknowledged, and never given to the group; K6 where the group went past it.

    What nobody read at all though later records were is lost (K1), and not told again here; nor is
    what is in `reported`.
    """
    given: dict[str, set[int]] = {}
    for run in runs:
        given.setdefault(run.partition, set()).update(offset for offset, _ in run.polls)
    for partition, acknowledged in contents.acknowledged.items():
        offsets = given.get(partition, set())
        highest = max(offsets, default=-1)
        for offset, event in acknowledged.items():
            if offset in offsets or (partition, offset) in reported:
                continue
            if offset > highest:
                what = f"{partition}@{offset} was acknowledged and never given to the group"
                yield Violation(Rule.UNSEEN, what, (event,))
            elif offset in contents.seen[partition]:
                what = f"{partition}@{offset} is there, and the group went past it to {highest}"
                yield Violation(Rule.POLL_SKIP, what, (event,))


def skipped_within(runs: Iterable[Run]) -> set[tuple[str, int]]:
    """What lies between two records that one run gave one after the other."""
    return {
        (run.partition, offset)
        for run in runs
        for (before, _), (after, _) in zip(run.polls, run.polls[1:], strict=False)
        for offset in range(before + 1, after)
    }
