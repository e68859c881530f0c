"""Ten gigabytes that nobody has read yet, caught up with in little memory and without a loss."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.spark.backlog import BLOCK_ROWS, VALUE_BYTES, Backlog
from tests.spark.cluster import ROOT, spark_environment
from tests.spark.memory import BROKER, DRIVER, JVM, WORKER, Watch
from tests.spark.processes import kill_with_descendants
from tests.spark.table_writers import start_delta_runtime

BACKLOG_BYTES = 10 << 30
PARTITIONS = 4
BLOCKS = BACKLOG_BYTES // (PARTITIONS * BLOCK_ROWS * VALUE_BYTES)
RUN_SECONDS_MAX = 1_800
# A heap of one gigabyte, and what a JVM needs beside it.
RESIDENT_BYTES_MAX = {JVM: 2 << 30, DRIVER: 1 << 30, WORKER: 1 << 30, BROKER: 1 << 30}


@pytest.fixture(autouse=True, scope="module")
def _delta_runtime(tmp_path_factory: pytest.TempPathFactory) -> None:
    start_delta_runtime(tmp_path_factory.mktemp("first"))


def catch_up(backlog: Backlog, broker: BrokerProcess) -> Watch:
    """`tidelog pipeline run`, as a user would start it; the memory that it took."""
    command = [
        sys.executable, "-m", "tidelog", "pipeline", "run", str(backlog.file), "--mode", "catch-up",
        "--master", "local[2]", "--driver-memory", "1g", "--no-publish", "--quiet",
    ]  # fmt: skip
    log = backlog.directory / "driver.log"
    with log.open("wb") as output:
        driver = subprocess.Popen(
            command, cwd=ROOT, env=spark_environment(), stdout=output, stderr=output
        )
    try:
        with Watch(driver, broker.pid) as watch:
            exit_code = driver.wait(RUN_SECONDS_MAX)
    finally:
        kill_with_descendants(driver)
    assert exit_code == 0, log.read_text(errors="replace")[-4_000:]
    return watch


@pytest.mark.long
@pytest.mark.timeout(2 * RUN_SECONDS_MAX)
def test_a_backlog_of_ten_gigabytes_is_read_in_one_gigabyte(tmp_path: Path) -> None:
    try:
        with BrokerProcess(tmp_path / "data") as broker:
            backlog = Backlog(tmp_path, broker.bootstrap_servers, BLOCKS, PARTITIONS)
            began_at = time.monotonic()
            backlog.write()
            written_at = time.monotonic()
            watch = catch_up(backlog, broker)
            read_at = time.monotonic()
    finally:
        # Test directories are kept for a while; this one would fill the disk.
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
    seconds = read_at - written_at
    print(
        f"\n{backlog.rows:,} records of {VALUE_BYTES} B: written in {written_at - began_at:.0f} s, "
        f"caught up with in {seconds:.0f} s ({backlog.rows / seconds:,.0f} records/s); "
        f"peak resident memory: {watch}"
    )
    assert backlog.found() == backlog.expected()
    assert set(watch.peaks) == set(RESIDENT_BYTES_MAX)
    assert all(watch.peaks[kind] <= most for kind, most in RESIDENT_BYTES_MAX.items()), watch
