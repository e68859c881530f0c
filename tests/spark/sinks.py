"""The sink as a data source of these tests' own, and one whose worker is killed in mid-write."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tidelog.spark.sink import (
    BatchWriter,
    StreamWriter,
    Written,
    batch_writer,
    stream_writer,
    write_rows,
)

FORMAT = "tidelog_sink"
KILLED_FORMAT = "tidelog_sink_killed"
BATCHES_BEFORE_KILL = 5


class Sink(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return batch_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return stream_writer(schema, self.options, overwrite)


class KilledWriter(BatchWriter):
    """The first attempt of the first task ends as if the machine had been switched off."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._settings, self._until_killed(iterator))

    def _until_killed(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task: Any = TaskContext.get()
        for number, batch in enumerate(iterator):
            if (task.attemptNumber(), task.partitionId(), number) == (0, 0, BATCHES_BEFORE_KILL):
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch


class KilledSink(Sink):
    @classmethod
    def name(cls) -> str:
        return KILLED_FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return KilledWriter(batch_writer(schema, self.options, overwrite)._settings)


def register(spark: SparkSession) -> None:
    spark.dataSource.register(Sink)
    spark.dataSource.register(KilledSink)
