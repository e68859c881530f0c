"""Streams of JSON files into tables: a file is a micro-batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.spark.table_writers import read

BATCHES = 3
ROWS_PER_BATCH = 40


def write_source(directory: Path, first: int = 0, batches: int = BATCHES) -> list[dict[str, Any]]:
    """A file per micro-batch; what the rows are."""
    directory.mkdir(exist_ok=True)
    rows = []
    for batch in range(first, first + batches):
        ids = range(batch * ROWS_PER_BATCH, (batch + 1) * ROWS_PER_BATCH)
        part = [{"id": each, "day": f"2026-01-0{1 + each % 2}"} for each in ids]
        (directory / f"{batch:03}.json").write_text("\n".join(map(json.dumps, part)))
        rows += part
    return rows


def read_source(spark: Any, source: Path) -> Any:
    """A stream of all there is, a file per micro-batch."""
    reader = spark.readStream.schema("id long, day string").option("maxFilesPerTrigger", "1")
    return reader.json(str(source))


def start(
    spark: Any,
    source: Path,
    table: Path,
    checkpoint: Path,
    sink: str = "tidelog_table",
    **options: str,
) -> Any:
    return (
        read_source(spark, source)
        .writeStream.format(sink)
        .options(checkpointLocation=str(checkpoint), **options)
        .trigger(availableNow=True)
        .start(str(table))
    )


def run(spark: Any, source: Path, table: Path, checkpoint: Path, **options: str) -> Any:
    query = start(spark, source, table, checkpoint, **options)
    query.awaitTermination()
    return query


def rows_of(table: Path, table_format: str) -> list[dict[str, Any]]:
    found = read(table, table_format).select(["id", "day"])
    return sorted(found.to_pylist(), key=lambda row: row["id"])
