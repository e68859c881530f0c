"""Simulated machines: a disk that outlives its broker's lives, and a broker that can be ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.config import load
from tidelog.host.host import Host
from tidelog.server.broker import Broker
from tidelog.testing.disk import CrashMode, SimulatedDisk
from tidelog.testing.memory_store import MemoryStore, MemoryTree
from tidelog.testing.simulation.network import SimulatedNetwork
from tidelog.testing.simulation.nodes import Node, SimulatedLoop
from tidelog.testing.virtual_loop import SeededRandom, VirtualClock, VirtualOffload

PORT: Final = 9092


class World:
    """All machines, the network between them and the store of their metadata."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.network = SimulatedNetwork(loop)
        self.tree = MemoryTree()
        self.machines: dict[int, Machine] = {}

    def machine(self, broker_id: int, settings: Mapping[str, str] | None = None) -> Machine:
        """Another machine, switched off."""
        machine = self.machines[broker_id] = Machine(self, broker_id, settings or {})
        return machine

    def client_host(self) -> Host:
        """What a client outside of all machines stands on."""
        loop = self.loop
        seed = loop.chance.getrandbits(32)
        return Host(
            VirtualClock(loop), SimulatedDisk(seed), VirtualOffload(seed), SeededRandom(seed),
            self.network,
        )  # fmt: skip


class Machine:
    """One machine: its disk, and the life of the broker on it."""

    def __init__(self, world: World, broker_id: int, settings: Mapping[str, str]) -> None:
        self._world = world
        self.broker_id = broker_id
        self.name = f"b{broker_id}"
        self._settings = settings
        self.clock = VirtualClock(world.loop)
        self.disk = SimulatedDisk(world.loop.chance.getrandbits(32), now_ms=self.clock.wall_ms)
        self.node: Node | None = None
        self.broker: Broker | None = None
        self.session: MemoryStore | None = None

    @property
    def is_up(self) -> bool:
        return self.node is not None

    async def start(self) -> None:
        """Start the broker; returns when it serves."""
        assert self.node is None, f"{self.name} runs already"
        node = self.node = self._world.loop.add(self.name)
        await node.start(self._bring_up())

    async def _bring_up(self) -> None:
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
                "listeners": f"PLAINTEXT://{self.name}:{PORT}",
                "log.dirs": "/data",
                "group.initial.rebalance.delay.ms": "0",
                **self._settings,
            }
        )
        broker = self.broker = Broker(config, host, connect_store=self._connect)
        await broker.start()

    async def _connect(self) -> MemoryStore:
        self.session = await self._world.tree.connect()
        return self.session

    async def stop(self) -> None:
        """End the broker in order."""
        assert self.node is not None and self.broker is not None, f"{self.name} is off"
        await self.node.start(self.broker.stop())
        self._off()

    def kill(self) -> None:
        """SIGKILL: what was written stays written. The session lives on until it expires."""
        self._end(CrashMode.KEEP_ALL)

    def cut_power(self, mode: CrashMode = CrashMode.RANDOM) -> None:
        """What was not synced is lost, or not, or in part."""
        self._end(mode)

    def _end(self, mode: CrashMode) -> None:
        assert self.node is not None, f"{self.name} is off"
        self.node.crash()
        self._world.network.crash(self.name)
        self.disk = self.disk.crash(mode)
        self._off()

    def _off(self) -> None:
        if self.session is not None:
            self.session.expire()
        if self.node is not None:
            self.node.is_gone = True
        self.node = self.broker = None
