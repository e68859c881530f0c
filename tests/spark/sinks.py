"""The sink with a worker that is killed in mid-write."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tidelog.spark.sink.writer import BatchWriter, Written, batch_writer, write_rows

KILLED_FORMAT = "tidelog_killed"
BATCHES_BEFORE_KILL = 5


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


class KilledSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return KILLED_FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return KilledWriter(batch_writer(schema, self.options, overwrite)._settings)
