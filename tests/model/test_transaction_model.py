"""The transaction shard against what producers were told, over seeded schedules with failovers.

What must hold: a producer id and epoch is given out once; a decision that is committed is carried
out as it was, and no other for the same transaction; an answered end is never contradicted; what is
open ends by its time-out, or where it is two-phase when somebody comes; and after a load the shard
is what its log says.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.unit.coordinators.transactions.helpers import TIMEOUT_MS, World
from tidelog.coordinators.transactions.ends import Ending
from tidelog.coordinators.transactions.shard import Answer, Decision
from tidelog.coordinators.transactions.transaction import NOBODY, Coming, Producer, State
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition

IDS = ("x", "y", "z")
# Whose transactions no time-out ends, and are taken over at times.
TWO_PHASE_ID = "z"
SEEDS = range(2_000 if os.environ.get("TIDELOG_LONG") else 150)
STEPS = 120
PASSING = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class Model:
    """Producers of both versions of the protocol, and what they know."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.world = World()
        self.producers: dict[str, Producer] = {}
        self.versions = {each: self.chance.choice((1, 2)) for each in IDS}
        self.given: set[tuple[int, int]] = set()
        # What was answered, by the epoch in which the transaction wrote.
        self.answered: dict[tuple[str, Producer], bool] = {}
        self.carried_out: dict[tuple[str, Producer], bool] = {}
        self.committed = 0
        self.taken_over = 0

    def run(self) -> None:
        steps = (self.come, self.add, self.add, self.end, self.end, self.mark, self.wait,
                 self.disturb)  # fmt: skip
        for _ in range(STEPS):
            try:
                self.chance.choice(steps)()
            except KafkaError as error:
                assert error.code in PASSING, error
            self.look()
        self.heal()

    def name(self) -> str:
        return self.chance.choice(IDS)

    def come(self) -> None:
        name = self.name()
        known = self.producers.get(name, NOBODY)
        expected = known if self.chance.random() < 0.3 else NOBODY
        coming = Coming(TIMEOUT_MS, expected)
        if name == TWO_PHASE_ID:
            coming = Coming(0, expected, two_phase=True, keeps=self.chance.random() < 0.8)
        answer = self.world.come(coming, name)
        self.taken_over += answer.ongoing != NOBODY
        if answer.code is ErrorCode.NONE and self.is_committed():
            self.give(name, answer.producer, again=expected != NOBODY)

    def give(self, name: str, producer: Producer, *, again: bool = False) -> None:
        assert again or tuple(producer) not in self.given, f"{producer} is given out twice"
        self.given.add(tuple(producer))
        self.producers[name] = producer

    def add(self) -> None:
        name = self.name()
        if name in self.producers:
            partition = TopicPartition("t", self.chance.randrange(3))
            self.world.add(self.producers[name], partition, transactional_id=name)

    def end(self) -> None:
        name = self.name()
        producer = self.producers.get(name)
        if producer is None:
            return
        committed = self.chance.random() < 0.6
        version = self.versions[name]
        shard, now = self.world.shard, self.world.now
        was = shard.transactions[name].state if name in shard.transactions else None
        answer: Answer = self.world.apply(
            shard.end(name, producer, Ending(committed, version), now)
        )
        if answer.code is not ErrorCode.NONE or not self.is_committed():
            return
        if was is State.ONGOING:
            self.answered[name, self.world.decided[-1].producer] = committed
        if version == 2:
            self.give(name, answer.producer, again=True)

    def is_committed(self) -> bool:
        """Whether an answer would leave now; where not, its producer hears nothing."""
        return not self.world.uncommitted

    def mark(self) -> None:
        """The markers of some decision are written."""
        if self.world.decided:
            decision = self.chance.choice(self.world.decided)
            if self.world.apply(self.world.shard.complete(decision, self.world.now)):
                self.note(decision)

    def note(self, decision: Decision) -> None:
        key = decision.transactional_id, decision.producer
        # Over: in version 1 the next transaction has the same epoch.
        told = self.answered.pop(key, None)
        assert told is None or told == decision.committed, f"{decision} was answered {told}"
        self.carried_out[key] = decision.committed
        self.committed += decision.committed

    def wait(self) -> None:
        self.world.pass_time(self.chance.choice((10, 1_000, TIMEOUT_MS)))

    def disturb(self) -> None:
        world, kind = self.world, self.chance.random()
        if kind < 0.3:
            world.refuses = not world.refuses
        elif kind < 0.6:
            world.commits = not world.commits
            if world.commits:
                world.commit()
        else:
            # What nobody was told of may be lost with its leader.
            loses = self.chance.randint(0, len(world.uncommitted)) if not world.commits else 0
            world.commits = True
            world.fail_over(loses=min(loses, len(world.stored)))

    def look(self) -> None:
        seen: dict[tuple[str, Producer], bool] = {}
        for each in self.world.decided:
            key = each.transactional_id, each.producer
            # In version 1 an epoch has many transactions.
            if each.version == 2:
                assert seen.setdefault(key, each.committed) == each.committed, f"{each} and not"

    def heal(self) -> None:
        world = self.world
        world.refuses, world.commits = False, True
        world.commit()
        for _ in range(5):
            world.pass_time(TIMEOUT_MS)
            if TWO_PHASE_ID in world.shard.transactions:
                world.init(TWO_PHASE_ID)
            for decision in list(world.decided):
                if world.apply(world.shard.complete(decision, world.now)):
                    self.note(decision)
        states = {each.state for each in world.shard.transactions.values()}
        assert not states & {State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}
        before = [str(each.value(each.state, 0)) for each in world.shard.transactions.values()]
        world.fail_over()
        after = [str(each.value(each.state, 0)) for each in world.shard.transactions.values()]
        assert after == before


@pytest.mark.parametrize("first", SEEDS[::50])
def test_the_shard_keeps_its_word(first: int) -> None:
    committed = taken_over = 0
    for seed in range(first, first + 50):
        model = Model(seed)
        try:
            model.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        committed += model.committed
        taken_over += model.taken_over
    assert committed > 20 and taken_over > 5
