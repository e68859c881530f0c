"""Changes that many clients ask of one shard, each small, to be put into its log together.

A commit of offsets is a record or two, and the members of many groups commit at the same time. What
is asked for within one turn of the loop goes into one batch. Where a batch is on its way to the
disk, what comes meanwhile goes with the next one: it could not be durable any earlier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tidelog.coordinators.outcome import Outcome, Reply
from tidelog.coordinators.timers import Now
from tidelog.errors import KafkaError
from tidelog.replication.waiters import CommitWait

S = TypeVar("S")
Handled = list[tuple[Outcome, "Answer"]]


@dataclass(slots=True, eq=False)
class Answer:
    """What somebody waits for, once the reply is there and what it rests on is committed.

    An error is answered with what `refused` makes of it, or raised where there is none.
    """

    reply: Reply[Any]
    core_only: bool
    future: asyncio.Future[Any]
    refused: Callable[[KafkaError], Any] | None = None
    wait: CommitWait | None = None

    def leave(self, refusal: KafkaError | None = None) -> None:
        error = refusal or self.reply.error
        if self.future.done():
            return
        if error is None:
            self.future.set_result(self.reply.value)
        elif self.refused is not None:
            self.future.set_result(self.refused(error))
        else:
            self.future.set_exception(error)

    def fail(self, error: Exception) -> None:
        """Nobody foresaw it: whoever asked learns of it as it is."""
        if isinstance(error, KafkaError):
            self.leave(error)
        elif not self.future.done():
            self.future.set_exception(error)


class Gathered(Generic[S]):
    """What one shard is to handle together; `is_held` while a batch of it is under way."""

    __slots__ = ("asked", "is_held")

    def __init__(self) -> None:
        self.asked: list[tuple[Callable[[S, Now], Outcome], Answer]] = []
        self.is_held = False

    def add(self, handler: Callable[[S, Now], Outcome], answer: Answer) -> bool:
        """True where nothing is under way that would take it along."""
        self.asked.append((handler, answer))
        was_held, self.is_held = self.is_held, True
        return not was_held

    def handle(self, shard: S, now: Now) -> Handled:
        """Have the shard handle all; those that it refuses are answered."""
        asked, self.asked = self.asked, []
        handled: Handled = []
        try:
            for handler, answer in asked:
                try:
                    outcome = handler(shard, now)
                except KafkaError as error:
                    answer.leave(error)
                    continue
                answer.reply.resolve(outcome.answer)
                handled.append((outcome, answer))
        except Exception as error:
            for _, answer in asked:
                answer.fail(error)
            raise
        return handled

    def fail(self, error: Exception) -> None:
        """None of it can be handled."""
        asked, self.asked = self.asked, []
        for _, answer in asked:
            answer.fail(error)
