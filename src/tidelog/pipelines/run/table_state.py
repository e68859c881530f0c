"""A target's table against the checkpoint of the query that writes it.

The table knows the query's batches by an id that lives in the checkpoint. Where the checkpoint is
gone, or is an older copy, that knowledge does not help: a new query would write every row again, an
older one would take other rows for those that are there. Where the table is gone, the query would
go on without the rows that it has written. All this is refused before a row is read.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

from tidelog.pipelines.declare.pipeline import PipelineError, TableSink
from tidelog.pipelines.run.checkpoint import Checkpoint
from tidelog.spark.table import parquet
from tidelog.spark.table.parquet import beside


class _Kind(Protocol):
    """What the module of a table's format can say."""

    def is_there(self, path: str) -> bool: ...
    def holds_rows(self, path: str) -> bool: ...
    def newest_batch(self, path: str, app_id: str) -> int | None: ...


def _kind(table: TableSink) -> _Kind:
    if table.format == "delta":
        try:
            from tidelog.spark.table import delta
        except ModuleNotFoundError as error:
            raise PipelineError(
                f"a Delta table needs {error.name}: pip install 'tidelog[tables]'"
            ) from error
        return delta
    return parquet


def check_table(checkpoint: Checkpoint, table: TableSink, file: str, *, append: bool) -> None:
    """PipelineError where going on would double rows or lose some.

    `append` allows a query without a checkpoint to add to the rows of a table.
    """
    kind, name = _kind(table), checkpoint.query
    planned = checkpoint.planned
    if planned is None:
        if not append and kind.holds_rows(table.path):
            raise PipelineError(
                f"{name}: there is no checkpoint in {checkpoint.path}, but the table"
                f" {table.path} has rows, which would come twice. Put the checkpoint back, or"
                f" {checkpoint.anew(file)}, which sets the table aside; --append {name} adds"
                " to the rows that are there"
            )
        return
    # Both formats make their table with the first batch, also with one that has no rows.
    if checkpoint.done is not None and not kind.is_there(table.path):
        raise PipelineError(
            f"{name}: the table {table.path} is gone, and the checkpoint {checkpoint.path} has"
            f" written {checkpoint.done + 1} batches to it, whose rows would be missing. Put"
            f" the table back, or {checkpoint.anew(file)}"
        )
    newest = kind.newest_batch(table.path, checkpoint.query_id)
    if newest is not None and newest > planned:
        raise PipelineError(
            f"{name}: the table {table.path} has its batch {newest}, and the checkpoint"
            f" {checkpoint.path} ends at {planned}: the checkpoint is older than the table. Put"
            f" the newer checkpoint back, or {checkpoint.anew(file)}"
        )


def set_aside(table: TableSink) -> str | None:
    """Rename a table that is to be written anew; where it is now, or None where there was none."""
    aside = f"{table.path}.before-{time.strftime('%Y%m%dT%H%M%S')}"
    found = False
    # What a table of Parquet has beside it first: without it the rest is still a table.
    for old, new in ((beside(table.path), beside(aside)), (table.path, aside)):
        if Path(old).exists():
            os.rename(old, new)
            found = True
    return aside if found else None
