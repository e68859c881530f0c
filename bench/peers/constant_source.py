"""A Spark source that reads nothing: the limit that Spark sets for any source in Python.

Each of its tasks yields one Arrow record batch again and again, of the columns and about the size
that our source makes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.arrow.columns import record_schema

NAME = "bench_constant"
_BATCH_BYTES = 4 << 20
_TASKS = 4


class ConstantSource(DataSource):
    """`records` records of `recordBytes` bytes each."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return (
            "key binary, value binary, topic string, partition int, offset long, "
            "timestamp timestamp, timestampType int"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(int(self.options["records"]), int(self.options["recordBytes"]))


class _Reader(DataSourceReader):
    def __init__(self, records: int, record_bytes: int) -> None:
        self._records = records
        self._record_bytes = record_bytes

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(_TASKS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batch = _batch(min(_BATCH_BYTES // self._record_bytes, self._records), self._record_bytes)
        left = self._records // _TASKS
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows


def _batch(rows: int, record_bytes: int) -> pa.RecordBatch:
    now = dt.datetime.now(dt.UTC)
    row = {
        "key": b"0000000",
        "value": b"x" * record_bytes,
        "topic": "bench",
        "partition": 0,
        "offset": 0,
        "timestamp": now,
        "timestampType": 0,
    }
    return pa.RecordBatch.from_pylist([row] * rows, schema=record_schema())
