"""A broker is killed at a chosen step of a transaction's end, and is back a moment later.

The steps are counted from the record of the decision to that of the end, over all brokers: with one
run for each, a kill comes between any two things that are done for it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from tests.sim.observer import Observer
from tests.sim.run import Outcome, Plan, run_seed
from tests.sim.transaction_clients import TOPIC
from tidelog.cluster.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.model import TopicPartition
from tidelog.testing.simulation.journal import Entry
from tidelog.testing.simulation.machines import Machine, World

_BACK_S = 1.0


class Victim(Enum):
    """Who is killed: whoever leads this when the transaction ends."""

    COORDINATOR = TopicPartition(TRANSACTIONS_TOPIC, 0)
    LEADER = TopicPartition(TOPIC, 0)
    GROUP_COORDINATOR = TopicPartition(OFFSETS_TOPIC, 0)


class Kill:
    """Kills one broker at a step; put it into a plan as what prepares the world."""

    def __init__(self, victim: Victim, at_step: int) -> None:
        self._victim = victim
        self._at_step = at_step
        self._steps = -1
        self._is_over = False
        self.has_struck = False

    def prepare(self, world: World, observer: Observer) -> None:
        before = world.on_step

        def stepped(machine: Machine) -> None:
            before(machine)
            if self._steps < 0 or self.has_struck or self._is_over:
                return
            if self._steps == self._at_step:
                self.has_struck = True
                # Not in the middle of the step, but before anything else happens.
                world.loop.call_first(lambda: self._strike(world, observer))
            self._steps += 1

        def ends(_: Entry) -> None:
            for state in ("PrepareCommit", "PrepareAbort"):
                world.journal.when(f"{state} appended", 1, begin)

        def begin(_: Entry) -> None:
            self._steps = max(self._steps, 0)
            for state in ("CompleteCommit", "CompleteAbort"):
                world.journal.when(f"{state} committed", 1, end)

        def end(_: Entry) -> None:
            self._is_over = True

        world.on_step = stepped
        world.journal.when("transaction ends", 1, ends)

    def _strike(self, world: World, observer: Observer) -> None:
        ghost = observer.find(self._victim.value)
        assert ghost is not None and ghost.state is not None
        machine = world.machines[ghost.state.leader]
        if machine.node is None:
            return
        world.journal.note("killed on the way", machine.name, f"step {self._at_step}")
        machine.kill()
        world.loop.later(_BACK_S, _boot(machine))


def _boot(machine: Machine) -> Callable[[], None]:
    def boot() -> None:
        if machine.node is None:
            machine.boot_up()

    return boot


def run_kill(script: str, victim: Victim, at_step: int) -> tuple[Outcome, bool]:
    """Play a script with a kill; and whether there was such a step."""
    kill = Kill(victim, at_step)
    outcome = run_seed(1, Plan(3, script=script, prepare=kill.prepare))
    return outcome, kill.has_struck
