"""A world in which a query writes exactly once: brokers as they behave, and actors that are killed,
put to sleep and left behind at any request.

Drivers and task attempts go step by step: a request, its answer, the next request; chance says who
goes on. A request of an actor that was killed may still arrive, at any later moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tidelog.client.batching import Identity
from tidelog.client.transaction_faults import (
    ProducerFencedError,
    TransactionAbortedError,
    TransactionStateError,
)
from tidelog.client.transactions import PreparedTransaction
from tidelog.errors import TidelogError
from tidelog.spark.sink.decisions import Decision, KnownId, Port, Steps

Row = tuple[int, int, int]
PREFIX = "q"


class Actor:
    """Somebody who carries out steps, one request at a time."""

    def __init__(self, brokers: Brokers, steps: Steps[Any]) -> None:
        self._brokers, self._steps = brokers, steps
        self._request: Callable[[Port], Any] | None = None
        self._answer: object = None
        self._failure: TidelogError | None = None
        self._has_asked = True
        self.is_over = False
        self.result: Any = None
        self.error: TidelogError | None = None

    def step(self) -> None:
        """Have the request carried out, or take the answer and make the next request."""
        if self._request is not None and not self._has_asked:
            self._has_asked = True
            try:
                self._answer, self._failure = self._request(self._brokers), None
            except TidelogError as error:
                self._failure = error
            return
        try:
            if self._request is None:
                self._request = next(self._steps)
            elif self._failure is not None:
                self._request = self._steps.throw(self._failure)
            else:
                self._request = self._steps.send(self._answer)
            self._has_asked = False
        except StopIteration as stop:
            self.is_over, self.result = True, stop.value
        except TidelogError as error:
            self.is_over, self.error = True, error

    def kill(self) -> Callable[[], object] | None:
        """No more of it, but for a request that may be on its way."""
        self._steps.close()
        self.is_over = True
        request = self._request
        if request is None or self._has_asked:
            return None
        return lambda: request(self._brokers)


@dataclass
class OneId:
    """A transactional id as its coordinator knows it."""

    producer: Identity
    state: str = "Empty"
    rows: list[Row] = field(default_factory=list)

    def raise_epoch(self) -> Identity:
        self.producer = Identity(self.producer.producer_id, self.producer.producer_epoch + 1)
        return self.producer


class Brokers:
    """What is committed, what is open, and the ledger."""

    def __init__(self) -> None:
        self.ids: dict[str, OneId] = {}
        self.ledger: list[Decision] = []
        self.visible: list[Row] = []
        self.driver = Identity(1, 0)
        self.written = 0

    def take(self) -> Identity:
        self.driver = Identity(1, self.driver.producer_epoch + 1)
        return self.driver

    def read(self) -> Decision | None:
        return self.ledger[-1] if self.ledger else None

    def write(self, driver: Identity, decision: Decision) -> Identity:
        if driver != self.driver:
            raise ProducerFencedError(PREFIX, commit_unanswered=False)
        self.ledger.append(decision)
        return self.take()

    def is_driver(self, driver: Identity) -> bool:
        return driver == self.driver

    def find(self) -> Collection[KnownId]:
        return [KnownId(name, each.producer, each.state) for name, each in self.ids.items()]

    def claim(self, name: str, expected: Identity | None) -> Identity:
        known = self.ids.get(name)
        if known is None:
            known = self.ids[name] = OneId(Identity(100 + len(self.ids), -1))
        elif expected is not None and expected != known.producer:
            raise ProducerFencedError(name, commit_unanswered=False)
        known.rows, known.state = [], "Empty"
        return known.raise_epoch()

    def append(self, transaction: PreparedTransaction, rows: list[Row]) -> None:
        known = self.ids[transaction.transactional_id]
        if known.producer != Identity(transaction.producer_id, transaction.producer_epoch):
            raise ProducerFencedError(transaction.transactional_id, commit_unanswered=False)
        known.state = "Ongoing"
        known.rows += rows
        self.written += 1

    def seconds(self) -> float:
        return 0.0

    def pause(self) -> None:
        return

    def end(
        self, transactions: Sequence[PreparedTransaction], *, commit: bool
    ) -> Sequence[TidelogError | None]:
        errors: list[TidelogError | None] = []
        for each in transactions:
            try:
                self.end_one(each, commit=commit)
                errors.append(None)
            except TidelogError as error:
                errors.append(error)
        return errors

    def end_one(self, transaction: PreparedTransaction, *, commit: bool) -> None:
        """As version 2 of the protocol has it: every end raises the epoch."""
        name, epoch = transaction.transactional_id, transaction.producer_epoch
        known = self.ids[name]
        state = "CompleteCommit" if commit else "CompleteAbort"
        if known.producer.producer_epoch == epoch + 1 and known.state.startswith("Complete"):
            if known.state == state:
                return
            error = TransactionAbortedError if commit else TransactionStateError
            raise error(name, "it ended otherwise")
        if known.producer.producer_epoch != epoch:
            raise ProducerFencedError(name, commit_unanswered=True)
        if commit and known.state != "Ongoing":
            raise TransactionStateError(name, "nothing is open")
        if commit:
            self.visible += known.rows
        known.rows, known.state = [], state
        known.raise_epoch()


def deliver_one(late: list[Callable[[], object]], chance: Random) -> None:
    """A request whose sender is dead arrives; nobody hears the answer."""
    request = late.pop(chance.randrange(len(late)))
    with suppress(TidelogError):
        request()
