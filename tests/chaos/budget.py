"""How many copies may be lost at a time, and whether a run kept to it.

With a minimum of two in-sync replicas, what is acknowledged is on two disks at least. So one broker
may lose what it had, as often as you like, if the others are whole by then. When a second one
does before that, acknowledged records can be gone. That is allowed, and must be said by a broker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.history.report import Rule, Violation

# What follows where records are gone: others take their offsets, and groups begin before them.
_LOSS: Final = frozenset(
    {
        Rule.LOST_WRITE,
        Rule.DUPLICATE,
        Rule.INCONSISTENT_OFFSET,
        Rule.REORDER,
        Rule.POLL_SKIP,
        Rule.NON_MONOTONIC_POLL,
        Rule.UNSEEN,
        Rule.COMMIT_REGRESS,
        Rule.STALE_READ,
    }
)
_REPORT: Final = re.compile(
    r"(?:elected a leader that may lack committed records|leads without committed records"
    r"|dropped committed records) .*?partition=(\S+)"
)
_PARTITION: Final = re.compile(r"\b\w+-\d+(?=@)")


@dataclass(slots=True)
class Budget:
    """Brokers that lost records since all was whole the last time."""

    min_isr: int
    exceeded: bool = False
    _lossy: set[int] = field(default_factory=set)

    def lose(self, broker: int) -> None:
        self._lossy.add(broker)
        self.exceeded = self.exceeded or len(self._lossy) > self.min_isr - 1

    def whole(self) -> None:
        """Every replica is in sync."""
        self._lossy.clear()


def reported_losses(logs: Iterable[str]) -> set[str]:
    """The partitions for which a broker said that records are or may be lost."""
    return {found for log in logs for found in _REPORT.findall(log)}


def judge(
    violations: Sequence[Violation], budget: Budget, reported: set[str]
) -> tuple[list[Violation], int]:
    """What is wrong, and how many losses were allowed and reported."""
    if not budget.exceeded:
        return list(violations), 0
    wrong = [
        each for each in violations if each.rule not in _LOSS or not _partitions(each) & reported
    ]
    return wrong, len(violations) - len(wrong)


def _partitions(violation: Violation) -> set[str]:
    return set(_PARTITION.findall(violation.what))
