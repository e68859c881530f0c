"""``python -m tests.chaos.spark_sink``: drivers and executors of an exactly-once query are killed.

A Spark cluster of real processes copies text files into a topic, with `exactlyOnce` and with
speculation: some tasks dawdle, and Spark starts others beside them. The driver, or an executor with
its Python processes, is killed (SIGKILL) when something new has been written since the last kill,
and a random moment later. In the end readers of committed records must find every line once, and no
transaction of the sink may be open.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from scripts.guardian import guard
from tests.e2e.broker_process import BrokerProcess
from tests.spark.cluster import HOST, ROOT, SparkCluster, Worker, spark_environment
from tests.spark.processes import descendants_of, kill_with_descendants
from tests.spark.reading import read_committed
from tests.spark.text_streams import feed, run_stream, text_stream
from tests.waiting import eventually
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.blocking import Client
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.transaction_admin import TransactionFilter, list_transactions
from tidelog.model import TopicPartition

TOPIC: Final = "once"
PARTITIONS: Final = 2
# As many as there are executors, so that one is free for a second attempt when a task dawdles.
TASKS: Final = 2
LINES: Final = 300
# For each line of a task that has 150.
_DAWDLING: Final = 0.003
HOSTS: Final = (HOST, "127.0.0.2")
_FILES_AHEAD: Final = 3
_SECONDS: Final = 600.0
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_JVM: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": HOST,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": _JVM,
    "spark.executor.extraJavaOptions": _JVM,
    "spark.task.maxFailures": "1000",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "100ms",
    # A task that dawdles is speculated whatever it has done so far.
    "spark.speculation.efficiency.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
}
# In the log of events; that a second attempt was asked for is not written there, its start is.
_STARTED: Final = '{"Event":"SparkListenerTaskStart"'
_SPECULATIVE: Final = '"Speculative":true'


# The driver


def dawdle(value: str) -> str:
    """Pass a value on; one task in a few takes its time, not always the same one."""
    if random.random() < _DAWDLING:
        time.sleep(2.0)
    return value


def drive(master: str, servers: str, directory: Path, *, is_last: bool) -> None:
    """Run the query until it is killed or, the last time, until it has written everything."""
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import udf

    from tidelog.spark.launch.session import prepare_environment

    prepare_environment()
    builder = SparkSession.builder.master(master).appName("once")
    # Tells of speculation.
    events = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (directory / "events").as_uri(),
    }
    for name, value in (_SETTINGS | events).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    lines = text_stream(session, directory / "in", 1_000 if is_last else 1).repartition(TASKS)
    slowly = udf(dawdle, "string").asNondeterministic()
    rows = lines.select(slowly("value").alias("value"))
    checkpoint = directory / "checkpoint"
    run_stream(rows, servers, TOPIC, checkpoint, stop=is_last, exactlyOnce="true")


# The trial


@dataclass(frozen=True, slots=True)
class Result:
    """What was killed, and what there was then."""

    kills: Counter[str]
    rows: int
    speculated: int
    ids: int


class Trial:
    """One query, and everything that it runs on."""

    def __init__(self, directory: Path, broker: BrokerProcess, cluster: SparkCluster) -> None:
        self._directory, self._servers, self._cluster = directory, broker.bootstrap_servers, cluster
        self._driver: subprocess.Popen[bytes] | None = None
        self._log = directory / "driver.log"
        self._ends: dict[TopicPartition, int] = {}
        self.files = 0
        for name in ("in", "events"):
            (directory / name).mkdir()
        with Client(self._servers) as client:
            client.run(create_topic(client.cluster, NewTopic(TOPIC, PARTITIONS)))

    def start(self, *, is_last: bool = False) -> None:
        command = [
            sys.executable, "-m", "tests.chaos.spark_sink", "--drive", self._cluster.url,
            self._servers, str(self._directory), "last" if is_last else "",
        ]  # fmt: skip
        with self._log.open("ab") as log:
            self._driver = subprocess.Popen(
                command, cwd=ROOT, env=spark_environment(), stdout=log, stderr=log
            )

    def kill_driver(self) -> None:
        assert self._driver is not None
        kill_with_descendants(self._driver)

    def kill_executor(self, chance: random.Random) -> bool:
        """Whether there was one."""
        workers = [each for each in self._cluster.workers if _executors(each)]
        if not workers:
            return False
        (executor, *_) = _executors(chance.choice(workers))
        children = executor.children(recursive=True)
        for each in (executor, *children):
            each.kill()
        psutil.wait_procs([executor, *children], timeout=60)
        return True

    def until_written(self) -> None:
        """Wait until something is in the topic that was not there before, committed or not."""
        before = sum(self._ends.values())

        def has_grown() -> bool:
            self._look()
            return sum(self._ends.values()) > before

        self._until(has_grown)

    def _look(self) -> None:
        places = [TopicPartition(TOPIC, each) for each in range(PARTITIONS)]
        with Client(self._servers) as client:
            found = client.run(list_offsets(client.cluster, dict.fromkeys(places, LATEST)))
        self._ends = {each: place.offset for each, place in found.items()}
        while self.files * LINES < sum(self._ends.values()) + _FILES_AHEAD * LINES:
            feed(self._directory / "in", f"{self.files:05}", lines_of(self.files))
            self.files += 1

    def _until(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            assert self._driver is not None and self._driver.poll() is None, self._told()
            return condition()

        eventually(holds, self._told, _SECONDS)

    def _told(self) -> str:
        return f"{self._ends}; the driver said:\n{self._log.read_text(errors='replace')[-4000:]}"

    def finish(self) -> None:
        """Have the last driver write what is left."""
        assert self._driver is not None
        assert self._driver.wait(_SECONDS) == 0, self._told()

    def judge(self, kills: Counter[str]) -> Result:
        values = Counter(read_committed(self._servers, TOPIC))
        expected = {line.encode() for each in range(self.files) for line in lines_of(each)}
        wrong = [each for each, count in values.items() if count != 1]
        assert not wrong, f"{len(wrong)} lines are there more than once, such as {wrong[:5]}"
        lost = expected - values.keys()
        assert not lost, f"{len(lost)} lines are lost, such as {sorted(lost)[:5]}"
        assert values.keys() == expected
        with Client(self._servers) as client:
            wanted = TransactionFilter(pattern=r"tidelog-sink\..*")
            listed = client.run(list_transactions(client.cluster, wanted))
        is_open = [each for each in listed if each.state == "Ongoing"]
        assert listed and not is_open, is_open
        return Result(kills, len(values), self._speculated(), len(listed))

    def _speculated(self) -> int:
        """How many second attempts Spark started beside first ones."""
        return sum(
            line.startswith(_STARTED) and _SPECULATIVE in line
            for log in (self._directory / "events").iterdir()
            for line in log.read_text(errors="replace").splitlines()
        )

    def close(self) -> None:
        if self._driver is not None and self._driver.poll() is None:
            self.kill_driver()


def lines_of(number: int) -> list[str]:
    return [f"{number}-{line}" for line in range(LINES)]


def _executors(worker: Worker) -> list[psutil.Process]:
    """The executors of a worker that run."""
    found = []
    for each in descendants_of(worker.process):
        try:
            if _EXECUTOR in " ".join(each.cmdline()):
                found.append(each)
        except psutil.NoSuchProcess:
            continue
    return found


def run(kills: int, seed: int, directory: Path, seconds: float = math.inf) -> Result:
    """Kill as many drivers as executors, in an order that follows from the seed; no more of them
    after so many seconds."""
    until = time.monotonic() + seconds
    chance = random.Random(seed)
    faults = ["driver"] * kills + ["executor"] * kills
    chance.shuffle(faults)
    killed: Counter[str] = Counter()
    with BrokerProcess(directory / "data") as broker, SparkCluster(directory, HOSTS) as cluster:
        trial = Trial(directory, broker, cluster)
        try:
            trial.start()
            for fault in faults:
                trial.until_written()
                if time.monotonic() > until:
                    break
                time.sleep(chance.uniform(0, 3))
                if fault == "driver":
                    trial.kill_driver()
                    trial.start()
                else:
                    eventually(lambda: trial.kill_executor(chance), seconds=_SECONDS)
                killed[fault] += 1
                sys.stdout.write(f"{killed.total()} {fault}\n")
                sys.stdout.flush()
            trial.kill_driver()
            trial.start(is_last=True)
            trial.finish()
            return trial.judge(killed)
        finally:
            trial.close()


def main() -> None:
    if sys.argv[1:2] == ["--drive"]:
        master, servers, directory, last = sys.argv[2:]
        # Under its own name, so that Spark's workers import it.
        from tests.chaos import spark_sink

        spark_sink.drive(master, servers, Path(directory), is_last=bool(last))
        return
    guard()
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.spark_sink", description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="of drivers, and as many executors")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="no kill after so many")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidelog-sink-") as directory:
        result = run(chosen.kills, chosen.seed, Path(directory), 60 * chosen.minutes)
    sys.stdout.write(
        f"seed {chosen.seed}: killed {dict(result.kills)}, and a driver at the end;"
        f" {result.rows:,} rows, each once; {result.speculated} tasks speculated,"
        f" {result.ids} transactional ids\n"
    )


if __name__ == "__main__":
    main()
