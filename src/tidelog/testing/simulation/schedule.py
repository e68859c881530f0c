"""When what goes wrong: a seeded schedule of faults, and a keeper that starts what has ended.

A profile weighs the kinds of faults; each seed draws one. Uniform chance finds most of what is
wrong and misses the rest, so some profiles are biased: they strike right after a change of state,
or keep one message back until a leader has changed. When the time is over, `heal` ends every fault
and starts every machine, so that liveness can be judged.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from tidelog.testing.simulation.faults import End, Faults
from tidelog.testing.simulation.journal import Entry
from tidelog.testing.simulation.machines import SESSION_S, Machine, World

_PROCESSES: Final = {"kill": 6, "pause": 4, "stop": 2}
_POWER: Final = {"cut_power": 5, "cut_power_in_a_call": 3, "wipe": 1}
_DISKS: Final = {"fail_write": 1, "fail_sync": 1, "fill_disk": 1}
_STORE: Final = {
    "expire_session": 2, "cut_store": 3, "lose_transaction": 3, "lag_store": 2, "slow_store": 1,
}  # fmt: skip
_NETWORK: Final = {
    "cut_one_way": 3, "isolate": 3, "swizzle": 1, "lose_packets": 1, "break_connections": 2,
}  # fmt: skip
_CLOCKS: Final = {"jump_clock": 1}
_WATCH_S: Final = 0.5

# The kinds of faults of each profile, with their weights.
PROFILES: Final[dict[str, dict[str, int]]] = {
    "mixed": {**_PROCESSES, **_POWER, **_DISKS, **_STORE, **_NETWORK, **_CLOCKS, "hold": 2},
    "crashes": {**_PROCESSES, **_POWER},
    "network": {**_NETWORK, "pause": 2, "hold": 3},
    "store": {**_STORE, "kill": 2, "pause": 2},
    "disks": {**_DISKS, **_POWER, "kill": 2},
    "held": {"hold": 6, "kill": 2, "isolate": 2, "expire_session": 1},
    "proposals": {
        "hold_proposal": 8,
        "lose_packets": 3,
        "cut_one_way": 3,
        "pause": 3,
        "isolate": 2,
        "kill": 1,
    },
    "after changes": {**_PROCESSES, "cut_power": 3, "break_connections": 2, "isolate": 1},
}
# Changes right after which a biased schedule strikes.
_CHANGES: Final = (
    "leader epoch", "truncated", "isr", "committed", "controller", "serving", "boot", "recovered",
)  # fmt: skip


class Schedule:
    """Strikes a world for a while, and keeps its machines running."""

    def __init__(
        self, world: World, seed: int, may_lose: Callable[[Machine], bool], profile: str = ""
    ) -> None:
        self._world = world
        # By seed, to have a failure again.
        self._chance = random.Random(f"{seed}/faults")  # nosec B311
        self.profile = profile or self._chance.choice(list(PROFILES))
        self._faults = Faults(world, self._chance, may_lose)
        self._ends: list[End] = []
        self._is_over = False
        self._gap_s = self._chance.choice((0.2, 0.5, 1.5))
        for machine in world.machines.values():
            machine.on_death = self._keep

    async def run(self, seconds: float) -> None:
        """Strike now and then."""
        until = self._world.loop.now + seconds
        if self.profile == "after changes":
            self._lie_in_wait()
        while self._world.loop.now < until:
            await asyncio.sleep(self._chance.expovariate(1 / self._gap_s))
            machine = self._faults.any_machine()
            if machine is not None and self.profile != "after changes":
                self._strike(machine)
            self._keep_all()

    def heal(self) -> None:
        """End every fault and start every machine; nothing goes wrong from now on."""
        self._is_over = self._faults.is_over = True
        self._world.journal.forget_triggers()
        for end in self._ends:
            end()
        self._ends.clear()
        self._world.network.heal_all()
        for machine in self._world.machines.values():
            machine.disk.forget_faults()
            machine.heal_store()
            if machine.session is not None:
                machine.session.losses.clear()
            if machine.node is not None and machine.node.is_paused:
                machine.resume()
        self._watch()

    # -- striking ---------------------------------------------------------------------------------

    def _strike(self, machine: Machine) -> None:
        weights = PROFILES[self.profile]
        (kind,) = self._chance.choices(list(weights), list(weights.values()))
        end: End | None = getattr(self._faults, kind)(machine)
        if end is not None:
            self._ends.append(end)
            self._world.loop.later(self._faults.duration(), lambda: self._finish(end))

    def _finish(self, end: End) -> None:
        if end in self._ends:
            self._ends.remove(end)
            end()

    def _lie_in_wait(self) -> None:
        """Wait for the n-th change of some kind, and strike whom it happened to, or another."""
        kind = self._chance.choice(_CHANGES)

        def strike(entry: Entry) -> None:
            # Not in the middle of the step, but before anything else happens.
            self._world.loop.call_first(lambda: self._struck_after(entry))

        self._world.journal.when(kind, self._chance.randint(1, 6), strike)

    def _struck_after(self, entry: Entry) -> None:
        if self._is_over:
            return
        named = [each for each in self._world.machines.values() if each.name == entry.who]
        machine = self._faults.any_machine()
        if named and named[0].is_steady and self._chance.random() < 0.7:
            machine = named[0]
        if machine is not None:
            self._strike(machine)
        self._keep_all()
        self._lie_in_wait()

    # -- keeping machines running -----------------------------------------------------------------

    def _keep_all(self) -> None:
        for machine in self._world.machines.values():
            if machine.node is None and not machine.is_awaited:
                self._keep(machine)

    def _watch(self) -> None:
        """Go on starting what ends: a clean stop that was under way, say."""
        self._keep_all()
        self._world.loop.later(_WATCH_S, self._watch)

    def _keep(self, machine: Machine) -> None:
        """Start a machine that has ended, soon or after its session."""
        if machine.is_awaited:
            return
        machine.is_awaited = True
        chance = self._chance
        delay = chance.choice((chance.uniform(0.01, 1), chance.uniform(1, 1.5 * SESSION_S)))

        def start() -> None:
            machine.is_awaited = False
            if machine.node is None:
                machine.boot_up()

        self._world.loop.later(1.0 if self._is_over else delay, start)
