"""What a pipeline's run leaves behind when it is killed, and what becomes of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.cluster import ROOT, spark_environment
from tests.spark.held_pipelines import HeldPipeline
from tests.spark.processes import kill_with_descendants, wait_until
from tidelog.testing import Broker


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path; pytest's own are too long for sockets."""
    path = Path(tempfile.mkdtemp(prefix="t-"))
    yield path
    shutil.rmtree(path)


@pytest.mark.long
def test_a_killed_run_is_listed_as_lost_and_its_temporary_files_go_with_the_next(
    tidelog_broker: Broker, tidelog_topic: str, directory: Path
) -> None:
    name = f"l-{tidelog_topic[-24:]}"
    world = HeldPipeline(directory, tidelog_broker.bootstrap_servers, name, 10, held=False)
    world.send(range(200))
    command = [sys.executable, "-m", "tidelog", "pipeline"]
    run = [*command, "run", str(world.file), "--master", "local[2]"]
    log = directory / "log"
    with log.open("wb") as output:
        driver = subprocess.Popen(
            run, cwd=ROOT, env=spark_environment(), stdout=output, stderr=output
        )
    try:
        wait_until(lambda: world.table().total() > 20, driver, log)
    finally:
        kill_with_descendants(driver)
    (left,) = (path for path in (directory / "state" / ".run").iterdir() if path.is_dir())
    assert list(left.glob("blockmgr-*")) and list(left.glob("*.sock"))

    done = subprocess.run(
        [*run, "--mode", "catch-up", "--format", "json"],
        cwd=ROOT, env=spark_environment(), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert world.table() == world.visits
    assert [path.name for path in (directory / "state" / ".run").iterdir()] == [".lock"]

    listing = [*command, "list", "--bootstrap-server", world.servers, "--format", "json"]
    listed = subprocess.run(
        listing, cwd=ROOT, env=spark_environment(), capture_output=True, text=True, check=True
    )
    runs = {each["mode"]: each for each in json.loads(listed.stdout) if each["name"] == name}
    assert runs["catch-up"]["state"] == "done" and runs["catch-up"]["lag"] == 0
    assert runs["stream"]["state"] in ("lost", "running"), "lost after a while of silence"
    assert runs["stream"]["started"] < runs["catch-up"]["started"]
