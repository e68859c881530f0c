"""How the transactions stand that are open."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidelog.coordinators.transactions.transaction import State, Transaction


@dataclass(slots=True)
class Standing:
    """The transactions of a broker that have not ended; times are those in which it ran."""

    open: int = 0
    oldest_ms: int = 0
    # By how much the latest has outlived its time-out, be it open or on its way to its end.
    overdue_ms: int = 0
    # The age of the oldest that no time-out ends, and about which nobody has decided.
    undecided_ms: int = 0

    def add(self, transactions: Iterable[Transaction], age_of: Callable[[int], int]) -> None:
        for each in transactions:
            if each.state is not State.ONGOING and not each.state.is_decided:
                continue
            age_ms = age_of(each.started_ms)
            self.open += 1
            self.oldest_ms = max(self.oldest_ms, age_ms)
            if each.has_timeout:
                self.overdue_ms = max(self.overdue_ms, age_ms - each.timeout_ms)
            elif each.state is State.ONGOING:
                self.undecided_ms = max(self.undecided_ms, age_ms)
