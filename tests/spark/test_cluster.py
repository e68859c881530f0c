"""A pipeline's file on a standalone cluster: the same rows, whichever worker dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.spark.cluster import HOST, ROOT, SparkCluster, spark_environment
from tests.spark.processes import kill_with_descendants, wait_until
from tests.spark.topics import create
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking_producer import Producer
from tidelog.testing import Broker

LONG = os.environ.get("TIDELOG_LONG") == "1"
PARTITIONS = 4
ROWS = 20_000

FILE = """\
pipeline: {name}
connect: {{bootstrap.servers: "{servers}"}}
checkpoint: ./state
spark:
  spark.executor.memory: 512m
  spark.sql.execution.arrow.maxRecordsPerBatch: 500
sources:
  clicks:
    topic: {name}
    value: {{json: "user STRING, page STRING"}}
    options: {{minPartitions: {partitions}}}
steps:
  visits: {{sql: "SELECT user, page FROM clicks WHERE page <> '/health'"}}
  held: {{python: "steps.py:hold", inputs: [visits]}}
targets:
  visits: {{from: held, table: {{delta: ./lake/visits}}}}
"""

# Each task leaves a mark when a part of its rows has gone on to the table's files, and waits.
STEPS = """\
import os
import pathlib
import time
from collections import Counter

from pyspark import TaskContext
from pyspark.sql.functions import udf

DIRECTORY = pathlib.Path(__file__).parent
ROWS_BEFORE_MARK = 1000
seen = Counter()


@udf("string", useArrow=False)
def pass_on(user):
    task = TaskContext.get()
    seen[task.taskAttemptId()] += 1
    if seen[task.taskAttemptId()] == ROWS_BEFORE_MARK:
        mark = DIRECTORY / f"task-{task.partitionId()}-{task.attemptNumber()}"
        mark.with_suffix(".draft").write_text(str(os.getpid()))
        mark.with_suffix(".draft").rename(mark.with_suffix(".mark"))
        while not (DIRECTORY / "go").exists():
            time.sleep(0.05)
    return user


def hold(visits):
    return visits.withColumn("user", pass_on("user"))
"""


class World:
    """A pipeline's file beside its step, its topic, and what was sent to it."""

    def __init__(self, directory: Path, servers: str, name: str) -> None:
        self.directory, self.servers, self.name = directory, servers, name
        names = {"name": name, "servers": servers}
        text = FILE.format(**names, partitions=PARTITIONS)
        (directory / "p.yaml").write_text(text)
        (directory / "steps.py").write_text(STEPS)
        self.log = directory / "driver.log"
        self.visits: Counter[tuple[str, str]] = Counter()
        create(servers, name, PARTITIONS)

    @property
    def table_path(self) -> Path:
        return self.directory / "lake" / "visits"

    def send(self, count: int) -> None:
        """Clicks, every tenth of the health check."""
        with Producer(self.servers) as producer:
            for number in range(count):
                page = "/health" if number % 10 == 0 else f"/{number % 3}"
                value = json.dumps({"user": f"u{number}", "page": page}).encode()
                producer.send(ProducerRecord(self.name, value, b"%d" % number))
                if page != "/health":
                    self.visits[(f"u{number}", page)] += 1

    def start(self, master: str) -> subprocess.Popen[bytes]:
        """`tidelog pipeline run`, as anybody would start it."""
        command = [
            sys.executable, "-m", "tidelog", "pipeline", "run", str(self.directory / "p.yaml"),
            "--mode", "catch-up", "--master", master, "--conf", f"spark.driver.host={HOST}",
        ]  # fmt: skip
        with self.log.open("wb") as log:
            return subprocess.Popen(
                command, cwd=ROOT, env=spark_environment(), stdout=log, stderr=log
            )

    def marks(self) -> dict[str, int]:
        """The tasks that are in mid-batch or were, and their processes."""
        found = self.directory.glob("task-*.mark")
        return {path.stem: int(path.read_text()) for path in found}

    def open_gate(self) -> None:
        (self.directory / "go").touch()

    def table(self) -> Counter[tuple[str, str]]:
        rows = DeltaTable(str(self.table_path)).to_pyarrow_table().to_pylist()
        return Counter((row["user"], row["page"]) for row in rows)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def in_mid_batch(cluster: SparkCluster, world: World) -> bool:
    """Whether every worker has a task that has passed on a part of its rows."""
    pids = world.marks().values()
    return all(any(map(worker.runs, pids)) for worker in cluster.workers)


@pytest.mark.parametrize("kill", [False, True] if LONG else [True])
def test_a_file_runs_on_a_cluster_and_a_worker_killed_in_mid_batch_changes_no_row(
    cluster: SparkCluster, tidelog_broker: Broker, tidelog_topic: str, tmp_path: Path, kill: bool
) -> None:
    world = World(tmp_path, tidelog_broker.bootstrap_servers, f"c-{tidelog_topic[-24:]}")
    world.send(ROWS)
    driver = world.start(cluster.url)
    lost = set()
    try:
        wait_until(lambda: in_mid_batch(cluster, world), driver, world.log)
        assert not DeltaTable.is_deltatable(str(world.table_path)), "the batch is over"
        if kill:
            dying = cluster.workers.pop()
            lost = {task for task, pid in world.marks().items() if dying.runs(pid)}
            dying.kill()
        world.open_gate()
        wait_until(lambda: driver.poll() is not None, driver, world.log)
    finally:
        kill_with_descendants(driver)
    assert driver.returncode == 0, world.log.read_text()[-4000:]
    assert world.table() == world.visits
    again = {task.removesuffix("-0") + "-1" for task in lost}
    assert again <= world.marks().keys(), "the tasks of the dead worker were not run again"
