"""Brokers, ZooKeepers, producers, a consumer group and a pipeline: what faults happen to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from tests.chaos.brokers import Brokers
from tests.chaos.budget import Budget
from tests.chaos.network import Network
from tests.chaos.pipeline import Pipeline
from tests.chaos.power import Disk
from tests.e2e.group_schedules.task import GROUP, TOPIC, MemberTask
from tests.e2e.group_schedules.view import View
from tests.e2e.produce_requests import offset_at
from tests.e2e.raw_client import RawClient
from tests.history.events import Fault, HistoryWriter
from tests.waiting import eventually
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.testing import ZooKeeper

ROOT: Final = Path(__file__).resolve().parents[2]
BROKERS: Final = 3
PARTITIONS: Final = 6
MIN_ISR: Final = 2
SESSION_MS: Final = 3_000
WAIT_S: Final = 240.0
_LATEST: Final = -1
_SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "4000",
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "log.scrub.interval.ms": "5000",
}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a world has beside brokers and ZooKeepers."""

    disks: bool = False
    network: bool = False
    pipeline: bool = False
    producers: int = 2
    members: int = 2
    records_per_second: int = 400
    # The long form: faults last as long as they may in the field.
    long: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    topic_settings: Mapping[str, str] = field(default_factory=dict)


class World:
    """All processes, in one directory; ended with the context."""

    def __init__(self, directory: Path, wishes: Wishes) -> None:
        self.directory = directory
        self.wishes = wishes
        self.histories = directory / "histories"
        self.histories.mkdir(parents=True)
        self.writer = HistoryWriter(self.histories / "chaos.jsonl")
        self.view = View(self.histories)
        self.data = directory / "data"
        self.disks: list[Disk] = []
        self.budget = Budget(MIN_ISR)
        self.network: Network | None = None
        self.pipeline: Pipeline | None = None
        self.producers: list[subprocess.Popen[bytes]] = []
        self._cleanup = ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self._cleanup.callback(self.writer.close)
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self) -> None:
        wishes, cleanup = self.wishes, self._cleanup
        if wishes.disks:
            for each in range(BROKERS):
                disk = Disk(self.directory / f"disk-{each}", self.data / str(each))
                cleanup.callback(disk.unmount)
                self.disks.append(disk)
        host = "127.0.0.1"
        if wishes.network:
            self.network = Network(BROKERS)
            cleanup.callback(self.network.remove)
            host = self.network.address("store")
        self.zookeeper = ZooKeeper(3, host)
        cleanup.callback(self.zookeeper.stop)
        self.zookeeper.start()
        settings = {**_SETTINGS, **wishes.settings}
        self.brokers = Brokers(BROKERS, self.data, settings, self.zookeeper.address, self.network)
        cleanup.callback(self._end_brokers)
        self.brokers.start()
        self._create_topic()
        self._start_clients()

    def _end_brokers(self) -> None:
        for broker in self.brokers.ids:
            if self.brokers.is_running(broker):
                self.brokers.kill(broker)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.pipeline is not None:
            self.pipeline.kill()
        for process in self._processes:
            process.kill()
            process.wait()
        self._cleanup.close()

    def _create_topic(self) -> None:
        topic = NewTopic(TOPIC, PARTITIONS, BROKERS, config=dict(self.wishes.topic_settings))
        admin = self.admin()
        admin.create_topics([topic])[TOPIC].result(timeout=WAIT_S)

    def _start_clients(self) -> None:
        servers, count = self.brokers.bootstrap_servers, self.wishes.producers
        rate = str(self.wishes.records_per_second // max(1, count))
        for each in range(count):
            history = self.histories / f"producer-{each}.jsonl"
            self.producers.append(
                self._spawn(
                    "tests.e2e.group_schedules.producer", servers, str(PARTITIONS), rate,
                    str(history), str(each), str(count),
                )
            )  # fmt: skip
        for each in range(self.wishes.members):
            task = MemberTask(
                servers=servers,
                history=str(self.histories / f"member-{each}.jsonl"),
                members=(f"member-{each}",),
                session_timeout_ms=6_000,
            )
            self._spawn("tests.e2e.group_schedules.member", task.to_argument())
        if not count:
            return
        self._spawn(
            "tests.chaos.prober", str(self.histories / "prober.jsonl"), str(PARTITIONS),
            *map(self.brokers.server, self.brokers.ids),
        )  # fmt: skip
        if self.wishes.pipeline:
            self.pipeline = Pipeline(self.directory / "pipeline", servers)

    def _spawn(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        with (self.directory / "programs.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=log, stderr=log,
            )  # fmt: skip
        self._processes.append(process)
        return process

    # -- who does what ----------------------------------------------------------------------------

    def admin(self, servers: str | None = None) -> AdminClient:
        servers = servers or self.brokers.bootstrap_servers
        return AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def metadata(self, broker: int | None = None) -> ClusterMetadata:
        """As any broker tells it, or this one."""
        servers = None if broker is None else self.brokers.server(broker)
        return self.admin(servers).list_topics(timeout=10)

    def leader(self, partition: int) -> int:
        """The leader of a partition, the first broker where there is none."""
        return max(0, self.brokers.leader_of(TOPIC, partition))

    def end_offset(self, partition: int) -> int:
        """Where a partition ends now, as its leader says."""
        with RawClient(self.brokers.server(self.leader(partition))) as client:
            return offset_at(client, TOPIC, _LATEST, partition)

    def controller(self) -> int:
        """The broker that controls, the first one where nobody does."""
        return max(0, self.metadata().controller_id)

    def coordinator(self) -> int:
        """The broker that keeps the group, the first one where nobody does."""
        for broker in self.brokers.ids:
            if self.brokers.is_running(broker):
                with RawClient(self.brokers.server(broker)) as client:
                    request = FindCoordinatorRequest(key=GROUP)
                    return max(0, client.call("FindCoordinator", 3, request).node_id)
        return 0

    # -- faults -----------------------------------------------------------------------------------

    def note(self, what: str, target: object) -> None:
        self.writer.write(Fault(time.monotonic_ns(), what, f"broker {target}"))

    def cut_power(self, *brokers: int) -> None:
        """What these brokers had not synced is gone, all at one moment."""
        for broker in brokers:
            self.fail_disk(broker)
        for broker in brokers:
            self.replace_disk(broker)

    def fail_disk(self, broker: int) -> None:
        """Nothing reaches the disk any more: the broker is told of errors."""
        if self.wishes.topic_settings.get("durability") != "fsync":
            self.budget.lose(broker)
        self.disks[broker].cut_power()

    def replace_disk(self, broker: int) -> None:
        """The broker is down, and has what had reached its disk."""
        self.brokers.kill(broker)
        self.disks[broker].unmount()
        self.disks[broker].mount()

    def wipe(self, broker: int) -> None:
        """A new, empty disk in the place of the old one."""
        self.budget.lose(broker)
        self.brokers.kill(broker)
        for each in (self.data / str(broker)).iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            else:
                each.unlink()

    # -- waiting ----------------------------------------------------------------------------------

    def wait(
        self,
        what: str,
        condition: Callable[[], bool],
        wait_s: float = WAIT_S,
        also: Callable[[], str] = lambda: "",
    ) -> None:
        def told() -> str:
            logs = "\n".join(self._log_of(each) for each in self.brokers.ids)
            return f"waited {wait_s:g} s in vain until {what}\n{also()}\n{logs}"

        eventually(condition, told, wait_s)

    def _what_the_group_lacks(self) -> str:
        """The offsets that nobody was given, by partition, and what its members did last."""
        lines = []
        lacking = sorted(self.view.acknowledged - self.view.delivered)
        for name in sorted({name for name, _ in lacking}):
            offsets = [offset for each, offset in lacking if each == name]
            lines.append(f"{name}: {len(offsets)} from {offsets[0]} to {offsets[-1]}")
        for history in sorted(self.histories.glob("member-*.jsonl")):
            last = history.read_text().splitlines()[-5:]
            lines += [f"--- {history.name}", *(line[:300] for line in last)]
        said = (self.directory / "programs.log").read_text(errors="replace")[-4_000:]
        return "\n".join([*lines, "--- programs", said])

    def _log_of(self, broker: int) -> str:
        lines = self.brokers.log_of(broker).splitlines()
        return "\n".join([f"--- broker {broker}", *lines[-40:]])

    def whole(self) -> bool:
        """Whether every partition has all of its replicas in sync."""
        try:
            found = self.metadata()
        except Exception:
            return False
        return len(found.brokers) == BROKERS and all(
            len(partition.isrs) == len(partition.replicas)
            for topic in found.topics.values()
            for partition in topic.partitions.values()
        )

    def acknowledged(self) -> int:
        """How many records were acknowledged so far."""
        self.view.look()
        return len(self.view.acknowledged)

    def settle(self) -> None:
        """Until all is whole, and producers are heard again."""
        self.wait("every replica is in sync", self.whole)
        self.budget.whole()
        self.goes_on()

    def goes_on(self) -> None:
        """Until a hundred more records are acknowledged."""
        before = self.acknowledged()

        def more() -> bool:
            self.assert_producers_run()
            return self.acknowledged() > before + 100

        self.wait("records are acknowledged", more)

    def assert_producers_run(self) -> None:
        if any(each.poll() is not None for each in self.producers):
            last = (self.directory / "programs.log").read_text(errors="replace")[-2_000:]
            raise AssertionError(f"a producer ended\n{last}")

    def finish(self) -> None:
        """Stop producing, and have everything consumed."""
        for each in self.producers:
            each.send_signal(signal.SIGTERM)
        for each in self.producers:
            assert each.wait(WAIT_S) == 0, "a producer could not send all"
        self.view.look()
        if self.budget.exceeded:
            return  # what is lost nobody is given
        self.wait(
            "everything is consumed",
            lambda: self.acknowledged() >= 0 and self.view.drained(),
            also=self._what_the_group_lacks,
        )
        pipeline = self.pipeline
        if pipeline is not None:
            self.wait(
                f"the table has every record, see {pipeline.log}",
                lambda: pipeline.rows() >= len(self.view.acknowledged),
                2 * WAIT_S,
            )
            pipeline.stop()
