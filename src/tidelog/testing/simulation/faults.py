"""What can go wrong in a simulated world: each kind of fault is one method, begun and ended.

A fault begins when its method is called and tells how to end it; `None` says that it is over at
once, or could not be begun. Faults that may lose what a machine had not synced are counted against
a budget: as many machines as the least in-sync replicas minus one may be without their records at a
time. `may_lose` asks it.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.testing.disk import CrashMode
from tidelog.testing.memory_store import Loss
from tidelog.testing.simulation.machines import SESSION_S, Machine, World
from tidelog.testing.simulation.network import Hold

End = Callable[[], None]
# The messages of which a late one has lost somebody's records: Produce, Fetch, ListOffsets,
# Metadata, AlterPartition, and those with which brokers follow and ask the controller.
_COMMANDS: Final = (56, 20_002)
_HELD: Final = (0, 1, 2, 3, 20_001, *_COMMANDS)


class Faults:
    """Strikes a world, as chance and a budget let it."""

    def __init__(
        self, world: World, chance: random.Random, may_lose: Callable[[Machine], bool]
    ) -> None:
        self._world = world
        self._chance = chance
        self._may_lose = may_lose
        self._journal = world.journal
        # Nothing goes wrong any more.
        self.is_over = False

    def any_machine(self) -> Machine | None:
        """A machine that is up, not paused and not stopping."""
        up = [each for each in self._world.machines.values() if each.is_steady]
        return self._chance.choice(up) if up else None

    def _struck(self, kind: str, machine: Machine, what: str = "") -> None:
        self._journal.note(f"fault {kind}", machine.name, what)

    # -- processes and machines -------------------------------------------------------------------

    def kill(self, machine: Machine) -> End | None:
        """SIGKILL, and a start after a while: before the session expires, or after it."""
        self._struck("kill", machine)
        machine.kill()
        return None

    def cut_power(self, machine: Machine) -> End | None:
        """What was not synced is lost, torn or reordered."""
        if not self._may_lose(machine):
            return None
        mode = self._chance.choice((CrashMode.RANDOM, CrashMode.LOSE_ALL, CrashMode.RANDOM))
        self._struck("power cut", machine, mode.value)
        machine.cut_power(mode)
        return None

    def cut_power_in_a_call(self, machine: Machine) -> End | None:
        """The power goes in the middle of what the disk does next."""
        if not self._may_lose(machine):
            return None
        self._struck("power cut in a call", machine)
        disk = machine.disk
        disk.fail_at(disk.calls + self._chance.randint(1, 40), "crash")
        return None

    def wipe(self, machine: Machine) -> End | None:
        """The machine comes back with an empty disk, where others have its records."""
        if len(self._world.machines) == 1 or not self._may_lose(machine):
            return None
        self._struck("wipe", machine)
        machine.wipe()
        return None

    def pause(self, machine: Machine) -> End | None:
        """SIGSTOP for a moment, or past the session."""
        self._struck("pause", machine)
        machine.pause()
        node = machine.node

        def end() -> None:
            if machine.node is node:
                machine.resume()

        return end

    def stop(self, machine: Machine) -> End | None:
        """A clean stop; the keeper starts it again."""
        if not machine.is_serving:
            return None
        self._struck("clean stop", machine)
        machine.begin_stop()
        return None

    # -- disks ------------------------------------------------------------------------------------

    def fail_write(self, machine: Machine) -> End | None:
        """One of the next writes fails, or is done in part."""
        if not self._may_lose(machine):
            return None
        # A disk that failed once is not believed again: its broker counts as one without records.
        machine.has_bad_disk = True
        self._struck("failed write", machine)
        machine.disk.fail_next("pwritev", errno.EIO, after=self._chance.randint(0, 30))
        return None

    def fail_sync(self, machine: Machine) -> End | None:
        if not self._may_lose(machine):
            return None
        # A disk that failed once is not believed again: its broker counts as one without records.
        machine.has_bad_disk = True
        self._struck("failed sync", machine)
        name = self._chance.choice(("fdatasync", "fdatasync", "sync_dir"))
        machine.disk.fail_next(name, errno.EIO, after=self._chance.randint(0, 10))
        return None

    def fill_disk(self, machine: Machine) -> End | None:
        disk = machine.disk
        self._struck("full disk", machine)
        disk.capacity_bytes = disk.used_bytes() + self._chance.randint(0, 4_000)

        def end() -> None:
            disk.capacity_bytes = None

        return end

    # -- the store --------------------------------------------------------------------------------

    def expire_session(self, machine: Machine) -> End | None:
        """The session ends though the machine is well."""
        session = machine.session
        if session is None or not session.is_alive:
            return None
        self._struck("session lost", machine)
        session.expire()
        return None

    def cut_store(self, machine: Machine) -> End | None:
        """Out of touch with the store: for a moment, or past the session."""
        if machine.is_store_cut:
            return None
        self._struck("store cut", machine)
        machine.cut_store()
        return machine.heal_store

    def lose_transaction(self, machine: Machine) -> End | None:
        """The connection breaks before one of the next transactions is done, or after it."""
        if machine.session is None:
            return None
        loss = self._chance.choice((Loss.BEFORE, Loss.AFTER))
        self._struck(f"store loss {loss.name.lower()}", machine)
        machine.session.losses += [*[None] * self._chance.randint(0, 2), loss]
        return None

    def lag_store(self, machine: Machine) -> End | None:
        """Its reads are answered from an older state until it asks for the newest."""
        if machine.session is None:
            return None
        self._struck("stale store", machine)
        machine.session.lag = self._chance.randint(1, 4)
        return None

    def slow_store(self, machine: Machine) -> End | None:
        session = machine.session
        if session is None:
            return None
        self._struck("slow store", machine)
        usual, session.delay = session.delay, lambda: self._chance.uniform(0.05, 1.0)

        def end() -> None:
            session.delay = usual

        return end

    # -- the network ------------------------------------------------------------------------------

    def cut_one_way(self, machine: Machine) -> End | None:
        """Nothing gets from this machine to another, or the other way."""
        other = self._other(machine)
        if other is None:
            return None
        pair = [machine.name, other.name]
        self._chance.shuffle(pair)
        self._struck("one-way cut", machine, f"{pair[0]} to {pair[1]}")
        return self._cut([(pair[0], pair[1])])

    def isolate(self, machine: Machine) -> End | None:
        """Cut off from all other brokers, both ways; clients and the store still reach it."""
        if self._other(machine) is None:
            return None
        self._struck("isolated", machine)
        return self._cut(self._links_of(machine))

    def swizzle(self, machine: Machine) -> End | None:
        """Links are cut one after the other, and heal one after the other in another order."""
        names = [each.name for each in self._world.machines.values()]
        links = [(one, two) for one in names for two in names if one != two]
        if not links:
            return None
        self._struck("swizzle", machine)
        chosen = self._chance.sample(links, self._chance.randint(1, len(links)))
        network, loop = self._world.network, self._world.loop

        def cut(one: str, two: str) -> None:
            if not self.is_over:
                network.cut(one, two)

        for index, (one, two) in enumerate(chosen):
            loop.later(index * self._chance.uniform(0, 0.5), partial(cut, one, two))
        self._chance.shuffle(chosen)

        def end() -> None:
            for index, (one, two) in enumerate(chosen):
                delay = index * self._chance.uniform(0, 0.5)
                loop.later(delay, partial(network.heal, one, two))

        return end

    def lose_packets(self, machine: Machine) -> End | None:
        links = [self._world.network.link(*each) for each in self._links_of(machine)]
        if not links:
            return None
        self._struck("lossy link", machine)
        for link in links:
            link.loss = self._chance.uniform(0.05, 0.4)

        def end() -> None:
            for link in links:
                link.loss = 0.0

        return end

    def break_connections(self, machine: Machine) -> End | None:
        """Every connection between this machine and another is reset."""
        hosts = [each.name for each in self._world.machines.values() if each is not machine]
        hosts += self._world.client_names
        self._struck("reset", machine)
        self._world.network.break_connections(machine.name, self._chance.choice(hosts))
        return None

    def hold_proposal(self, machine: Machine) -> End | None:
        """The next command that this machine sends to the controller, or its answer, is kept back:
        a change of an ISR then is decided late, or is under way for long."""
        return self._hold(machine, self._chance.choice(_COMMANDS))

    def hold(self, machine: Machine) -> End | None:
        """The next message of one kind, from or to this machine, is kept back."""
        return self._hold(machine, self._chance.choice(_HELD))

    def _hold(self, machine: Machine, key: int) -> End:
        is_answer = self._chance.random() < 0.5
        self._struck("held message", machine, f"api {key}, {'answer' if is_answer else 'request'}")
        network = self._world.network
        hold = network.hold(Hold(key, is_answer, machine.name))
        return lambda: network.release(hold)

    # -- clocks -----------------------------------------------------------------------------------

    def jump_clock(self, machine: Machine) -> End | None:
        ms = self._chance.choice((-3_600_000, -5_000, 5_000, 3_600_000, 86_400_000))
        self._struck("clock jump", machine, f"{ms} ms")
        machine.clock.jump(ms)
        return None

    # -- helpers ----------------------------------------------------------------------------------

    def duration(self) -> float:
        """How long a fault lasts that has an end: a moment, or past the session."""
        chance = self._chance
        return chance.choice((chance.uniform(0.01, 0.5), chance.uniform(0.5, SESSION_S),
                              chance.uniform(SESSION_S, 2 * SESSION_S)))  # fmt: skip

    def _other(self, machine: Machine) -> Machine | None:
        others = [each for each in self._world.machines.values() if each is not machine]
        return self._chance.choice(others) if others else None

    def _links_of(self, machine: Machine) -> list[tuple[str, str]]:
        others = [each.name for each in self._world.machines.values() if each is not machine]
        pairs = [(machine.name, other) for other in others]
        return pairs + [(other, machine.name) for other in others]

    def _cut(self, links: list[tuple[str, str]]) -> End:
        network = self._world.network
        for source, target in links:
            network.cut(source, target)

        def end() -> None:
            for source, target in links:
                network.heal(source, target)

        return end
