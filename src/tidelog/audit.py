"""Decisions that an operator must be able to find again: what was lost, put aside or overruled.

They are log lines of one logger at WARNING, so that a handler can keep them apart.
"""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


def audit(decision: str, **facts: object) -> None:
    """Log one decision and what it rests on, e.g. `audit("segments lost", partition=..., ...)`."""
    _log.warning("%s %s", decision, " ".join(f"{name}={value}" for name, value in facts.items()))
