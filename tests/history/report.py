"""What the checker says: which rule was broken, by what, and how much was seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tests.history.events import Event

# A poll may have given hundreds of records.
_EVENT_CHARACTERS = 400


class Rule(StrEnum):
    """K5, K9, K10, K12, K14 and K16 are about transactions."""

    LOST_WRITE = "K1 lost write"
    DUPLICATE = "K2 duplicate"
    INCONSISTENT_OFFSET = "K3 inconsistent offset"
    REORDER = "K4 reorder"
    POLL_SKIP = "K6 poll skip"
    NON_MONOTONIC_POLL = "K7 non-monotonic poll"
    WITHIN_ONE_POLL = "K8 skip or step back within one poll"
    UNSEEN = "K11 unseen"
    COMMIT_REGRESS = "K13 commit regress"
    FENCED_COMMIT = "K13 commit accepted from a fenced member"
    STALE_READ = "K15 stale read"
    TWO_OWNERS = "I23 two owners in one generation"


@dataclass(frozen=True, slots=True)
class Violation:
    rule: Rule
    what: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        events = (f"\n    {str(event)[:_EVENT_CHARACTERS]}" for event in self.events)
        return "".join([f"{self.rule}: {self.what}", *events])


@dataclass(slots=True)
class Report:
    """The verdict on one history; `skips` counts acknowledged records the group never got."""

    violations: list[Violation] = field(default_factory=list)
    acknowledged: int = 0
    delivered: int = 0
    rebalances: int = 0
    takeovers: int = 0
    repeats: int = 0
    skips: int = 0
    commits_accepted: int = 0
    commits_refused: int = 0
    commits_unknown: int = 0

    def rules_broken(self) -> set[Rule]:
        return {violation.rule for violation in self.violations}
