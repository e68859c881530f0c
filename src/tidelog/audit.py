"""Decisions that an operator must be able to find again: what was lost, put aside or overruled.

They are log lines of one logger at WARNING. The broker's audit log listens to that logger, so each
of them is also one of its lines (`server/audit_log`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

_log = logging.getLogger(__name__)

Listener = Callable[[str, Mapping[str, object]], None]


def audit(decision: str, **facts: object) -> None:
    """Log one decision and what it rests on, e.g. `audit("segments lost", partition=..., ...)`."""
    said = " ".join(f"{name}={value}" for name, value in facts.items())
    _log.warning("%s %s", decision, said, extra={"decision": decision, "facts": facts})


class DecisionListener(logging.Handler):
    """Hears every decision from `start` to `stop`, on whichever thread it is made.

    All brokers of a process hear all of its decisions: outside of tests there is one.
    """

    def __init__(self, listener: Listener) -> None:
        super().__init__(logging.WARNING)
        self._listener = listener

    def start(self) -> None:
        _log.addHandler(self)

    def stop(self) -> None:
        _log.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        decision, facts = getattr(record, "decision", None), getattr(record, "facts", None)
        if isinstance(decision, str) and isinstance(facts, Mapping):
            self._listener(decision, facts)
