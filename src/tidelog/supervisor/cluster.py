"""Several brokers on one machine, each a process, around a store that this process owns.

`start` prepares the directory, opens the store, serves it on a Unix socket to this user alone and
starts the brokers. The brokers end with this process, however it ends: the store is gone then.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.config.store_settings import UNIX
from tidelog.errors import StorageError
from tidelog.host.disk import SystemDisk
from tidelog.host.offload import ThreadOffload
from tidelog.storage.local_cluster import SOCKET_FILE
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.port import SessionState
from tidelog.store.served import StoreServer
from tidelog.supervisor.child import BrokerEnded, Child, LineSink, parent_arguments
from tidelog.supervisor.directories import ClusterDirectory

# The kernel takes no longer name for a socket.
_SOCKET_PATH_MAX: Final = 100
# As long as brokers take a session to be (`zookeeper.session.timeout.ms`).
_LEASE_S: Final = 9.0
# Brokers speak with each other on a listener of their own, which only this machine can reach.
BROKER_LISTENER: Final = "BROKER"


class ClientListener(NamedTuple):
    """The listener for clients: its name, and the security protocol that it stands for."""

    name: str = "PLAINTEXT"
    protocol: str = "PLAINTEXT"


OPEN_TO_CLIENTS: Final = ClientListener()


def broker_listeners(host: str, port: int, clients: ClientListener) -> dict[str, str]:
    """The settings of a broker's listeners: one for clients, one for the other brokers.

    Where clients prove who they are, nobody gets around that on the brokers' listener: brokers log
    in there with the key of the cluster. It needs no TLS, because it is on loopback.
    """
    is_open = clients.protocol == "PLAINTEXT"
    protocol = "PLAINTEXT" if is_open else "SASL_PLAINTEXT"
    settings = {
        "listeners": f"{clients.name}://{host}:{port},{BROKER_LISTENER}://127.0.0.1:0",
        "listener.security.protocol.map": f"{clients.name}:{clients.protocol},"
        f"{BROKER_LISTENER}:{protocol}",
        "inter.broker.listener.name": BROKER_LISTENER,
    }
    if not is_open:
        name = f"listener.name.{BROKER_LISTENER.lower()}.sasl.enabled.mechanisms"
        settings[name] = "SCRAM-SHA-512"
    return settings


@dataclass(slots=True, frozen=True)
class ClusterPlan:
    """What to start: `ports` has one for each broker, 0 for any; `arguments` go to each broker."""

    directory: str
    ports: Sequence[int]
    host: str = "127.0.0.1"
    clients: ClientListener = OPEN_TO_CLIENTS
    # HOST:PORT that clients of the first broker are told; the others' ports lie beside it.
    advertised: tuple[str, int] | None = None
    metrics: tuple[str, int] | None = None
    arguments: Sequence[str] = ()
    # The store that the brokers share; None for one of this process's own.
    store: str | None = None
    restart: bool = True
    sink: LineSink = lambda node_id, line: None


class LocalCluster:
    """The brokers of a plan, from `start` to `stop`, on the current event loop."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan
        self._directory = ClusterDirectory(SystemDisk(), os.path.abspath(plan.directory))
        self._store: EmbeddedStore | None = None
        self._server: StoreServer | None = None
        self._server_path = ""
        self._socket_directory: str | None = None
        self._store_lost = asyncio.Event()
        # Where the brokers find their metadata, once it is served.
        self.store_address = plan.store
        self.children: list[Child] = []

    @property
    def bootstrap_servers(self) -> str:
        """Every broker, as a client is given them."""
        return ",".join(each.bootstrap_servers for each in self.children)

    async def start(self) -> None:
        """Start everything; return when every broker serves. BrokerEnded where one does not."""
        plan = self._plan
        try:
            address = self.store_address = plan.store or await self._serve_store()
            self.children = [
                Child(
                    node_id, port, self._command(node_id, address), plan.sink, restart=plan.restart
                )
                for node_id, port in enumerate(plan.ports)
            ]
            await self._start_children()
        except BaseException:
            await self.kill()
            raise

    async def wait_failed(self) -> None:
        """Return never, or raise what makes it pointless to go on."""
        waits = [
            asyncio.ensure_future(self._all_ended()),
            asyncio.ensure_future(self._store_lost.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        if self._store_lost.is_set():
            raise StorageError("the metadata store failed; see the log")
        raise BrokerEnded("no broker is left")

    async def _all_ended(self) -> None:
        for child in self.children:
            await child.ended.wait()

    async def stop(self) -> None:
        """Stop the brokers one after the other, the first one last, and then the store."""
        for child in reversed(self.children):
            await child.stop()
        await self._close_store()

    async def kill(self) -> None:
        """End everything at once."""
        await asyncio.gather(*(child.kill() for child in self.children))
        await self._close_store()

    async def _start_children(self) -> None:
        starts = [asyncio.ensure_future(child.start()) for child in self.children]
        try:
            await asyncio.gather(*starts)
        finally:
            for start in starts:
                start.cancel()
            await asyncio.wait(starts)

    # -- the store --------------------------------------------------------------------------------

    async def _serve_store(self) -> str:
        """Open the shared store and serve it; its address."""
        directory = self._directory
        await asyncio.to_thread(directory.open, len(self._plan.ports))
        offload = ThreadOffload("store", 1)
        store = self._store = await EmbeddedStore.open(
            directory.metadata_path, SystemDisk(), offload, create=directory.is_new
        )
        if directory.is_new:
            await asyncio.to_thread(directory.confirm)
        store.watch_session(self._session_changed)
        path = self._server_path = self._socket_path()
        self._server = StoreServer(store, path, _LEASE_S)
        await self._server.start()
        return f"{UNIX}:{path}"

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._store_lost.set()

    def _socket_path(self) -> str:
        path = os.path.join(self._directory.path, SOCKET_FILE)
        if len(os.fsencode(path)) > _SOCKET_PATH_MAX:
            # Made with access for this user alone.
            self._socket_directory = tempfile.mkdtemp(prefix="tidelog-")
            path = os.path.join(self._socket_directory, SOCKET_FILE)
        elif os.path.exists(path):
            # From a process that was killed: the directory is locked, so nobody serves it.
            os.unlink(path)
        return path

    async def _close_store(self) -> None:
        if self._server is not None:
            await self._server.close()
            self._server = None
            with suppress(OSError):
                os.unlink(self._server_path)
        if self._store is not None:
            await self._store.close()
            self._store = None
        if self._socket_directory is not None:
            shutil.rmtree(self._socket_directory, ignore_errors=True)
            self._socket_directory = None
        self._directory.close()

    # -- a broker's command line ------------------------------------------------------------------

    def _command(self, node_id: int, store: str) -> _Command:
        return _Command(self._plan, node_id, self._directory.broker_path(node_id), store)


@dataclass(slots=True, frozen=True)
class _Command:
    """The command line of one broker, for the port that it is to take."""

    plan: ClusterPlan
    node_id: int
    directory: str
    store: str

    def __call__(self, port: int) -> list[str]:
        plan = self.plan
        settings = broker_listeners(plan.host, port, plan.clients)
        if plan.advertised is not None:
            host, first = plan.advertised
            offset = port - plan.ports[0]
            settings["advertised.listeners"] = f"{plan.clients.name}://{host}:{first + offset}"
        if plan.metrics is not None:
            host, first = plan.metrics
            settings["metrics.listener"] = f"{host}:{first + self.node_id if first else 0}"
        arguments = [
            "--node-id", str(self.node_id), "--data-dir", self.directory, "--store", self.store,
            *parent_arguments(), *plan.arguments,
        ]  # fmt: skip
        for name, value in settings.items():
            arguments += ["--set", f"{name}={value}"]
        return [sys.executable, "-m", "tidelog", "broker", *arguments]
