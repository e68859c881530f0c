"""Three brokers, three ZooKeepers, a producer and a consumer group: what faults happen to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.namespaces import HOST, IsolatedCluster
from tests.chaos.power import Disk
from tests.e2e.group_schedules.task import TOPIC, MemberTask
from tests.e2e.group_schedules.view import View
from tests.history.events import Fault, HistoryWriter
from tidelog.testing import Cluster, ZooKeeper

ROOT: Final = Path(__file__).resolve().parents[2]
BROKERS: Final = 3
PARTITIONS: Final = 6
SESSION_MS: Final = 3_000
WAIT_S: Final = 120.0
_SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "4000",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "3",
}


class World:
    """All processes, in one directory; ended with the context."""

    def __init__(
        self,
        directory: Path,
        *,
        power: bool = False,
        network: bool = False,
        settings: Mapping[str, str] | None = None,
        topic_settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.histories = directory / "histories"
        self.histories.mkdir(parents=True)
        self.writer = HistoryWriter(self.histories / "chaos.jsonl")
        self.view = View(self.histories)
        self.data = directory / "data"
        self.disks: list[Disk] = []
        self._topic_settings = dict(topic_settings or {})
        self._cleanup = ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []
        if power:
            for each in range(BROKERS):
                disk = Disk(directory / f"disk-{each}", self.data / str(each))
                self._cleanup.callback(disk.unmount)
                self.disks.append(disk)
        self.zookeeper = ZooKeeper(3, HOST if network else "127.0.0.1")
        settings = {**_SETTINGS, **(settings or {})}
        self.cluster: Cluster | IsolatedCluster
        kind = IsolatedCluster if network else Cluster
        self.cluster = kind(
            BROKERS, data_dir=self.data, settings=settings, store=self.zookeeper.address
        )

    def __enter__(self) -> Self:
        try:
            self._cleanup.callback(self.zookeeper.stop)
            self.zookeeper.start()
            self._cleanup.callback(self.cluster.stop)
            self.cluster.start()
            self._create_topic()
            self._start_clients()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self.writer.close()
        self._cleanup.close()

    def _create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})
        topic = NewTopic(TOPIC, PARTITIONS, BROKERS, config=self._topic_settings)
        admin.create_topics([topic])[TOPIC].result(timeout=WAIT_S)

    def _start_clients(self) -> None:
        servers = self.cluster.bootstrap_servers
        self.producer = self._spawn(
            "producer", servers, str(PARTITIONS), "1000", str(self.histories / "producer.jsonl")
        )
        for each in range(2):
            task = MemberTask(
                servers=servers,
                history=str(self.histories / f"member-{each}.jsonl"),
                members=(f"member-{each}",),
                session_timeout_ms=6_000,
            )
            self._spawn("member", task.to_argument())

    def _spawn(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        with (self.directory / "programs.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"tests.e2e.group_schedules.{module}", *arguments],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=log, stderr=log,
            )  # fmt: skip
        self._processes.append(process)
        return process

    # -- faults -----------------------------------------------------------------------------------

    def note(self, what: str, target: object) -> None:
        self.writer.write(Fault(time.monotonic_ns(), what, f"broker {target}"))

    def cut_power(self, broker: int) -> None:
        """What the broker had not synced is gone."""
        disk = self.disks[broker]
        disk.cut_power()
        self.cluster.kill(broker)
        disk.unmount()
        disk.mount()

    def wipe(self, broker: int) -> None:
        """A new, empty disk in the place of the old one."""
        self.cluster.kill(broker)
        for each in (self.data / str(broker)).iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            else:
                each.unlink()

    # -- waiting ----------------------------------------------------------------------------------

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(self._log_of(each) for each in range(BROKERS))
                raise AssertionError(f"waited {WAIT_S:g} s in vain until {what}\n{logs}")
            time.sleep(0.05)

    def _log_of(self, broker: int) -> str:
        lines = self.cluster.log_of(broker).splitlines()
        return "\n".join([f"--- broker {broker}", *lines[-30:]])

    def whole(self) -> bool:
        """Whether every partition has all of its replicas in sync."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})
        try:
            found = admin.list_topics(timeout=5)
        except Exception:
            return False
        return len(found.brokers) == BROKERS and all(
            len(partition.isrs) == len(partition.replicas)
            for topic in found.topics.values()
            for partition in topic.partitions.values()
        )

    def settle(self) -> None:
        """Until all is whole, and the producer is heard again."""
        self.wait("every replica is in sync", self.whole)
        self.view.look()
        before = len(self.view.acknowledged)

        def goes_on() -> bool:
            assert self.producer.poll() is None, "the producer ended"
            self.view.look()
            return len(self.view.acknowledged) > before + 100

        self.wait("records are acknowledged", goes_on)

    def finish(self) -> None:
        """Stop producing, have everything consumed, stop the brokers in order."""
        self.producer.send_signal(signal.SIGTERM)
        assert self.producer.wait(WAIT_S) == 0, "the producer could not send all"

        def drained() -> bool:
            self.view.look()
            return self.view.drained()

        self.wait("everything is consumed", drained)
