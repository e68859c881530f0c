"""One Spark session for all of Spark's tests: it costs ten seconds and a gigabyte."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.peers import spark_connector
from tidelog.spark.jvm import close_session
from tidelog.spark.launch.session import prepare_environment

ROOT = Path(__file__).resolve().parents[2]

# Spark's own processes and pyspark's sockets are not ours to close.
SPARK_WARNINGS = ("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker("spark")
            for warning in SPARK_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """`local[2]`, a task tried twice, no UI; Spark's own Kafka connector where Maven is there."""
    os.environ["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    prepare_environment()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,2]").appName("tidelog-tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution."
        "streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    }
    if shutil.which("mvn"):
        settings["spark.jars"] = ",".join(str(path) for path in spark_connector.jars())
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    close_session(session)
