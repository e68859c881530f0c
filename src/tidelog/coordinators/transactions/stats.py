"""Counters of transactions since the start."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class TransactionStats:
    """What the coordinator did; `aborted_by` tells for which reason."""

    begun: int = 0
    committed: int = 0
    aborted_by: Counter[str] = field(default_factory=Counter)
    markers_sent: int = 0
    markers_retried: int = 0
