"""The oldest PySpark that is promised does what the newest does: the same tests, run with it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.spark.cluster import ROOT, spark_environment
from tests.spark.oldest_spark import make_environment, oldest_version
from tests.spark.processes import kill_with_descendants

SUBSET = (
    "tests/spark/test_source.py",
    "tests/spark/test_source_options.py",
    "tests/spark/test_sink.py",
    "tests/spark/test_tables.py",
    "tests/spark/test_pipeline_run.py",
)
PASSED_LEAST = 46
TIMEOUT_SECONDS = 1_800


def test_the_floor_is_what_the_package_asks_for() -> None:
    """Also in the default tier: a new floor must be tried."""
    major, minor, _ = oldest_version().split(".")
    assert f'"pyspark>={major}.{minor},' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_SECONDS + 300)
def test_the_oldest_pyspark_passes_the_same_tests(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "environment")
    environment = spark_environment() | {"PYSPARK_PYTHON": str(python)}
    # Of the running interpreter's, and those of the long tier are for the newest.
    for name in ("SPARK_HOME", "SPARK_SCALA_VERSION", "TIDELOG_LONG"):
        environment.pop(name, None)
    said = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__version__)"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == oldest_version()
    log = tmp_path / "pytest.log"
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUBSET]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        exit_code = process.wait(TIMEOUT_SECONDS)
    finally:
        kill_with_descendants(process)
    summary = log.read_text(errors="replace")[-8_000:]
    assert exit_code == 0, summary
    passed = re.search(r"^(\d+) passed", summary, re.MULTILINE)
    assert passed is not None and int(passed[1]) >= PASSED_LEAST, summary
    print(
        f"\npyspark {oldest_version()}: {passed[0]} of the tests of source, sink, tables, pipeline"
    )
