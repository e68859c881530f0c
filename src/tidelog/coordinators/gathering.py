"""Changes that many clients ask of one shard, each small, to be put into its log together.

A commit of offsets is a record or two, and the members of many groups commit at the same time. What
is asked for within one turn of the loop goes into one batch. Where a batch is on its way to the
disk, what comes meanwhile goes with the next one: it could not be durable any earlier. Of all that
was gathered, one turn handles a part: thousands of commits must not hold up a heartbeat.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from tidelog.coordinators.outcome import Outcome, Reply
from tidelog.coordinators.timers import Now
from tidelog.errors import KafkaError
from tidelog.host.prompt import Prompt
from tidelog.replication.waiters import CommitWait

S = TypeVar("S")
Handled = list[tuple[Outcome, "Asked[S]"]]

# How many changes are handled in one turn of the loop: some milliseconds.
_CHANGES_AT_ONCE: Final = 250


@dataclass(slots=True, eq=False)
class Answer:
    """What somebody waits for, once the reply is there and what it rests on is committed."""

    reply: Reply[Any]
    core_only: bool
    future: asyncio.Future[Any]
    wait: CommitWait | None = None

    def leave(self, refusal: KafkaError | None = None) -> None:
        error = refusal or self.reply.error
        if self.future.done():
            return
        if error is None:
            self.future.set_result(self.reply.value)
        else:
            self.future.set_exception(error)


class Asked(NamedTuple, Generic[S]):
    """One change, and who waits for it; an error is answered with what `refused` makes of it."""

    handler: Callable[[S, Now], Outcome]
    refused: Callable[[KafkaError], Any]
    future: Prompt[Any]

    def fail(self, error: Exception) -> None:
        """What nobody foresaw is told to whoever asked as it is."""
        if self.future.done():
            return
        if isinstance(error, KafkaError):
            self.future.set_result(self.refused(error))
        else:
            self.future.set_exception(error)


class Batch(Generic[S]):
    """Changes that were appended together, on their way to being committed."""

    __slots__ = ("handled", "wait")

    def __init__(self, handled: Handled[S], wait: CommitWait) -> None:
        self.handled = handled
        self.wait = wait

    def leave(self, refusal: KafkaError | None = None) -> None:
        answer_all(self.handled, refusal)


def answer_all(handled: Handled[S], refusal: KafkaError | None = None) -> None:
    """Tell all who asked: what their change came to, or why it may not last."""
    for outcome, asked in handled:
        if refusal is not None:
            asked.fail(refusal)
        else:
            asked.future.settle(outcome.answer)


class Gathered(Generic[S]):
    """What one shard is to handle together; `is_held` while a batch of it is under way."""

    __slots__ = ("asked", "is_held")

    def __init__(self) -> None:
        self.asked: list[Asked[S]] = []
        self.is_held = False

    def add(self, asked: Asked[S]) -> bool:
        """True where nothing is under way that would take it along."""
        self.asked.append(asked)
        was_held, self.is_held = self.is_held, True
        return not was_held

    def handle(self, shard: S, now: Now) -> Handled[S]:
        """Have the shard handle all; those that it refuses are answered."""
        all_asked, self.asked = self.asked, []
        handled: Handled[S] = []
        try:
            for asked in all_asked:
                try:
                    handled.append((asked.handler(shard, now), asked))
                except KafkaError as error:
                    asked.fail(error)
        except Exception as error:
            for asked in all_asked:
                asked.fail(error)
            raise
        return handled

    def fail(self, error: Exception) -> None:
        """None of it can be handled."""
        all_asked, self.asked = self.asked, []
        for asked in all_asked:
            asked.fail(error)


class Rounds(Generic[S]):
    """Whose gathered changes are handled next, of all shards: so many in one turn of the loop."""

    def __init__(self, handle: Callable[[S], None], size: Callable[[S], int]) -> None:
        self._handle = handle
        self._size = size
        self._waiting: deque[S] = deque()
        self._handled = 0
        self._is_scheduled = False

    def later(self, slot: S) -> None:
        """Handle what the slot gathers until the next turn."""
        self._waiting.append(slot)
        self._schedule()

    def now(self, slot: S) -> None:
        """Handle what the slot has gathered, in this turn if there is room for it."""
        if self._waiting or self._handled >= _CHANGES_AT_ONCE:
            self._waiting.append(slot)
        else:
            self._take(slot)
        self._schedule()

    def _take(self, slot: S) -> None:
        self._handled += self._size(slot)
        self._handle(slot)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        self._handled = 0
        while self._waiting and self._handled < _CHANGES_AT_ONCE:
            self._take(self._waiting.popleft())
        if self._waiting or self._handled:
            self._schedule()
