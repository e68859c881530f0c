"""What random schedules of groups have in common: members to pick from, errors that may come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection
from random import Random
from typing import Generic, TypeVar

from tidelog.errors import ErrorCode, KafkaError

M = TypeVar("M")


class GroupSchedule(ABC, Generic[M]):
    """One run by a seed; `expected` are the errors that a client of such a group may see."""

    expected: Collection[ErrorCode] = ()

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.members: list[M] = []
        self.committed: dict[int, int] = {}
        self.next_offset = 1
        self.counts: Counter[str] = Counter()

    def attempt(self, act: Callable[[], object]) -> None:
        try:
            act()
        except KafkaError as error:
            assert error.code in self.expected, error
            self.counts[error.code.name] += 1

    def pick(self) -> M | None:
        return self.chance.choice(self.members) if self.members else None

    def vanish(self) -> None:
        """A member is silent from now on."""
        member = self.pick()
        if member is not None:
            self.members.remove(member)

    @abstractmethod
    def run(self) -> None:
        """Play the schedule from its beginning to its end."""


def run_all(make: Callable[[int], GroupSchedule[M]], count: int) -> Counter[str]:
    """Run so many schedules; what they counted, and how many they were."""
    counts: Counter[str] = Counter()
    for seed in range(count):
        schedule = make(seed)
        try:
            schedule.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        counts += schedule.counts
        counts["schedules"] += 1
    return counts
