"""`format("tidelog_table")`: a query kept as a Delta table or a directory of Parquet, exactly once.

    query.writeStream.format("tidelog_table").option("checkpointLocation", "state/visits")
         .option("partitionBy", "day").start("lake/visits")

Options (names are case-insensitive; an unknown one is an error):

``path``         the table's directory; what `start()` and `save()` are given
``format``       ``delta`` (the default) or ``parquet``
``partitionBy``  columns, with commas between; `DataStreamWriter.partitionBy` is not passed on by
                 Spark to Python sinks
``mergeSchema``  ``true``: columns that the table does not have are added; else they are refused
``txnAppId``     with ``txnVersion``, for a batch write (in `foreachBatch`): a version that the
                 table already has from this writer is not written again

Output modes: append, and complete, which replaces the table's rows; Spark offers Python sinks no
update mode. The batch writer appends, or with mode ``overwrite`` replaces all rows.

**Exactly once.** A micro-batch is one transaction of the table, named by the query's id (which
lives in the checkpoint) and the batch's. A batch that Spark runs again, because the driver was
killed before it had noted the first run, is not added again. A fresh checkpoint is a new query: its
batches are all new. Tasks that were retried, killed or run twice leave at most files that no table
refers to. A batch without rows makes no transaction.

The query's id reaches tasks as a local property that Spark does not document; without it a write is
refused, and a test holds it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidelog.spark.table.files import TableFiles
from tidelog.spark.table.options import DELTA, TableError, TableOptions, check_columns, nullable
from tidelog.spark.table.parquet import ParquetTarget
from tidelog.spark.table.target import Commit, TableTarget, WrittenFiles

QUERY_ID_PROPERTY = "sql.streaming.queryId"


class _TableWriter:
    """What batch and stream share; made in the driver, pickled, and used by tasks as well."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options, self._overwrite = TableOptions.parse(options), overwrite
        self._schema: str = nullable(schema).json()
        check_columns(schema, self._options.partition_by)
        self._partition_by = self._target().prepare()
        check_columns(schema, self._partition_by)

    def _target(self) -> TableTarget:
        if self._options.format == DELTA:
            from tidelog.spark.table.delta import DeltaTarget

            return DeltaTarget(self._options, self._schema)
        return ParquetTarget(self._options, self._schema)

    def _write(self, batches: Iterable[pa.RecordBatch], app_id: str) -> WrittenFiles:
        directory = self._target().task_directory(app_id)
        files = TableFiles(directory, self._partition_by).write_all(batches)
        return WrittenFiles(app_id, directory, files)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        written = _written(messages)
        if written:
            self._target().discard(written)


class StreamTableWriter(_TableWriter, DataSourceStreamArrowWriter):
    """A streaming query's sink: a transaction per micro-batch."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write(iterator, _query_id())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = _written(messages)
        if written:
            app_id = written[0].app_id
            assert {each.app_id for each in written} == {app_id}, "a batch is of one query"
            commit = Commit(app_id, batchId, written, self._overwrite, streaming=True)
            self._target().commit(commit)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


class BatchTableWriter(_TableWriter, DataSourceArrowWriter):
    """A batch write: one transaction."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self._app_id = str(uuid.uuid4())
        self._version: int | None = None
        if self._options.transaction is not None:
            self._app_id, self._version = self._options.transaction

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write(iterator, self._app_id)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = _written(messages)
        self._target().commit(Commit(self._app_id, self._version, written, self._overwrite))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


def _query_id() -> str:
    from pyspark import TaskContext

    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(QUERY_ID_PROPERTY)
    if not query_id:
        raise TableError(f"Spark gave the task no {QUERY_ID_PROPERTY}: nothing can be written once")
    return query_id


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenFiles]:
    """A task that failed has no message."""
    return [message for message in messages if isinstance(message, WrittenFiles)]
