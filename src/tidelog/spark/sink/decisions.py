"""Who decides about the transactions of a write that is exactly once, and what becomes of them.

Every task attempt writes in a transaction of its own and leaves it open. The driver then decides
about all of a batch at once: one record in a compacted topic, the ledger, names the transactions
that are to be committed; only then are they ended, one by one, and the record is marked as done.
A driver that starts finds in the ledger what was decided and not done, and does it, before any task
begins. So a batch is visible whole or not at all, and once, whoever is killed when.

Why nothing else can happen:

- One driver decides. It takes a transactional id of its own, which fences whoever had it before,
  and writes the ledger under the epoch that it got: a driver that was replaced can decide nothing.
- Nobody but the driver ends what an attempt has left open. Attempts begin under ids that the driver
  *granted* them, with the epoch in which each id rests. The broker lets one attempt alone have it,
  compares the epoch, and aborts nothing for one that is late. An attempt that finds all of its
  task's ids taken makes a new one, under a name that nobody else uses. So ids are used again from
  batch to batch, and there are never more than a task had attempts at a time.
- An attempt takes an id first, and then looks whether its driver is still the one that decides and
  has not decided yet. The driver decides first, and then ends every id that was taken and is not in
  its list. One of the two sees the other, so no attempt that was left behind keeps a transaction
  open: the losers of speculation, the dead, and those who wake up late.

On brokers without two-phase transactions (Apache Kafka: KIP-939 is not there yet) a time-out may
end what an attempt has left open. There the driver refuses to decide once half of it is over, and
ids are not used again, since a late attempt could not be told from its successor.

No clock, no socket: what is to be done comes as steps, each a request to a `Port`; `carry_out` does
them, one after the other, on the real one (`broker_port`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from tidelog.client.batching import Identity
from tidelog.client.transaction_faults import (
    ProducerFencedError,
    TransactionAbortedError,
    TransactionStateError,
)
from tidelog.client.transactions import PreparedTransaction
from tidelog.errors import TidelogError

T = TypeVar("T")

OPEN_STATE: Final = "Ongoing"
# An attempt has the id: it has written something, or may yet do so.
TAKEN_STATES: Final = frozenset({OPEN_STATE, "Empty"})
RESTING_STATES: Final = frozenset({"CompleteCommit", "CompleteAbort"})
_ENDED_OTHERWISE: Final = (TransactionAbortedError, TransactionStateError, ProducerFencedError)
ENDS_AT_ONCE = 64
# How often the ids are looked at until nobody has one: late attempts may take some.
_LOOKS_MAX: Final = 20
_DECIDED_ELSEWHERE: Final = (
    "another driver of the same query has taken over, or this batch was decided before: nothing of"
    " this attempt will be visible. Run each query once at a time"
)


class ExactlyOnceError(TidelogError):
    """A write that is to be exactly once cannot go on; what to do is in the text."""


class TornBatchError(ExactlyOnceError):
    """A batch was decided, and a transaction of it had been aborted before it could be ended."""


@dataclass(slots=True, frozen=True)
class Decision:
    """The transactions that are one version (a micro-batch) of a query, to be committed."""

    query: str
    version: int
    transactions: tuple[PreparedTransaction, ...]
    is_done: bool = False


@dataclass(slots=True, frozen=True)
class KnownId:
    """A transactional id of the query's attempts as its coordinator has it."""

    transactional_id: str
    producer: Identity
    state: str

    @property
    def transaction(self) -> PreparedTransaction:
        return PreparedTransaction(
            self.transactional_id, self.producer.producer_id, self.producer.producer_epoch
        )


class Port(Protocol):
    """What the brokers do for one query. All of it may fail, having happened or not."""

    def take(self) -> Identity:
        """Become the driver: whoever was it before can write no decision any more."""

    def read(self) -> Decision | None:
        """The last decision, of all that any driver has written."""

    def write(self, driver: Identity, decision: Decision) -> Identity:
        """Write a decision; with which epoch the driver goes on. ProducerFencedError."""

    def is_driver(self, driver: Identity) -> bool:
        """Whether nobody has become the driver since, and it has decided nothing since."""

    def find(self) -> Collection[KnownId]:
        """The ids of the query's attempts."""

    def claim(self, transactional_id: str, expected: Identity | None) -> Identity:
        """The id for one attempt alone, if it is as `expected`; else ProducerFencedError."""

    def end(
        self, transactions: Sequence[PreparedTransaction], *, commit: bool
    ) -> Sequence[TidelogError | None]:
        """End these and no others, however often it is asked for; what failed, for each."""

    def seconds(self) -> float:
        """A clock of the machine that the driver runs on."""

    def pause(self) -> None:
        """A moment."""


Steps = Generator[Callable[[Port], Any], Any, T]


def carry_out(steps: Steps[T], port: Port) -> T:
    """Do what the steps ask for, until they come to their end."""
    try:
        request = next(steps)
        while True:
            try:
                answer = request(port)
            except TidelogError as error:
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


@dataclass(slots=True, frozen=True)
class Task:
    """One attempt of a task; `unique` is a name that no other attempt of the run has."""

    number: int
    attempt: int
    unique: str


@dataclass(slots=True, frozen=True)
class Run:
    """One batch as its driver has begun it; sent to the tasks, and back to the driver."""

    prefix: str
    driver: Identity
    two_phase: bool
    timeout_ms: int
    began: float
    # The last query and version that are visible already.
    decided: tuple[str, int] | None = None
    # Which ids attempts may take, and in which epoch they rest.
    granted: dict[str, Identity] = field(default_factory=dict)

    def has(self, query: str, version: int) -> bool:
        """Whether this version was decided before: then its rows are there."""
        return self.decided is not None and self.decided[0] == query and version <= self.decided[1]

    def ids_of(self, task: int) -> list[str]:
        start = f"{self.prefix}.{task}."
        return sorted(each for each in self.granted if each.startswith(start))

    def new_id(self, task: Task) -> str:
        driver = self.driver
        return (
            f"{self.prefix}.{task.number}.{driver.producer_id}-{driver.producer_epoch}"
            f"-{task.unique}"
        )


def ids_pattern(prefix: str) -> str:
    """A regular expression for the ids of attempts, and not for the driver's."""
    return re.escape(prefix) + r"\.[0-9]+\.[-0-9]+"


# The driver, before any task begins


def begin(prefix: str, *, two_phase: bool, timeout_ms: int) -> Steps[Run]:
    """Finish what was decided, abort all else, and give out the ids."""
    began: float = yield lambda port: port.seconds()
    driver: Identity = yield lambda port: port.take()
    decision: Decision | None = yield lambda port: port.read()
    if decision is not None and not decision.is_done:
        driver = yield from _finish(driver, decision)
    resting = yield from _abort_open(prefix, driver)
    return Run(
        prefix,
        driver,
        two_phase,
        timeout_ms,
        began,
        None if decision is None else (decision.query, decision.version),
        {each.transactional_id: each.producer for each in resting} if two_phase else {},
    )


def _finish(driver: Identity, decision: Decision) -> Steps[Identity]:
    """Commit every transaction of a decision, and mark it as done."""
    for error in (yield from _end(decision.transactions, commit=True)):
        if not isinstance(error, _ENDED_OTHERWISE):
            raise error
        yield from _require_driver(driver)
        raise TornBatchError(
            f"batch {decision.version} of query {decision.query} was decided, and one of its"
            f" transactions had been aborted: a part of its rows is missing ({error})."
            " On brokers without two-phase transactions that is what a driver comes to which"
            " is away for longer than the time-out of its transactions: raise"
            " kafka.transaction.timeout.ms. Write the batch again from its source"
        ) from error
    return (yield from _write(driver, replace(decision, is_done=True)))


def _write(driver: Identity, decision: Decision) -> Steps[Identity]:
    try:
        goes_on: Identity = yield lambda port: port.write(driver, decision)
    except ProducerFencedError as error:
        raise ExactlyOnceError(_DECIDED_ELSEWHERE) from error
    return goes_on


def _require_driver(driver: Identity) -> Steps[None]:
    """ExactlyOnceError where somebody else decides by now, or this driver has decided."""
    is_ours: bool = yield lambda port: port.is_driver(driver)
    if not is_ours:
        raise ExactlyOnceError(_DECIDED_ELSEWHERE)


def _abort_open(prefix: str, driver: Identity) -> Steps[list[KnownId]]:
    """Abort what attempts of earlier runs have taken and not left; the ids that rest."""
    for _ in range(_LOOKS_MAX):
        found = yield from _find(driver)
        taken = [each.transaction for each in found if each.state in TAKEN_STATES]
        resting = [each for each in found if each.state in RESTING_STATES]
        if len(resting) == len(found):
            return resting
        yield from abort(taken)
        # Ended ones rest once their partitions know; else new ids would be made in their place.
        yield lambda port: port.pause()
    if not taken:
        return resting
    raise ExactlyOnceError(
        f"transactions of '{prefix}' are begun again and again: another driver of the same"
        " query is running. Stop one of them"
    )


def _find(driver: Identity) -> Steps[Collection[KnownId]]:
    """The ids as they were while this driver was the one that decides.

    Who took over has granted ids, which are none of ours. The look comes after, so what was found
    is older than that, and by its epoch nothing newer can be ended.
    """
    found: Collection[KnownId] = yield lambda port: port.find()
    yield from _require_driver(driver)
    return found


def _end(transactions: Sequence[PreparedTransaction], *, commit: bool) -> Steps[list[TidelogError]]:
    """End them, some at a time; what went wrong."""
    errors: list[TidelogError] = []
    for start in range(0, len(transactions), ENDS_AT_ONCE):
        some = transactions[start : start + ENDS_AT_ONCE]
        found: Sequence[TidelogError | None] = yield partial(_end_some, some, commit)
        errors += [each for each in found if each is not None]
    return errors


def _end_some(
    transactions: Sequence[PreparedTransaction], commit: bool, port: Port
) -> Sequence[TidelogError | None]:
    return port.end(transactions, commit=commit)


# A task


def claim(run: Run, task: Task) -> Steps[PreparedTransaction]:
    """The id and epoch that an attempt writes under."""
    ids = run.ids_of(task.number)
    # Attempts begin at different ones, so that each mostly gets its first.
    first = task.attempt % len(ids) if ids else 0
    for name in (*ids[first:], *ids[:first]):
        with suppress(ProducerFencedError):
            return (yield from _taken(run, name, run.granted[name]))
    return (yield from _taken(run, run.new_id(task), None))


def _taken(run: Run, name: str, expected: Identity | None) -> Steps[PreparedTransaction]:
    producer: Identity = yield lambda port: port.claim(name, expected)
    yield from _require_driver(run.driver)
    return PreparedTransaction(name, producer.producer_id, producer.producer_epoch)


# The driver, when all tasks are through


def commit(run: Run, decision: Decision) -> Steps[None]:
    """Decide, carry it out, and end what no attempt will come back for."""
    now: float = yield lambda port: port.seconds()
    _check_time(run, now)
    driver = yield from _write(run.driver, decision)
    driver = yield from _finish(driver, decision)
    listed = {each.transactional_id for each in decision.transactions}
    yield from _end_the_rest(driver, listed)


def give_up(run: Run, query: str, version: int) -> Steps[None]:
    """A batch has failed: let readers go on, unless it was decided.

    Spark asks for it also where the commit failed, perhaps behind the decision, perhaps with the
    decision still on its way. So the driver is taken anew, which keeps back what is on its way.
    """
    yield from _require_driver(run.driver)
    driver: Identity = yield lambda port: port.take()
    decision: Decision | None = yield lambda port: port.read()
    if decision is None or (
        decision.is_done and (decision.query, decision.version) != (query, version)
    ):
        yield from _abort_open(run.prefix, driver)


def abort(transactions: Sequence[PreparedTransaction]) -> Steps[None]:
    """Nothing of these is to be visible; where somebody has been faster, it is not or is."""
    for error in (yield from _end(transactions, commit=False)):
        if not isinstance(error, _ENDED_OTHERWISE):
            raise error


def _check_time(run: Run, now: float) -> None:
    passed_ms = (now - run.began) * 1000
    if not run.two_phase and passed_ms * 2 > run.timeout_ms:
        raise ExactlyOnceError(
            f"the batch took {passed_ms:.0f} ms, more than half of kafka.transaction.timeout.ms="
            f"{run.timeout_ms}: before all of it is committed, the brokers could abort a part."
            " Nothing of it was committed. Make batches smaller, or raise that time-out (up to"
            " transaction.max.timeout.ms of the brokers)"
        )


def _end_the_rest(driver: Identity, listed: Collection[str]) -> Steps[None]:
    """End the ids that were taken in this run and are not in its list."""
    found = yield from _find(driver)
    left = [each for each in found if each.transactional_id not in listed]
    yield from abort([each.transaction for each in left if each.state in TAKEN_STATES])
