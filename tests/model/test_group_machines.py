"""The same steps and promises as the seeded models, chosen by Hypothesis, which shrinks what fails.

Steps and what must hold are in `test_classic_group_model` (classic groups) and
`test_consumer_group_model` (consumer groups); a failure here is a short list of rules.
"""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from tests.model import test_classic_group_model as classic
from tests.model import test_consumer_group_model as consumer

EXAMPLES = 60
STEPS = 60
CLASSIC_STEPS = (
    "add", "advance", "commit", "beat", "sleep", "leave", "vanish", "restart", "refuse",
)  # fmt: skip
NEWER_STEPS = (
    "add", "move", "commit", "lose_answer", "sleep", "subscribe", "grow", "replace_topic",
    "leave", "static_return", "vanish", "restart", "refuse",
)  # fmt: skip
RUNS: dict[str, int] = {"classic": 0, "consumer": 0}


class ClassicGroup(RuleBasedStateMachine):
    """Groups of the classic protocol: members join, sync, beat, commit, sleep and go."""

    @initialize(chance=st.randoms(use_true_random=False))
    def begin(self, chance: Random) -> None:
        self.group = classic.Schedule(0, chance)
        RUNS["classic"] += 1

    @rule(step=st.sampled_from(CLASSIC_STEPS), times=st.integers(1, 6))
    def act(self, step: str, times: int) -> None:
        for _ in range(times):
            self.group.attempt(getattr(self.group, step))
            self.group.check()

    def teardown(self) -> None:
        if hasattr(self, "group"):
            self.group.settle()


class ConsumerGroup(RuleBasedStateMachine):
    """Consumer groups: members reconcile, subscribe anew, and topics change."""

    @initialize(chance=st.randoms(use_true_random=False))
    def begin(self, chance: Random) -> None:
        self.group = consumer.Schedule(0, chance)
        RUNS["consumer"] += 1

    @rule(step=st.sampled_from(NEWER_STEPS), times=st.integers(1, 6))
    def act(self, step: str, times: int) -> None:
        for _ in range(times):
            self.group.attempt(getattr(self.group, step))
            self.group.check()

    @rule()
    def take_again(self) -> None:
        self.group.world.is_refusing = False

    def teardown(self) -> None:
        if hasattr(self, "group"):
            self.group.come_to_rest()


def run(machine: type[RuleBasedStateMachine], name: str) -> None:
    chosen = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
    run_state_machine_as_test(machine, settings=chosen)
    assert RUNS[name] >= EXAMPLES


def test_groups_of_the_classic_protocol_as_a_state_machine() -> None:
    run(ClassicGroup, "classic")


def test_consumer_groups_as_a_state_machine() -> None:
    run(ConsumerGroup, "consumer")
