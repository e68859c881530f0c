"""Streams whose broker, driver or checkpoint is taken from them: no row is lost, none is double.

The names of the tests say which danger to a stream each is about: P2 a driver killed between two
commits, P3 two drivers on one checkpoint, P4 a checkpoint that is old or damaged.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.spark.cluster import ROOT, spark_environment
from tests.spark.held_pipelines import HeldPipeline
from tests.spark.killed_driver import from_the_end
from tests.spark.processes import (
    WAIT_SECONDS_MAX,
    kill_with_descendants,
    wait_for,
    wait_until,
)
from tests.spark.table_writers import start_delta_runtime
from tests.spark.topics import create, produce_values
from tidelog.pipelines.declare.pipeline import PipelineError

LATER = "later"


@pytest.fixture(scope="module", autouse=True)
def _delta_runtime(tmp_path_factory: pytest.TempPathFactory) -> None:
    start_delta_runtime(tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


# ---- the broker -----------------------------------------------------------------------------


@pytest.mark.long
def test_a_broker_killed_in_mid_batch_is_waited_for(spark: Any, tmp_path: Path) -> None:
    """The tasks still have megabytes to fetch when it dies, far more than they hold."""
    with BrokerProcess(tmp_path / "data") as broker:
        world = HeldPipeline(tmp_path, broker.bootstrap_servers, "broker-kill")
        world.send(range(8_000), padding=4_000)
        reports: list[Any] = []
        thread = threading.Thread(target=lambda: reports.append(world.run(spark)))
        thread.start()
        try:
            wait_for(lambda: bool(world.marks()) or not thread.is_alive())
            assert thread.is_alive() and not world.table(), world.notes
            broker.kill()
            notes = list(world.notes)
            world.open_gate()
            broker.start()
        finally:
            world.open_gate()
            thread.join(WAIT_SECONDS_MAX)
    assert [str(each.state) for each in reports] == ["done"]
    assert world.notes == notes, "the query had to be started again"
    assert world.table() == world.visits


# ---- the driver -----------------------------------------------------------------------------


class Killed:
    """A pipeline and a query from `latest`, whose driver was killed in the midst of both."""

    rows = 20_000

    def __init__(self, spark: Any, broker: BrokerProcess, directory: Path) -> None:
        self.servers, self.directory = broker.bootstrap_servers, directory
        self.world = HeldPipeline(directory, self.servers, "driver-kill", limit=400, held=False)
        self.world.send(range(self.rows))
        create(self.servers, LATER, 2)
        produce_values(self.servers, LATER, range(100), 2)
        log = directory / "driver.log"
        command = [sys.executable, "-m", "tests.spark.killed_driver", str(directory), LATER]
        with log.open("wb") as output:
            driver = subprocess.Popen(
                command, cwd=ROOT, env=spark_environment(), stdout=output, stderr=output
            )
        try:
            wait_until(self._is_in_the_midst, driver, log)
            self.refused = self._try_to_run(spark)
            self.pid = driver.pid
        finally:
            kill_with_descendants(driver)

    def _is_in_the_midst(self) -> bool:
        transactions = list(self.world.table_path.glob("_delta_log/*.json"))
        return (self.directory / "planned").exists() and len(transactions) > 3

    def _try_to_run(self, spark: Any) -> str:
        """A second driver on the same checkpoint; what it is told."""
        with pytest.raises(PipelineError) as refused:
            self.world.run(spark)
        return str(refused.value)


@pytest.fixture(scope="module")
def killed(spark: Any, broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return Killed(spark, broker, tmp_path_factory.mktemp("driver"))


@pytest.mark.long
def test_p2_a_driver_killed_in_mid_stream_is_followed_without_a_double_row(
    spark: Any, killed: Killed
) -> None:
    world = killed.world
    before = world.table().total()
    assert before < world.visits.total(), "the stream was over before its driver was killed"
    world.send(range(killed.rows, killed.rows + 100))
    world.file.write_text(world.file.read_text().replace("rows: 400", "rows: 1000000"))
    report = world.run(spark)
    print(f"driver SIGKILLed with {before} of {world.visits.total()} rows in the table")
    assert str(report.state) == "done", world.notes
    assert world.table() == world.visits


@pytest.mark.long
def test_p3_a_second_driver_on_a_checkpoint_is_refused(killed: Killed) -> None:
    assert f"this checkpoint is in use by process {killed.pid}; stop that run" in killed.refused


@pytest.mark.long
def test_latest_killed_before_its_first_commit_forgets_nothing(spark: Any, killed: Killed) -> None:
    checkpoint = killed.directory / "latest"
    assert os.listdir(checkpoint / "offsets") and not list(checkpoint.glob("commits/[0-9]*"))
    produce_values(killed.servers, LATER, range(100, 150), 2)  # while nobody is there
    seen: list[int] = []
    query = (
        from_the_end(spark, killed.servers, LATER)
        .writeStream.foreachBatch(lambda rows, _: seen.extend(int(r.value) for r in rows.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(seen) == list(range(100, 150))


# ---- the checkpoint -------------------------------------------------------------------------


@pytest.mark.long
def test_p4_an_old_or_damaged_checkpoint_stops_the_query_and_says_so(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    world = HeldPipeline(tmp_path, broker.bootstrap_servers, "checkpoints", 100, False, retries=1)
    newer = tmp_path / "newer"

    def put_back(copy: Path) -> None:
        shutil.rmtree(world.checkpoint)
        shutil.copytree(copy, world.checkpoint)

    world.send(range(100))
    assert str(world.run(spark).state) == "done"
    shutil.copytree(world.checkpoint, tmp_path / "older")
    world.send(range(100, 300))
    assert str(world.run(spark).state) == "done"
    assert world.table() == world.visits
    shutil.copytree(world.checkpoint, newer)

    # Now the batch of the same number would hold all that is new.
    put_back(tmp_path / "older")
    world.file.write_text(world.file.read_text().replace("rows: 100", "rows: 1000000"))
    world.send(range(300, 400))
    with pytest.raises(PipelineError, match="the checkpoint is older than the table"):
        world.run(spark)

    for log in ("offsets", "commits"):
        put_back(newer)
        damaged = cut_last(world.checkpoint / log)
        with pytest.raises(PipelineError, match=f"{damaged} is cut off"):
            world.run(spark)

    put_back(newer)
    assert str(world.run(spark).state) == "done", world.notes
    assert world.table() == world.visits


def cut_last(directory: Path) -> str:
    """Leave the newest file of a log empty, as a power cut can."""
    last = max(int(path.name) for path in directory.iterdir() if path.name.isdecimal())
    (directory / f".{last}.crc").unlink(missing_ok=True)
    (directory / str(last)).write_bytes(b"")
    return f"{directory.name}/{last}"
