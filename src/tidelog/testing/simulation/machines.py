"""Simulated machines: a disk that outlives its broker's lives, and a broker that can be ended.

A `World` has machines, the network between them and the store of their metadata. A machine runs the
real `Broker`. What ends a process in reality ends it here: a failed start, a store that is lost for
good. Whether it is started again is up to whoever keeps the world, see `boot`.

Where its session with the store is concerned, a machine may be killed, paused or cut off: the
ensemble then ends the session after its time, and the broker learns of that as late as it would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.config import load
from tidelog.host.host import Host
from tidelog.server.broker import Broker
from tidelog.testing.disk import CrashMode, SimulatedDisk
from tidelog.testing.memory_store import MemoryStore, MemoryTree
from tidelog.testing.simulation.journal import Journal
from tidelog.testing.simulation.network import SimulatedNetwork
from tidelog.testing.simulation.nodes import Node, SimulatedLoop
from tidelog.testing.virtual_loop import SeededRandom, VirtualClock, VirtualOffload

PORT: Final = 9092
BROKER_PORT: Final = 9093
SESSION_S: Final = 9.0
_DATA: Final = "/data"


class World:
    """All machines, the network between them and the store of their metadata."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.journal = Journal(loop)
        self.network = SimulatedNetwork(loop)
        self.tree = MemoryTree()
        self.tree.post = self._post
        self.machines: dict[int, Machine] = {}
        self._owners: dict[int, Machine] = {}
        self._told_at: dict[int, float] = {}
        self._clients = 0
        self._by_name: dict[str, Machine] = {}
        # Told of a machine whose life is about to end, and what of its disk will be left.
        self.on_end: Callable[[Machine, CrashMode], None] = lambda machine, mode: None
        # Told after every step of a machine.
        self.on_step: Callable[[Machine], None] = lambda machine: None
        loop.after_step = self._stepped

    def machine(self, broker_id: int, settings: Mapping[str, str] | None = None) -> Machine:
        """Another machine, switched off."""
        machine = self.machines[broker_id] = Machine(self, broker_id, settings or {})
        self._by_name[machine.name] = machine
        return machine

    def _stepped(self, node: Node) -> None:
        machine = self._by_name.get(node.name)
        if machine is None or machine.node is not node:
            return
        if machine.disk.down:
            # The power went in the middle of a call.
            machine.cut_power()
        else:
            self.on_step(machine)

    @property
    def servers(self) -> str:
        """The bootstrap list of all brokers."""
        return ",".join(f"{each.name}:{PORT}" for each in self.machines.values())

    @property
    def client_names(self) -> list[str]:
        """The hosts of all clients that ever were."""
        return [f"c{number + 1}" for number in range(self._clients)]

    def client_node(self) -> Node:
        """A machine for a client, which is part of the world and never fails by itself."""
        self._clients += 1
        return self.loop.add(f"c{self._clients}")

    def client_host(self) -> Host:
        """What a client stands on that is not on any broker's machine."""
        loop = self.loop
        seed = loop.chance.getrandbits(32)
        return Host(
            VirtualClock(loop), SimulatedDisk(seed), VirtualOffload(seed), SeededRandom(seed),
            self.network,
        )  # fmt: skip

    async def open_session(self, machine: Machine) -> MemoryStore:
        store = await self.tree.connect()
        self._owners[store.session] = machine
        chance = self.loop.chance
        store.delay = lambda: chance.uniform(0.0002, 0.002)
        return store

    def _post(self, store: MemoryStore, call: Callable[[], None]) -> None:
        """Have a session's owner told of something, after a moment, and at its own machine."""
        owner = self._owners.get(store.session)
        node = None if owner is None else owner.node
        if node is None or owner is None or owner.session is not store:
            return
        at = self.loop.now + self.loop.chance.uniform(0.0001, 0.003)
        # What one session is told comes in order.
        at = max(at, self._told_at.get(store.session, 0.0) + 1e-6)
        self._told_at[store.session] = at

        def tell() -> None:
            if not node.is_gone:
                node.run(self.loop.call_soon, call)

        self.loop.later(at - self.loop.now, tell)


class Machine:
    """One machine: its disk, its clock, and the life of the broker on it."""

    def __init__(self, world: World, broker_id: int, settings: Mapping[str, str]) -> None:
        self._world = world
        self._journal = world.journal
        self.broker_id = broker_id
        self.name = f"b{broker_id}"
        self.settings = dict(settings)
        self.clock = VirtualClock(world.loop)
        self.clock_rate = 1.0
        self.clock_offset = 0.0
        self.disk = self._new_disk()
        self.node: Node | None = None
        self.broker: Broker | None = None
        self.session: MemoryStore | None = None
        self._store_in_reach = asyncio.Event()
        self._store_in_reach.set()
        # Another number after every loss of power.
        self.boot = 1
        self.life = 0
        # The life that begins, or began, with an empty disk.
        self.empty_life = 1
        # One of its calls to the disk fails, or has failed, in this life.
        self.has_bad_disk = False
        # Somebody is about to start it.
        self.is_awaited = False
        # Told of a process that ended by itself.
        self.on_death: Callable[[Machine], None] = lambda machine: None
        self._serving: asyncio.Future[None] | None = None
        self.is_stopping = False

    def _new_disk(self) -> SimulatedDisk:
        return SimulatedDisk(self._world.loop.chance.getrandbits(32), now_ms=self.clock.wall_ms)

    @property
    def is_up(self) -> bool:
        return self.node is not None

    @property
    def is_store_cut(self) -> bool:
        return not self._store_in_reach.is_set()

    @property
    def is_serving(self) -> bool:
        """Whether its broker has started."""
        serving = self._serving
        return self.node is not None and serving is not None and serving.done()

    @property
    def is_steady(self) -> bool:
        """Whether it is up, and neither paused nor stopping."""
        return self.node is not None and not self.node.is_paused and not self.is_stopping

    # -- the life of a process --------------------------------------------------------------------

    def boot_up(self) -> asyncio.Future[None]:
        """Start the broker; the future is done when it serves."""
        assert self.node is None, f"{self.name} runs already"
        self._world.network.light(self.name)
        node = self.node = self._world.loop.add(self.name)
        node.clock_rate, node.clock_offset = self.clock_rate, self.clock_offset
        self.life += 1
        self._journal.note("boot", self.name, f"life {self.life}")
        serving = self._serving = asyncio.get_running_loop().create_future()
        node.start(self._live(serving))
        return serving

    async def start(self) -> None:
        """Start the broker; returns when it serves."""
        await self.boot_up()

    async def _live(self, serving: asyncio.Future[None]) -> None:
        """What the process does, from its start to its end."""
        try:
            broker = await self._bring_up()
            self._journal.note("serving", self.name)
            serving.set_result(None)
            await broker.wait_failed()
            reason = "the broker gave up"
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        if not serving.done():
            serving.set_exception(RuntimeError(f"{self.name} did not start: {reason}"))
            # Whoever does not wait for it need not look at it.
            serving.exception()
        if not self.is_stopping:
            self._die(reason)

    def _die(self, reason: str) -> None:
        self._journal.note("death", self.name, reason)
        self._end(CrashMode.KEEP_ALL)
        self.on_death(self)

    async def _bring_up(self) -> Broker:
        chance = self._world.loop.chance
        host = Host(
            self.clock,
            self.disk,
            VirtualOffload(chance.getrandbits(32), delay_seconds=0.005),
            SeededRandom(chance.getrandbits(32)),
            self._world.network,
        )
        config = load(
            overrides={
                "node.id": str(self.broker_id),
                "listeners": f"PLAINTEXT://{self.name}:{PORT},BROKER://{self.name}:{BROKER_PORT}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKER:PLAINTEXT",
                "inter.broker.listener.name": "BROKER",
                "allow.plaintext.listeners": "true",
                "log.dirs": _DATA,
                "group.initial.rebalance.delay.ms": "0",
                # Its writes would take part in the schedules, which are about other things.
                "audit.log.enable": "false",
                **self.settings,
            }
        )
        broker = self.broker = Broker(config, host, connect_store=self._connect)
        await broker.start()
        return broker

    async def stop(self) -> None:
        """End the broker in order."""
        assert self.node is not None and self.broker is not None, f"{self.name} is off"
        node = self.node
        self.is_stopping = True
        await node.start(self.broker.stop())
        if self.node is node:
            self._world.on_end(self, CrashMode.KEEP_ALL)
            self.has_bad_disk = False
            if self.session is not None:
                self.session.expire()
            self._off()

    def begin_stop(self) -> None:
        """As `stop`, without waiting: a kill in the middle of it abandons the rest."""
        task = self._world.loop.create_task(self.stop())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def kill(self) -> None:
        """SIGKILL: what was written stays written. The session lives on until it expires."""
        self._end(CrashMode.KEEP_ALL)

    def cut_power(self, mode: CrashMode = CrashMode.RANDOM) -> None:
        """What was not synced is lost, or not, or in part; nobody is told."""
        self.boot += 1
        self._end(mode, silent=True)

    def wipe(self) -> None:
        """The power goes, and the machine gets an empty disk."""
        self.cut_power(CrashMode.LOSE_ALL)
        told, self.disk = self.disk.on_removal, self._new_disk()
        self.disk.on_removal = told
        self.empty_life = self.life + 1

    def _end(self, mode: CrashMode, *, silent: bool = False) -> None:
        assert self.node is not None, f"{self.name} is off"
        self._world.on_end(self, mode)
        self.has_bad_disk = False
        self.node.crash()
        self._world.network.crash(self.name, silent=silent)
        self.disk = self.disk.crash(mode)
        if self.session is not None:
            self._orphan(self.session)
        self._off()

    def _orphan(self, session: MemoryStore) -> None:
        """The ensemble waits for the rest of the session's time, then ends it."""
        if session.is_alive:
            session.abandon()
            left = SESSION_S * self._world.loop.chance.uniform(2 / 3, 1)
            self._world.loop.later(left, session.expire_unseen)

    def _off(self) -> None:
        if self.node is not None:
            self.node.is_gone = True
        self.node = self.broker = self.session = self._serving = None
        self.is_stopping = False

    # -- pauses, and the session with the store ---------------------------------------------------

    def pause(self) -> None:
        """SIGSTOP: its kernel goes on, the process does not; its session is kept by nobody."""
        assert self.node is not None, f"{self.name} is off"
        self.node.is_paused = True
        self._lose_touch()

    def resume(self) -> None:
        """SIGCONT; a session that ended meanwhile is found lost."""
        if self.node is not None:
            self.node.is_paused = False
        if not self.is_store_cut:
            self._regain_touch()

    def cut_store(self) -> None:
        """It and the store do not reach each other."""
        self._store_in_reach.clear()
        self._lose_touch()

    def heal_store(self) -> None:
        self._store_in_reach.set()
        if self.node is None or not self.node.is_paused:
            self._regain_touch()

    def _lose_touch(self) -> None:
        session = self.session
        if session is None or not session.is_alive:
            return
        session.suspend()
        left = SESSION_S * self._world.loop.chance.uniform(2 / 3, 1)

        def expire() -> None:
            # Unless it came back in time, and perhaps is out of touch again.
            if session.touch == touch and session.is_alive:
                self._journal.note("session expired", self.name)
                session.expire_unseen()

        touch = session.touch
        self._world.loop.later(left, expire)

    def _regain_touch(self) -> None:
        if self.session is not None:
            self.session.resume()

    async def _connect(self) -> MemoryStore:
        await self._store_in_reach.wait()
        self.session = await self._world.open_session(self)
        return self.session
