"""Counters of transactions since the start."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tidelog.coordinators.transactions.records import TransactionLogValue
from tidelog.coordinators.transactions.transaction import State


@dataclass(slots=True)
class TransactionStats:
    """What the coordinator did; `aborted_by` tells for which reason."""

    begun: int = 0
    committed: int = 0
    aborted_by: Counter[str] = field(default_factory=Counter)
    markers_sent: int = 0
    markers_retried: int = 0

    def decided(self, value: TransactionLogValue, cause: str) -> None:
        """A record that decides something, or does not, was appended."""
        self.committed += value.transaction_status == State.PREPARE_COMMIT
        if value.transaction_status == State.PREPARE_ABORT:
            self.aborted_by[cause] += 1
