"""Rows of a DataFrame to topics: the writers of `format("tidelog")`, for batches and for streams.

Columns as in Spark's Kafka connector: `value` (string or binary) must be there; `key` (string or
binary), `topic` (string), `partition` (int) and `headers` (array of key and value) may be; others
are left alone. One more is ours: `timestamp`, the records' own time in place of the present.

Promise: at least once. A task attempt is one idempotent producer, so retries inside it duplicate
nothing; an attempt that is run again (a lost worker, a resumed stream) writes its rows again.
Nothing is done in `commit` that would be needed for a row to be seen. With `exactlyOnce` the
writers of `once` take over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from tidelog.arrow.record_columns import HEADERS
from tidelog.arrow.writer import ArrowWriter, WriterSettings
from tidelog.errors import ConfigError
from tidelog.spark.launch.worker import settle
from tidelog.spark.sink.once import OnceBatchWriter, OnceStreamWriter
from tidelog.spark.sink.write_options import parse_once_options, parse_write_options

_log = logging.getLogger(__name__)

_TEXT: Final = (StringType, CharType, VarcharType)
_COLUMNS: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "topic": (_TEXT, "a string"),
    "key": ((*_TEXT, BinaryType), "a string or binary"),
    "value": ((*_TEXT, BinaryType), "a string or binary"),
    "partition": ((IntegerType,), "an int"),
    "timestamp": ((TimestampType,), "a timestamp"),
}


class ColumnError(ConfigError):
    """A column that is missing or of a type that no record can have."""


@dataclass
class Written(WriterCommitMessage):
    """What one task has written: records by topic and partition."""

    records: dict[tuple[str, int], int]


class _Writer:
    """What batch and stream share: made in the driver, pickled, and used by tasks."""

    def __init__(self, settings: WriterSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._settings, iterator)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame to topics."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _log.info("batch written records=%d", count_records(messages))


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch to topics."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _log.info("micro-batch written batch=%d records=%d", batchId, count_records(messages))


def batch_writer(
    schema: StructType, options: Mapping[str, str], overwrite: bool
) -> BatchWriter | OnceBatchWriter:
    """The writer of `df.write.format("tidelog")`."""
    if overwrite:
        raise ConfigError("a topic cannot be overwritten; write with mode('append')")
    settings = _checked(schema, options)
    once = parse_once_options(options, streaming=False)
    return BatchWriter(settings) if once is None else OnceBatchWriter(settings, once)


def stream_writer(
    schema: StructType, options: Mapping[str, str], overwrite: bool
) -> StreamWriter | OnceStreamWriter:
    """The writer of `df.writeStream.format("tidelog")`."""
    if overwrite:
        raise ConfigError(
            "output mode complete would append the whole result with every micro-batch; write"
            " updates by foreachBatch and the batch writer, in output mode update"
        )
    settings = _checked(schema, options)
    once = parse_once_options(options, streaming=True)
    return StreamWriter(settings) if once is None else OnceStreamWriter(settings, once)


def write_rows(settings: WriterSettings, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write all of a task's rows, and return when they are acknowledged."""
    settle()
    with ArrowWriter(settings) as writer:
        for batch in batches:
            writer.write(batch)
        written = writer.finish()
    return Written({(topic, number): count for (topic, number), count in written.items()})


def count_records(messages: list[WriterCommitMessage | None]) -> int:
    """How many records the tasks have written; a task that failed left no message."""
    return sum(
        sum(message.records.values()) for message in messages if isinstance(message, Written)
    )


def _checked(schema: StructType, options: Mapping[str, str]) -> WriterSettings:
    settings = parse_write_options(options)
    fields = {field.name: field.dataType for field in schema.fields}
    if "value" not in fields:
        raise ColumnError("column 'value' is missing; it must be a string or binary")
    if settings.topic is None and "topic" not in fields:
        raise ColumnError("no topic is named: set the option 'topic' or add a column 'topic'")
    for name, (kinds, expected) in _COLUMNS.items():
        if name in fields and not isinstance(fields[name], kinds):
            raise ColumnError(
                f"column '{name}' has the type {fields[name].simpleString()}; it must be {expected}"
            )
    if "headers" in fields and not _are_headers(fields["headers"]):
        raise ColumnError(
            f"column 'headers' has the type {fields['headers'].simpleString()};"
            f" it must be {HEADERS}"
        )
    return settings


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    parts = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return parts == [("key", StringType), ("value", BinaryType)]
