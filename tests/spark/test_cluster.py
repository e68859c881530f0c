"""A pipeline's file on a standalone cluster: the same rows, whichever worker dies."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.cluster import HOST, SparkCluster, spark_environment
from tests.spark.held_pipelines import HeldPipeline
from tests.spark.processes import kill_with_descendants, wait_until
from tidelog.testing import Broker

LONG = os.environ.get("TIDELOG_LONG") == "1"
ROWS = 20_000


def pack_environment(directory: Path) -> Path:
    """An archive whose `bin/python` is this one, and beside it what is in it, for the driver."""
    python = directory / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    return Path(shutil.make_archive(str(directory / "packed"), "gztar", python.parents[1]))


def start_run(world: HeldPipeline, master: str, log: Path) -> subprocess.Popen[bytes]:
    """`tidelog pipeline run`, with a packed environment for the workers."""
    archive = pack_environment(world.directory)
    command = [
        sys.executable, "-m", "tidelog", "pipeline", "run", str(world.file), "--mode", "catch-up",
        "--master", master, "--conf", f"spark.driver.host={HOST}",
        "--conf", f"spark.archives={archive}#environment",
    ]  # fmt: skip
    environment = spark_environment() | {
        "PYSPARK_PYTHON": "./environment/bin/python",
        # A usual setting, and no Python; Spark would use it for the data source, on workers also.
        "PYSPARK_DRIVER_PYTHON": "jupyter",
    }
    with log.open("wb") as output:
        return subprocess.Popen(
            command, cwd=world.directory, env=environment, stdout=output, stderr=output
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def in_mid_batch(cluster: SparkCluster, world: HeldPipeline) -> bool:
    """Whether every worker has a task that has passed on a part of its rows."""
    pids = world.marks().values()
    return all(any(map(worker.runs, pids)) for worker in cluster.workers)


@pytest.mark.long
@pytest.mark.parametrize("kill", [False, True] if LONG else [True])
def test_a_file_runs_on_a_cluster_and_a_worker_killed_in_mid_batch_changes_no_row(
    cluster: SparkCluster, tidelog_broker: Broker, tidelog_topic: str, tmp_path: Path, kill: bool
) -> None:
    world = HeldPipeline(tmp_path, tidelog_broker.bootstrap_servers, f"c-{tidelog_topic[-24:]}")
    world.send(range(ROWS))
    log = tmp_path / "driver.log"
    driver = start_run(world, cluster.url, log)
    lost = set()
    try:
        wait_until(lambda: in_mid_batch(cluster, world), driver, log)
        assert not world.table(), "the batch is over"
        if kill:
            dying = cluster.workers.pop()
            lost = {task for task, pid in world.marks().items() if dying.runs(pid)}
            dying.kill()
        world.open_gate()
        wait_until(lambda: driver.poll() is not None, driver, log)
    finally:
        kill_with_descendants(driver)
    assert driver.returncode == 0, log.read_text()[-4000:]
    assert world.table() == world.visits
    again = {task.removesuffix("-0") + "-1" for task in lost}
    assert again <= world.marks().keys(), "the tasks of the dead worker were not run again"
