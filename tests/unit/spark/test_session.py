"""What the processes that Spark starts are given."""

from __future__ import annotations

import os
import sys

import pytest

from tidelog.spark.session import prepare_environment


@pytest.mark.parametrize(
    ("named", "used"), [(None, sys.executable), ("./env/bin/python", "./env/bin/python")]
)
def test_the_data_source_runs_with_the_python_of_the_workers(
    monkeypatch: pytest.MonkeyPatch, named: str | None, used: str
) -> None:
    """Spark starts data sources that it finds by name with the driver's, also on the workers."""
    monkeypatch.setattr(os, "environ", dict(os.environ) | {"PYSPARK_DRIVER_PYTHON": "jupyter"})
    os.environ.pop("PYSPARK_PYTHON", None)
    if named is not None:
        os.environ["PYSPARK_PYTHON"] = named
    prepare_environment()
    assert (os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"]) == (used, used)


@pytest.mark.parametrize(("master", "quick"), [("local[2]", True), ("yarn", False)])
def test_to_yarn_spark_can_send_the_zip_of_its_own_home(
    monkeypatch: pytest.MonkeyPatch, master: str, quick: bool
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ.pop("SPARK_HOME", None)
    prepare_environment(master)
    assert ("SPARK_HOME" in os.environ) == quick
