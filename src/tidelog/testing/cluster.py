"""Real brokers, each a process of its own, to be killed and started again by tests."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress

from tidelog.client.admin import describe_topic
from tidelog.client.blocking import Client
from tidelog.client.security import read_security
from tidelog.client.settings import ClientSettings
from tidelog.config.local_defaults import LOCAL_DEFAULTS
from tidelog.errors import TidelogError
from tidelog.supervisor.child import Child
from tidelog.supervisor.cluster import ClientListener, ClusterPlan, LocalCluster
from tidelog.testing.loop_thread import LoopThread
from tidelog.testing.security import Secured, Security
from tidelog.testing.settings import (
    SettingValue,
    StrPath,
    path_text,
    setting_texts,
)
from tidelog.testing.threaded_cluster import ThreadedCluster
from tidelog.testing.virtual_clock import CLOCK_DEFAULTS, VirtualClock

_REPLICATION_MAX = 3


class Cluster(Secured):
    """Brokers on free ports of the loopback, in a temporary directory unless one is given.

    >>> with Cluster(brokers=3) as cluster:
    ...     cluster.bootstrap_servers
    '127.0.0.1:...,127.0.0.1:...,127.0.0.1:...'

    Topics have three replicas, or as many as there are brokers, unless a test says otherwise.
    Settings are Kafka's, as for `Broker`. The metadata is in a store that this process serves, or
    where `store` says: `store=ensemble.address` of a `ZooKeeper`. A broker that is killed or
    stopped stays away until `restart`.

    With `security`, a protocol or a `Security`, clients prove who they are, as with `Broker`;
    `client_settings` and `librdkafka_settings` say how.

    With a `clock`, tests let time pass. The brokers then share one thread of this process, so none
    can be killed or paused, and they date records themselves unless the settings say otherwise.
    """

    def __init__(  # noqa: PLR0913 - one keyword for each thing that a test may choose
        self,
        brokers: int = 3,
        *,
        data_dir: StrPath | None = None,
        settings: Mapping[str, SettingValue] | None = None,
        store: str | None = None,
        clock: VirtualClock | None = None,
        security: Security | str | None = None,
    ) -> None:
        super().__init__(security)
        self._count = brokers
        self._data_dir = None if data_dir is None else path_text("data_dir", data_dir)
        factor = str(min(_REPLICATION_MAX, brokers))
        self._settings = {
            **LOCAL_DEFAULTS,
            **(CLOCK_DEFAULTS if clock is not None else {}),
            "default.replication.factor": factor,
            "offsets.topic.replication.factor": factor,
            **setting_texts(settings),
        }
        self._store = store
        self._clock = clock
        self._threaded: ThreadedCluster | None = None
        self._temporary: str | None = None
        self._thread: LoopThread | None = None
        self._cluster: LocalCluster | None = None

    @property
    def bootstrap_servers(self) -> str:
        """All brokers, those that are down included."""
        if self._threaded is not None:
            return self._threaded.bootstrap_servers
        return self._running().bootstrap_servers

    def start(self) -> Cluster:
        """Start and return when every broker serves; raises what kept one from starting."""
        directory = self._data_dir
        if directory is None:
            directory = self._temporary = tempfile.mkdtemp(prefix="tidelog-")
        try:
            self._make_keys()
            if self._clock is not None:
                self._start_threaded(directory, self._clock)
            else:
                self._start_processes(directory)
        except BaseException:
            self._end()
            raise
        return self

    def _start_threaded(self, directory: str, clock: VirtualClock) -> None:
        settings, users = dict(self._settings), self._security.scram_users if self._security else {}
        if self._secrets is not None:
            settings = self._secrets.broker_settings() | settings
        if self._store is not None:
            settings["store"] = self._store
        cluster = ThreadedCluster(
            directory, settings, clock, [0] * self._count, (self._secured_listener(), users)
        )
        cluster.start()
        self._threaded = cluster

    def _start_processes(self, directory: str) -> None:
        arguments = ["--log-level", "info"]
        for name, value in self._settings.items():
            arguments += ["--set", f"{name}={value}"]
        if self._secrets is not None:
            arguments += ["--config", self._secrets.settings_file()]
            for user, file in self._secrets.password_files().items():
                arguments += ["--bootstrap-user", user, "--bootstrap-password-file", file]
        plan = ClusterPlan(
            directory,
            [0] * self._count,
            clients=self._secured_listener(),
            arguments=arguments,
            store=self._store,
            restart=False,
        )
        # uvloop and asyncio's children do not agree on threads other than the main one.
        self._thread = LoopThread("tidelog-cluster", asyncio.new_event_loop)
        self._cluster = self._thread.call(_start(plan))

    def _secured_listener(self) -> ClientListener:
        security = self._security
        return ClientListener() if security is None else ClientListener(*[security.protocol] * 2)

    def stop(self, broker: int | None = None) -> None:
        """Stop one broker in order, or all of them and remove the temporary directory."""
        if self._threaded is not None:
            self._stop_threaded(self._threaded, broker)
            return
        if self._thread is None or self._cluster is None:
            return
        if broker is not None:
            self._thread.call(self._child(broker).stop())
            return
        self._thread.call(self._cluster.stop())
        self._end()

    def _stop_threaded(self, cluster: ThreadedCluster, broker: int | None) -> None:
        if broker is not None:
            cluster.stop_broker(broker)
            return
        cluster.stop()
        self._threaded = None
        self._end()

    def kill(self, broker: int) -> None:
        """SIGKILL."""
        child = self._child(broker)
        assert self._thread is not None
        self._thread.call(child.kill())

    def pause(self, broker: int) -> None:
        """SIGSTOP, until `resume`."""
        os.kill(self.pid(broker), signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        os.kill(self.pid(broker), signal.SIGCONT)

    def restart(self, broker: int) -> None:
        """Start a broker that is down, on the port and the data that it had, or stop it first."""
        if self._threaded is not None:
            self._threaded.restart(broker)
            return
        child = self._child(broker)
        assert self._thread is not None
        if child.pid is not None:
            self.stop(broker)
        self._thread.call(child.start())

    def pid(self, broker: int) -> int:
        """The process of a broker that runs."""
        pid = self._child(broker).pid
        if pid is None:
            raise TidelogError(f"broker {broker} is not running; restart({broker}) starts it")
        return pid

    def log_of(self, broker: int) -> str:
        """The last lines that a broker logged."""
        return "\n".join(self._child(broker).lines)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition, -1 where none does."""
        with Client(self.bootstrap_servers, self._own_client()) as client:
            described = client.run(describe_topic(client.cluster, topic))
        return described.partitions[partition].leader

    def _own_client(self) -> ClientSettings | None:
        """How this object itself asks the brokers: as the first user."""
        if self._security is None:
            return None
        user = next(iter(self._security.users))
        return ClientSettings(security=read_security(self.client_settings(user)))

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _running(self) -> LocalCluster:
        if self._threaded is not None:
            raise TidelogError(
                "with a clock, the brokers are no processes of their own: stop() and restart() them"
            )
        if self._cluster is None:
            raise TidelogError("the cluster is not running; start() starts it")
        return self._cluster

    def _child(self, broker: int) -> Child:
        children = self._running().children
        if not 0 <= broker < len(children):
            raise TidelogError(
                f"there are brokers 0 to {len(children) - 1}, and no broker {broker}"
            )
        return children[broker]

    def _end(self) -> None:
        if self._thread is not None:
            self._thread.close()
        self._thread = self._cluster = None
        if self._temporary is not None:
            with suppress(OSError):
                shutil.rmtree(self._temporary)
            self._temporary = None
        self._drop_keys()


async def _start(plan: ClusterPlan) -> LocalCluster:
    cluster = LocalCluster(plan)
    await cluster.start()
    return cluster
