"""A Spark driver that is going to be killed: `python -m tests.spark.table_driver DIRECTORY FORMAT`.

Its sink is `tidelog_table` with two accidents. The first task to write is killed when a part of its
rows is in a file; Spark tries it again. And after the table's transaction of batch `LAST_BATCH` the
driver hangs before Spark can note it, with the file ``committed`` as the sign.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from tests.spark.table_streams import run
from tidelog.spark.table import files
from tidelog.spark.table.writers import StreamTableWriter

LAST_BATCH = 1


def killed_once(batches: Iterator[Any], directory: Path) -> Iterator[Any]:
    yield from batches
    try:
        (directory / "killed").touch(exist_ok=False)
    except FileExistsError:
        return
    assert list(directory.rglob("*.parquet")), "nothing was written before the kill"
    os.kill(os.getpid(), signal.SIGKILL)


class FaultyWriter(StreamTableWriter):
    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self._directory = Path(options["path"]).parent.parent

    def write(self, iterator: Iterator[Any]) -> Any:
        files.BUFFER_BYTES_MAX = 1
        return super().write(killed_once(iterator, self._directory))

    def commit(self, messages: Any, batchId: int) -> None:
        super().commit(messages, batchId)
        if batchId == LAST_BATCH:
            (self._directory / "committed").touch()
            threading.Event().wait()


class FaultyTable(DataSource):
    @classmethod
    def name(cls) -> str:
        return "faulty_table"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return FaultyWriter(self.options, schema, overwrite)


def main(directory: Path, table_format: str) -> None:
    session = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.dataSource.register(FaultyTable)
    options = {"format": table_format, "sink": "faulty_table"}
    run(session, directory / "source", directory / "lake" / "t", directory / "state", **options)


if __name__ == "__main__":
    # Under its own name, so that Spark's workers import the classes instead of getting copies.
    from tests.spark import table_driver

    table_driver.main(Path(sys.argv[1]), sys.argv[2])
