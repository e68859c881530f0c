"""Streaming queries kept as tables, exactly once, through a real Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException

from tests.spark.processes import kill_with_descendants, wait_until
from tests.spark.table_driver import LAST_BATCH
from tests.spark.table_streams import BATCHES, read_source, rows_of, run, start, write_source
from tests.spark.table_writers import start_delta_runtime

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def _delta_runtime(tmp_path_factory: pytest.TempPathFactory) -> None:
    start_delta_runtime(tmp_path_factory.mktemp("first"))


def data_files(table: Path) -> set[str]:
    return {str(path) for path in table.parent.rglob("*.parquet")}


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_batch_that_is_run_again_is_in_the_table_once(
    spark: Any, tmp_path: Path, table_format: str
) -> None:
    """P2, where a table is the target."""
    table, checkpoint = tmp_path / "lake" / "visits", tmp_path / "checkpoint"
    rows = write_source(tmp_path / "source")
    options = {"format": table_format, "partitionBy": "day"}
    first = run(spark, tmp_path / "source", table, checkpoint, **options)
    assert rows_of(table, table_format) == rows
    files = data_files(table)

    # As after a kill between the table's transaction and the checkpoint's note of it.
    last = checkpoint / "commits" / str(BATCHES - 1)
    last.unlink()
    (checkpoint / "commits" / f".{BATCHES - 1}.crc").unlink(missing_ok=True)
    second = run(spark, tmp_path / "source", table, checkpoint, **options)
    assert last.exists(), "the batch was not run again"
    assert second.id == first.id
    assert rows_of(table, table_format) == rows
    assert data_files(table) == files, "the files of the second run stayed"

    more = rows + write_source(tmp_path / "source", first=BATCHES, batches=1)
    run(spark, tmp_path / "source", table, checkpoint, **options)
    assert rows_of(table, table_format) == more
    if table_format == "delta":
        # The property that tells tasks their query is not documented by Spark: this pins it.
        assert DeltaTable(str(table)).transaction_version(str(first.id)) == BATCHES
    else:
        assert sorted(os.listdir(table)) == [
            f"tidelog_batch={first.id}-{batch:010}" for batch in range(BATCHES + 1)
        ]


def test_a_fresh_checkpoint_is_a_new_query_and_loses_no_batch(spark: Any, tmp_path: Path) -> None:
    """And two queries append to one table at the same time."""
    table = tmp_path / "lake" / "visits"
    rows = write_source(tmp_path / "source")
    first = start(spark, tmp_path / "source", table, tmp_path / "first")
    second = start(spark, tmp_path / "source", table, tmp_path / "second")
    first.awaitTermination()
    second.awaitTermination()
    assert first.id != second.id
    assert rows_of(table, "delta") == sorted(rows * 2, key=lambda row: row["id"])
    versions = {DeltaTable(str(table)).transaction_version(str(q.id)) for q in (first, second)}
    assert versions == {BATCHES - 1}


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_killed_task_and_a_killed_driver_double_nothing(
    spark: Any, tmp_path: Path, table_format: str
) -> None:
    """P1 and P2, with real kills."""
    table, checkpoint = tmp_path / "lake" / "t", tmp_path / "state"
    rows = write_source(tmp_path / "source", batches=LAST_BATCH + 1)
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.table_driver", str(tmp_path), table_format],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=(tmp_path / "log").open("wb"),
    )  # fmt: skip
    try:
        wait_until((tmp_path / "committed").exists, driver, tmp_path / "log")
    finally:
        kill_with_descendants(driver)
    assert (tmp_path / "killed").exists(), "no task was killed"
    assert rows_of(table, table_format) == rows, "the table's transaction came before the kill"
    assert not (checkpoint / "commits" / str(LAST_BATCH)).exists(), "Spark has noted the batch"

    more = rows + write_source(tmp_path / "source", first=LAST_BATCH + 1, batches=1)
    run(spark, tmp_path / "source", table, checkpoint, format=table_format)
    assert rows_of(table, table_format) == more


ALL_TYPES = """
  SELECT id, id % 2 = 0 AS b, CAST(id AS BYTE) AS i1, CAST(id AS SHORT) AS i2,
    CAST(id AS INT) AS i4, CAST(id AS FLOAT) AS f4, id / 3 AS f8,
    CAST(id / 7 AS DECIMAL(38, 18)) AS big, CAST(id AS DECIMAL(5, 1)) AS small,
    CONCAT('ü☃', id) AS text, CAST(CAST(id AS STRING) AS BINARY) AS raw,
    DATE '0001-01-02' + CAST(id AS INT) AS d, TIMESTAMP '1969-12-31 23:59:59.999999' AS t,
    TIMESTAMP_NTZ '9999-12-31 23:59:59.999999' AS n, ARRAY(id, NULL) AS l,
    NAMED_STRUCT('x', id, 'y', ARRAY(NAMED_STRUCT('z', 'q'))) AS o, MAP('k', id) AS m,
    CAST(NULL AS STRING) AS nothing, ARRAY() :: ARRAY<INT> AS empty,
    CAST('NaN' AS DOUBLE) AS nan, CAST(id AS CHAR(10)) AS fixed
  FROM (SELECT explode(array(-1L, 0L, 100L)) AS id)
  UNION ALL SELECT 7, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL
"""


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_every_type_comes_back(spark: Any, tmp_path: Path, table_format: str) -> None:
    path = str(tmp_path / "t")
    expected = spark.sql(ALL_TYPES)
    options = {"path": path, "format": table_format}
    expected.write.format("tidelog_table").options(**options).mode("append").save()
    if table_format == "delta":
        table = DeltaTable(path)
        found = spark.read.parquet(*table.file_uris())
        # The reader without Spark agrees on types and values.
        assert table.to_pyarrow_table().num_rows == 4
        kinds = {
            each["name"]: each["type"] for each in json.loads(table.schema().to_json())["fields"]
        }
        assert kinds["big"] == "decimal(38,18)" and kinds["n"] == "timestamp_ntz"
    else:
        found = spark.read.parquet(path).drop("tidelog_batch")
    assert found.schema.simpleString() == expected.schema.simpleString()
    assert sorted(map(repr, found.collect())) == sorted(map(repr, expected.collect()))


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_batch_write_appends_replaces_and_refuses(
    spark: Any, tmp_path: Path, table_format: str
) -> None:
    path = str(tmp_path / "t")

    def write(rows: str, mode: str, **options: str) -> None:
        frame = spark.sql(f"SELECT * FROM VALUES {rows} AS t(id, day)")
        writer = frame.write.format("tidelog_table").options(format=table_format, **options)
        writer.mode(mode).save(path)

    write("(1, 'a/b'), (2, NULL)", "append", partitionBy="day")
    write("(3, 'ü %')", "append")
    found = spark.read.parquet(path) if table_format == "parquet" else read_delta(spark, path)
    rows = [(row.id, row.day) for row in found.orderBy("id").collect()]
    assert rows == [(1, "a/b"), (2, None), (3, "ü %")]
    write("(4, 'c')", "overwrite")
    assert [row["id"] for row in rows_of(Path(path), table_format)] == [4]
    with pytest.raises(PySparkException, match="'day' is string in the table and integer"):
        write("(5, 5)", "append")
    assert [row["id"] for row in rows_of(Path(path), table_format)] == [4]


def read_delta(spark: Any, path: str) -> Any:
    """As the page on tables tells."""
    return spark.read.option("basePath", path).parquet(*DeltaTable(path).file_uris())


def test_complete_mode_keeps_the_newest_result(spark: Any, tmp_path: Path) -> None:
    rows = write_source(tmp_path / "source", batches=2)
    counts = read_source(spark, tmp_path / "source").groupBy("day").count()
    query = (
        counts.writeStream.format("tidelog_table")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "t"))
    )
    query.awaitTermination()
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().sort_by("day").to_pylist()
    expected = sorted(Counter(row["day"] for row in rows).items())
    assert [(row["day"], row["count"]) for row in found] == expected
