"""The commands that a controller does in one transaction, and what becomes of each."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tidelog.cluster.commands import Answer, Command
from tidelog.cluster.failover import Loss
from tidelog.cluster.image import Draft
from tidelog.cluster.steps import Steps
from tidelog.errors import ErrorCode, KafkaError


@dataclass(slots=True)
class Pending:
    """A command that waits for its turn."""

    command: Command
    answer: asyncio.Future[Answer]


@dataclass(slots=True)
class Round:
    """Commands that are done together: what they write, and what each is told afterwards.

    As a rule that is one transaction. A command that needs more is the last of its round.
    """

    draft: Draft
    steps: Steps = field(default_factory=Steps)
    outcomes: list[tuple[asyncio.Future[Answer], Answer | KafkaError]] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)

    def tell(self) -> None:
        for future, outcome in self.outcomes:
            if isinstance(outcome, KafkaError):
                refuse(future, outcome)
            elif not future.done():
                future.set_result(outcome)

    def refuse(self, code: ErrorCode, message: str) -> None:
        for future, _ in self.outcomes:
            refuse(future, KafkaError(code, message))


def refuse(future: asyncio.Future[Answer], error: KafkaError) -> None:
    """Answer a command with an error, unless nobody waits any more."""
    if not future.done():
        future.set_exception(error)
