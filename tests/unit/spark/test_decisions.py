"""Every row of every batch is visible once, whoever is killed, asleep or late at which request."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from tests.unit.spark.once_world import PREFIX, Actor, Brokers, deliver_one
from tidelog.client.batching import Identity
from tidelog.client.transactions import PreparedTransaction
from tidelog.spark.sink import decisions
from tidelog.spark.sink.decisions import (
    Decision,
    ExactlyOnceError,
    Run,
    Steps,
    Task,
    TornBatchError,
    ids_pattern,
)

TASKS, BATCHES, ATTEMPTS = 2, 3, 3
CHUNKS = 2
QUERY = "query-1"
SEEDS = range(3_000 if os.environ.get("TIDELOG_LONG") else 200)


def attempt(run: Run, batch: int, task: Task) -> Steps[PreparedTransaction | None]:
    """One attempt of a task: what it reports to its driver, if it comes to that."""
    if run.has(QUERY, batch):
        return None
    transaction = yield from decisions.claim(run, task)
    for chunk in range(CHUNKS):
        rows = [(batch, task.number, chunk)]
        yield lambda port, rows=rows: port.append(transaction, rows)  # type: ignore[misc]
    return transaction


class World:
    """Spark: a driver with its tasks, and those that were left behind."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.brokers = Brokers()
        self.late: list[Callable[[], object]] = []
        self.sleeping: list[Actor] = []
        self.unique = 0
        self.kills = self.takeovers = self.given_up = 0
        # What Spark's own checkpoint knows.
        self.batch = 0

    def run(self) -> None:
        while self.batch < BATCHES:
            self.driver()
        # Who slept wakes up and finds out; then nothing is open, without another start.
        while self.sleeping or self.late:
            self.others()
        left_open = [name for name, each in self.brokers.ids.items() if each.state == "Ongoing"]
        assert not left_open, f"left open: {left_open}"
        rows = Counter(self.brokers.visible)
        expected = {
            (batch, task, chunk)
            for batch in range(BATCHES) for task in range(TASKS) for chunk in range(CHUNKS)
        }  # fmt: skip
        assert rows == Counter(expected), f"{rows - Counter(expected)} {Counter(expected) - rows}"

    def others(self) -> None:
        """Somebody who was left behind goes on, or something late arrives."""
        if self.late and (not self.sleeping or self.chance.random() < 0.5):
            deliver_one(self.late, self.chance)
        elif self.sleeping:
            actor = self.chance.choice(self.sleeping)
            actor.step()
            if actor.is_over:
                self.sleeping.remove(actor)

    def drive(self, actor: Actor) -> bool:
        """Let it run to its end, others in between; False where it is left behind or dead."""
        while not actor.is_over:
            kind = self.chance.random()
            if kind < 0.015:
                self.kill(actor)
                return False
            if kind < 0.025:
                self.takeovers += 1
                self.sleeping.append(actor)
                return False
            if kind < 0.1:
                self.others()
            else:
                actor.step()
        assert not isinstance(actor.error, TornBatchError), actor.error
        assert actor.error is None or isinstance(actor.error, ExactlyOnceError), actor.error
        return actor.error is None

    def kill(self, actor: Actor) -> None:
        self.kills += 1
        request = actor.kill()
        if request is not None:
            self.late.append(request)

    def driver(self) -> None:
        """One life of a driver, for one batch."""
        planning = Actor(self.brokers, decisions.begin(PREFIX, two_phase=True, timeout_ms=1))
        if not self.drive(planning):
            return
        run: Run = planning.result
        results = self.tasks(run, self.batch)
        if results is None:
            self.give_up(run)
            return
        if results:
            decision = Decision(QUERY, self.batch, tuple(results))
            if not self.drive(Actor(self.brokers, decisions.commit(run, decision))):
                self.give_up(run)
                return
        if self.chance.random() < 0.9:
            self.batch += 1
        # Else it is killed before Spark notes the batch, which comes again.

    def give_up(self, run: Run) -> None:
        """Spark tells the sink that a batch has failed, where the driver is not dead as a whole."""
        if self.chance.random() < 0.5:
            self.given_up += 1
            self.drive(Actor(self.brokers, decisions.give_up(run, QUERY, self.batch)))

    def tasks(self, run: Run, batch: int) -> list[PreparedTransaction] | None:
        """The first attempt that is through counts; the others are killed, or left behind."""
        results: dict[int, PreparedTransaction | None] = {}
        running: list[tuple[int, Actor]] = []
        started: Counter[int] = Counter()
        while len(results) < TASKS:
            open_tasks = [number for number in range(TASKS) if number not in results]
            startable = [
                number for number in open_tasks
                if sum(each == number for each, _ in running) < 2
                and started[number] < ATTEMPTS
            ]  # fmt: skip
            if startable and (not running or self.chance.random() < 0.05):
                number = self.chance.choice(startable)
                self.unique += 1
                # Attempts are numbered anew when a stage is run again.
                ordinal = started[number] if self.chance.random() < 0.8 else 0
                started[number] += 1
                task = Task(number, ordinal, str(self.unique))
                running.append((number, Actor(self.brokers, attempt(run, batch, task))))
            elif not running:
                return None
            else:
                self.go_on(running, results)
        for _, actor in running:
            if self.chance.random() < 0.5:
                self.kill(actor)
            else:
                self.sleeping.append(actor)
        return [each for each in results.values() if each is not None]

    def go_on(
        self, running: list[tuple[int, Actor]], results: dict[int, PreparedTransaction | None]
    ) -> None:
        number, actor = each = self.chance.choice(running)
        kind = self.chance.random()
        if kind < 0.01:
            self.kill(actor)
            running.remove(each)
            return
        if kind < 0.05:
            self.others()
        else:
            actor.step()
        if actor.is_over:
            running.remove(each)
            if actor.error is None:
                results.setdefault(number, actor.result)


@pytest.fixture(autouse=True)
def _one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a driver can be killed between any two ends."""
    monkeypatch.setattr(decisions, "ENDS_AT_ONCE", 1)


@pytest.mark.parametrize("first", SEEDS[::50])
def test_every_row_is_visible_once_whoever_is_killed_when(first: int) -> None:
    kills = takeovers = given_up = most = 0
    for seed in range(first, first + 50):
        world = World(seed)
        try:
            world.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        kills += world.kills
        takeovers += world.takeovers
        given_up += world.given_up
        most = max(most, len(world.brokers.ids))
    assert kills > 100 and takeovers > 30, f"{kills} kills, {takeovers} left behind"
    assert given_up > 20, f"{given_up} given up"
    # Two attempts of a task at a time, and a few more that were left behind in their first request.
    assert most <= TASKS * (ATTEMPTS + 1), f"{most} transactional ids"


# What a rule is for: without it the worlds above find a batch that is torn or twice


def worlds_without(monkeypatch: pytest.MonkeyPatch, name: str, rule: object) -> int:
    monkeypatch.setattr(decisions, name, rule)
    return failing_worlds()


def failing_worlds() -> int:
    """How many of some worlds come to grief."""
    found = 0
    for seed in range(400):
        try:
            World(seed).run()
        except AssertionError:
            found += 1
    return found


def test_a_mutant_that_ends_what_others_have_granted_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(driver: object) -> Steps[object]:
        found = yield lambda port: port.find()
        return found

    assert worlds_without(monkeypatch, "_find", find)


def test_a_mutant_that_gives_up_what_was_decided_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark has a batch given up whose commit has failed, and the sink aborted what it listed."""

    def give_up(run: Run, query: str, version: int) -> Steps[None]:
        found = yield lambda port: port.find()
        yield from decisions.abort([each.transaction for each in found])

    assert worlds_without(monkeypatch, "give_up", give_up)


def test_a_mutant_that_does_not_look_after_the_losers_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(*_: object) -> Steps[None]:
        yield from ()

    assert worlds_without(monkeypatch, "_end_the_rest", nothing)


def test_a_mutant_whose_attempts_do_not_look_for_their_driver_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def taken(run: Run, name: str, expected: Identity | None) -> Steps[PreparedTransaction]:
        producer = yield lambda port: port.claim(name, expected)
        return PreparedTransaction(name, producer.producer_id, producer.producer_epoch)

    assert worlds_without(monkeypatch, "_taken", taken)


def test_a_mutant_that_takes_ids_whatever_their_epoch_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = Brokers.claim
    monkeypatch.setattr(Brokers, "claim", lambda self, name, _: plain(self, name, None))
    assert failing_worlds()


# Without two-phase transactions


def run_of(*, two_phase: bool = False, granted: dict[str, Identity] | None = None) -> Run:
    return Run(PREFIX, Identity(1, 0), two_phase, 60_000, 0.0, None, granted or {})


class LateBrokers(Brokers):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def seconds(self) -> float:
        return self._seconds


@pytest.mark.parametrize(("seconds", "is_decided"), [(29.0, True), (31.0, False)])
def test_a_batch_is_not_decided_where_a_time_out_could_tear_it(
    seconds: float, is_decided: bool
) -> None:
    brokers = LateBrokers(seconds)
    run, decision = run_of(), Decision(QUERY, 0, ())
    if is_decided:
        decisions.carry_out(decisions.commit(run, decision), brokers)
    else:
        with pytest.raises(ExactlyOnceError, match=r"31000 ms.*timeout.ms=60000.*Nothing"):
            decisions.carry_out(decisions.commit(run, decision), brokers)
    assert bool(brokers.ledger) == is_decided


def test_a_batch_that_a_time_out_has_torn_is_told() -> None:
    brokers = Brokers()
    producer = brokers.claim("q.0.1", None)
    transaction = PreparedTransaction("q.0.1", producer.producer_id, producer.producer_epoch)
    brokers.append(transaction, [(0, 0, 0)])
    brokers.end_one(transaction, commit=False)
    brokers.ledger.append(Decision(QUERY, 7, (transaction,)))
    with pytest.raises(TornBatchError, match=r"batch 7 of query query-1 .* missing"):
        decisions.carry_out(decisions.begin(PREFIX, two_phase=False, timeout_ms=1), brokers)


def test_without_two_phase_transactions_ids_are_not_used_again() -> None:
    brokers = Brokers()
    brokers.claim("q.0.1-0-1", None)
    run = decisions.carry_out(decisions.begin(PREFIX, two_phase=False, timeout_ms=1), brokers)
    assert not run.granted


# Names


def test_the_ids_of_attempts_are_found_and_no_others() -> None:
    task = Task(3, 1, "77")
    name = run_of().new_id(task)
    pattern = re.compile(ids_pattern(PREFIX))
    assert pattern.fullmatch(name)
    for other in (PREFIX, f"{PREFIX}.x", f"{PREFIX}x.3.1-0-77", f"{PREFIX}.b.3.1-0-77"):
        assert not pattern.fullmatch(other)
    granted = {name: Identity(5, 5), f"{PREFIX}.31.1-0-1": Identity(6, 6)}
    assert run_of(granted=granted).ids_of(3) == [name]


def test_a_version_that_was_decided_is_not_written_again_and_another_querys_is() -> None:
    run = Run(PREFIX, Identity(1, 0), True, 1, 0.0, (QUERY, 4))
    assert run.has(QUERY, 4) and run.has(QUERY, 3) and not run.has(QUERY, 5)
    # A fresh checkpoint begins at batch 0 again, as another query.
    assert not run.has("another", 0)
