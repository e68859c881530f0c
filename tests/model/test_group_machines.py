"""The same steps and promises as the seeded models, chosen by Hypothesis, which shrinks what fails.

Steps and what must hold are in `test_group_model` (the classic protocol) and
`test_consumer_group_model` (the newer one); a failure here is a short list of rules.
"""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.model import test_consumer_group_model as newer
from tests.model import test_group_model as classic
from tidelog.errors import KafkaError

EXAMPLES = 60
STEPS = 60
RUNS: dict[str, int] = {"classic": 0, "newer": 0}


class ClassicGroup(RuleBasedStateMachine):
    """Groups of the classic protocol: members join, sync, beat, commit, sleep and go."""

    @initialize(chance=st.randoms(use_true_random=False))
    def begin(self, chance: Random) -> None:
        self.group = classic.Schedule(0, chance)
        RUNS["classic"] += 1

    @rule()
    def add(self) -> None:
        self.group.attempt(self.group.add)

    @rule(times=st.integers(1, 8))
    def advance(self, times: int) -> None:
        for _ in range(times):
            self.group.attempt(self.group.advance)

    @rule()
    def commit(self) -> None:
        self.group.attempt(self.group.commit)

    @rule()
    def beat(self) -> None:
        self.group.attempt(self.group.beat)

    @rule()
    def sleep(self) -> None:
        self.group.attempt(self.group.sleep)

    @rule()
    def leave(self) -> None:
        self.group.attempt(self.group.leave)

    @rule()
    def vanish(self) -> None:
        self.group.attempt(self.group.vanish)

    @rule()
    def restart(self) -> None:
        self.group.attempt(self.group.restart)

    @rule()
    def refuse(self) -> None:
        self.group.attempt(self.group.refuse)

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "group"):
            self.group.check()

    def teardown(self) -> None:
        if hasattr(self, "group"):
            self.group.settle()


class NewerGroup(RuleBasedStateMachine):
    """Groups of the newer protocol: members reconcile, subscribe anew, and topics change."""

    @initialize(chance=st.randoms(use_true_random=False))
    def begin(self, chance: Random) -> None:
        self.group = newer.Schedule(0, chance)
        RUNS["newer"] += 1

    def attempt(self, step: object) -> None:
        try:
            step()  # type: ignore[operator]
        except KafkaError as error:
            assert error.code in newer.EXPECTED, error

    @rule()
    def add(self) -> None:
        self.attempt(self.group.add)

    @rule(times=st.integers(1, 8))
    def move(self, times: int) -> None:
        for _ in range(times):
            self.attempt(self.group.move)

    @rule()
    def commit(self) -> None:
        self.attempt(self.group.commit)

    @rule()
    def lose_answer(self) -> None:
        self.attempt(self.group.lose_answer)

    @rule()
    def sleep(self) -> None:
        self.attempt(self.group.sleep)

    @rule()
    def subscribe(self) -> None:
        self.attempt(self.group.subscribe)

    @rule()
    def grow(self) -> None:
        self.attempt(self.group.grow)

    @rule()
    def replace_topic(self) -> None:
        self.attempt(self.group.replace_topic)

    @rule()
    def leave(self) -> None:
        self.attempt(self.group.leave)

    @rule()
    def static_return(self) -> None:
        self.attempt(self.group.static_return)

    @rule()
    def vanish(self) -> None:
        self.attempt(self.group.vanish)

    @rule()
    def restart(self) -> None:
        self.attempt(self.group.restart)

    @rule()
    def refuse(self) -> None:
        self.attempt(self.group.refuse)

    @rule()
    def take_again(self) -> None:
        self.group.world.is_refusing = False

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "group"):
            self.group.check()

    def teardown(self) -> None:
        if hasattr(self, "group"):
            self.group.come_to_rest()


def run(machine: type[RuleBasedStateMachine], name: str) -> None:
    chosen = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
    run_state_machine_as_test(machine, settings=chosen)
    assert RUNS[name] >= EXAMPLES


def test_groups_of_the_classic_protocol_as_a_state_machine() -> None:
    run(ClassicGroup, "classic")


def test_groups_of_the_newer_protocol_as_a_state_machine() -> None:
    run(NewerGroup, "newer")
