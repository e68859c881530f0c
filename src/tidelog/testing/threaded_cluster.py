"""Real brokers of one cluster, all on one thread of this process: they can share a clock.

The metadata is in a store that the brokers have sessions with, or where the settings say.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from functools import partial

from tidelog.config import load
from tidelog.errors import TidelogError
from tidelog.host.disk import SystemDisk
from tidelog.host.host import Host, system_host
from tidelog.host.offload import ThreadOffload
from tidelog.server.broker import Broker
from tidelog.server.first_user import FirstUser
from tidelog.server.passing_time import let_pass
from tidelog.server.process import new_event_loop
from tidelog.server.stores import store_connector
from tidelog.store.embedded import EmbeddedStore
from tidelog.supervisor.cluster import ClientListener, broker_listeners
from tidelog.supervisor.directories import ClusterDirectory
from tidelog.testing.loop_thread import LoopThread
from tidelog.testing.virtual_clock import BrokersClock, VirtualClock

_THREADS_EACH = 2


class ThreadedCluster:
    """Brokers from 0 on, one for each port (0 for any), from `start` to `stop`, with their users;
    called from other threads than theirs."""

    def __init__(
        self,
        directory: str,
        settings: Mapping[str, str],
        clock: VirtualClock,
        ports: Sequence[int],
        secured: tuple[ClientListener, Mapping[str, str]],
    ) -> None:
        self._directory = ClusterDirectory(SystemDisk(), os.path.abspath(directory))
        self._settings = settings
        self._virtual = clock
        self._clock = BrokersClock(0)
        self._ports = list(ports)
        self._clients, users = secured
        self._users = [FirstUser(*each) for each in users.items()]
        self._servers = [""] * len(ports)
        self._brokers: dict[int, Broker] = {}
        self._store: EmbeddedStore | None = None
        self._thread = LoopThread("tidelog-cluster", new_event_loop)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self._servers)

    def start(self) -> None:
        """Return when every broker serves."""
        self._clock = self._virtual.follow(self._let_pass)
        try:
            self._thread.call(self._start(range(len(self._ports))))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self._virtual.unfollow(self._clock)
        self._thread.call(self._stop_all())
        self._thread.close()

    def stop_broker(self, node_id: int) -> None:
        """Stop one in order, where it runs."""
        self._check(node_id)
        self._thread.call(self._stop(node_id))

    def restart(self, node_id: int) -> None:
        self.stop_broker(node_id)
        self._thread.call(self._start([node_id]))

    def _check(self, node_id: int) -> None:
        if not 0 <= node_id < len(self._ports):
            raise TidelogError(
                f"there are brokers 0 to {len(self._ports) - 1}, and no broker {node_id}"
            )

    def _let_pass(self, ms: int) -> None:
        self._thread.call(self._pass(ms))

    async def _pass(self, ms: int) -> None:
        def move() -> None:
            self._clock.ahead_ms += ms

        await let_pass(list(self._brokers.values()), ms, move)

    async def _start(self, node_ids: Sequence[int]) -> None:
        if self._store is None and "store" not in self._settings:
            await self._open_store()
        outcomes = await asyncio.gather(*map(self._start_broker, node_ids), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _open_store(self) -> None:
        directory = self._directory
        directory.open(len(self._ports))
        self._store = await EmbeddedStore.open(
            directory.metadata_path, SystemDisk(), ThreadOffload("store", 1),
            create=directory.is_new,
        )  # fmt: skip
        if directory.is_new:
            directory.confirm()

    async def _start_broker(self, node_id: int) -> None:
        config = load(
            overrides={
                **broker_listeners("127.0.0.1", self._ports[node_id], self._clients),
                **self._settings,
                "node.id": str(node_id),
                "log.dirs": self._directory.broker_path(node_id),
            }
        )
        real = system_host(f"broker-{node_id}", _THREADS_EACH)
        host = Host(self._clock, real.disk, real.offload, real.random)
        connect = store_connector(config, host)
        if self._store is not None:
            connect = partial(EmbeddedStore.new_session, self._store)
        broker = Broker(config, host, connect_store=connect, first_users=self._users)
        await broker.start()
        self._brokers[node_id] = broker
        self._servers[node_id] = broker.bootstrap_servers
        self._ports[node_id] = int(broker.bootstrap_servers.rpartition(":")[2])

    async def _stop(self, node_id: int) -> None:
        broker = self._brokers.pop(node_id, None)
        if broker is not None:
            await broker.stop()

    async def _stop_all(self) -> None:
        for node_id in sorted(self._brokers, reverse=True):
            await self._stop(node_id)
        if self._store is not None:
            await self._store.close()
        self._directory.close()
