"""``python -m tests.chaos.failover``: how long partitions cannot be written when a broker goes.

Three brokers and three ZooKeepers, each a process. Writers send one record at a time with acks=all,
to whoever leads their partition, and look for another leader as soon as they are refused. Measured
for each fault is the longest time between two acknowledgements of a partition:

    leader killed         SIGKILL of a leader, until all that it led can be written again
    leader stopped        SIGTERM, which hands its partitions over first
    controller killed     with so many partitions in the cluster, until every one has a leader and
                          a new topic can be created; from the end of the dead broker's session

`callback` is the most CPU time that any broker's event loop used between two heartbeats, so that no
callback can have used more.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from scripts.guardian import guard
from tests.chaos.brokers import Brokers
from tests.e2e.produce_requests import batch, produce
from tests.e2e.raw_client import RawClient
from tests.waiting import eventually
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.testing import ZooKeeper

BUSY_METRIC: Final = "tidelog_loop_busy_max_seconds"
_BROKERS: Final = 3
_TOPIC: Final = "written"
_WAIT_S: Final = 300.0
_PATIENCE_S: Final = 5.0
_BETWEEN_WRITES_S: Final = 0.005
_RETRY_S: Final = 0.002
_PARTITIONS_PER_TOPIC: Final = 100


class Writer:
    """Writes one partition, one record at a time, from its thread; knows when it was answered."""

    def __init__(self, brokers: Brokers, partition: int) -> None:
        self.partition = partition
        self.leader = -1
        self.acknowledged_at: list[float] = []
        self._brokers = brokers
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def longest_gap_s(self, began: float, ended: float) -> float:
        times = [each for each in list(self.acknowledged_at) if began <= each <= ended]
        return max(
            (after - before for before, after in zip([began, *times], times, strict=False)),
            default=ended - began,
        )

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.leader = self._find_leader()
            with suppress(OSError), RawClient(self._brokers.server(self.leader)) as client:
                client.socket.settimeout(_PATIENCE_S)
                while self._write(client) and not self._stopped.wait(_BETWEEN_WRITES_S):
                    continue
            self._stopped.wait(_RETRY_S)

    def _write(self, client: RawClient) -> bool:
        request = produce(_TOPIC, batch([b"x"]), partition=self.partition, timeout_ms=1_000)
        answer = client.call("Produce", 9, request).responses[0].partition_responses[0]
        if answer.error_code == 0:
            self.acknowledged_at.append(time.monotonic())
        return bool(answer.error_code == 0)

    def _find_leader(self) -> int:
        asked = MetadataRequest([MetadataRequestTopic(name=_TOPIC)])
        while not self._stopped.is_set():
            for broker in self._brokers.ids:
                if not self._brokers.is_running(broker):
                    continue
                with suppress(OSError), RawClient(self._brokers.server(broker)) as client:
                    client.socket.settimeout(_PATIENCE_S)
                    for each in client.call("Metadata", 9, asked).topics[0].partitions:
                        found = each.partition_index == self.partition and each.leader_id
                        if found is not False and self._brokers.is_running(found):
                            return int(found)
            self._stopped.wait(_RETRY_S)
        return 0


class Bench:
    """The cluster, its writers, and what was measured."""

    def __init__(self, brokers: Brokers, session_s: float) -> None:
        self.brokers = brokers
        self.session_s = session_s
        self.longest_callback_s = 0.0
        self._writers: list[Writer] = []

    def admin(self) -> AdminClient:
        servers = [self.brokers.server(each) for each in self.brokers.ids
                   if self.brokers.is_running(each)]  # fmt: skip
        return AdminClient({"bootstrap.servers": ",".join(servers), "log_level": 0})

    def create(self, topic: str, partitions: int, replicas: int = _BROKERS) -> None:
        """Ask any broker until it is done: librdkafka waits for a controller that is dead."""
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=replicas)
        request = CreateTopicsRequest(topics=[wanted])

        def created() -> bool:
            broker = next(each for each in self.brokers.ids if self.brokers.is_running(each))
            with suppress(OSError), RawClient(self.brokers.server(broker)) as client:
                code = client.call("CreateTopics", 5, request).topics[0].error_code
                return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            return False

        self.wait(f"{topic} is created", created)

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._writers = [Writer(self.brokers, each) for each in range(_BROKERS)]
        try:
            yield
        finally:
            for writer in self._writers:
                writer.stop()
            self._writers.clear()

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        eventually(condition, lambda: f"waited {_WAIT_S:g} s in vain until {what}", _WAIT_S)

    def is_whole(self) -> bool:
        with suppress(Exception):
            found = self.admin().list_topics(timeout=10)
            return len(found.brokers) == _BROKERS and all(
                len(partition.isrs) == len(partition.replicas)
                for topic in found.topics.values()
                for partition in topic.partitions.values()
            )
        return False

    def written_since(self, moment: float) -> bool:
        return all(each.acknowledged_at[-1:] > [moment] for each in self._writers)

    def gap_s(self, fault: Callable[[int], None]) -> float:
        """The longest gap of a partition that the broker led, which is started again then."""
        self.wait("all is written", lambda: all(each.acknowledged_at for each in self._writers))
        leader = self._writers[0].leader
        led = [each for each in self._writers if each.leader == leader]
        self.look_at(leader)
        began = time.monotonic()
        fault(leader)
        self.wait("all is written again", lambda: self.written_since(began + 0.5))
        gap = max(each.longest_gap_s(began, time.monotonic()) for each in led)
        self.brokers.restart(leader)
        self.wait("every replica is in sync", self.is_whole)
        return gap

    def quiet_gap_s(self, seconds: float) -> float:
        """The same without a fault: what the machine alone does."""
        began = time.monotonic()
        time.sleep(seconds)
        return max(each.longest_gap_s(began, time.monotonic()) for each in self._writers)

    def controller_gap_s(self) -> tuple[int, float]:
        """From the kill of the controller until somebody else has done its work; who was killed."""
        killed = self.admin().list_topics(timeout=10).controller_id
        self.look_at(killed)
        began = time.monotonic()
        self.brokers.kill(killed)

        def all_led() -> bool:
            with suppress(Exception):
                found = self.admin().list_topics(timeout=10)
                return found.controller_id not in (-1, killed) and all(
                    partition.leader not in (-1, killed)
                    for topic in found.topics.values()
                    for partition in topic.partitions.values()
                )
            return False

        self.wait("every partition has another leader", all_led)
        self.create(f"after-{time.time_ns()}", 1, _BROKERS - 1)
        gap = time.monotonic() - began
        self.look_at(*(each for each in self.brokers.ids if each != killed))
        return killed, gap

    def look_at(self, *brokers: int) -> None:
        """What their loops took so far; it is forgotten when they end."""
        for broker in brokers:
            self.longest_callback_s = max(
                self.longest_callback_s, self.brokers.metric(broker, BUSY_METRIC)
            )


def _measure(bench: Bench, given: argparse.Namespace) -> None:
    bench.create(_TOPIC, _BROKERS)
    with bench.writing():
        bench.wait("all is written", lambda: bench.written_since(0.0))
        _report("nothing happens", [bench.quiet_gap_s(2.0) for _ in range(5)], None)
        kills = [bench.gap_s(bench.brokers.kill) for _ in range(given.kills)]
        _report("leader killed", kills, bench.session_s + 2)
        stops = [bench.gap_s(bench.brokers.stop) for _ in range(given.stops)]
        _report("leader stopped", stops, 0.3)
    bench.look_at(*bench.brokers.ids)
    print(f"callback {bench.longest_callback_s * 1000:.0f} ms (target 250)", flush=True)
    made = 0
    for partitions in sorted(given.partitions):
        while made < partitions:
            count = min(_PARTITIONS_PER_TOPIC, partitions - made)
            bench.create(f"many-{made}", count)
            made += count
        bench.wait("every replica is in sync", bench.is_whole)
        gaps = []
        for _ in range(given.controllers):
            killed, gap = bench.controller_gap_s()
            gaps.append(gap - bench.session_s)
            print(f"  {gaps[-1]:.2f} s beyond the session", flush=True)
            # With ten thousand partitions on a busy machine that may take longer than it is given.
            bench.brokers.restart(killed)
            bench.wait("every replica is in sync", bench.is_whole)
        _report(f"controller killed, {made} partitions", gaps, 5 if made <= 1_000 else 10)
    bench.look_at(*bench.brokers.ids)
    print(f"callback {bench.longest_callback_s * 1000:.0f} ms (target 250)")


def _report(title: str, gaps: list[float], target_s: float | None) -> None:
    if not gaps:
        return
    ordered = sorted(gaps)
    p99 = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    target = "" if target_s is None else f", target {target_s:g} s"
    load = os.getloadavg()[0]
    print(f"{title:<36} {len(ordered):>3} times: p50 {ordered[len(ordered) // 2]:6.2f} s,"
          f" p99 {p99:6.2f} s, longest {ordered[-1]:6.2f} s{target} (load {load:.0f})",
          flush=True)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20, help="kills of a leader (20)")
    parser.add_argument("--stops", type=int, default=20, help="stops of a leader (20)")
    parser.add_argument("--controllers", type=int, default=3, help="kills of the controller (3)")
    parser.add_argument("--partitions", type=int, nargs="*", default=[1_000])
    parser.add_argument("--session-ms", type=int, default=3_000)
    given = parser.parse_args()
    guard()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        zookeeper = stack.enter_context(ZooKeeper(3))
        settings = {"zookeeper.session.timeout.ms": str(given.session_ms)}
        brokers = Brokers(_BROKERS, directory / "data", settings, zookeeper.address)
        stack.callback(brokers.stop)
        brokers.start()
        _measure(Bench(brokers, given.session_ms / 1000), given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
