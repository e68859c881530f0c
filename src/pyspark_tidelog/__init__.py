"""Lets Spark find the data source: `spark.read.format("tidelog")`, with nothing to register.

Spark imports every package of this kind on any look-up, and one that fails to import disables all
sources; so nothing is imported here but Spark's own interface.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """`tidelog`: topics as rows, with the columns and options of Spark's Kafka connector."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> str:
        from tidelog.spark.source.reader import default_schema

        return default_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from tidelog.spark.source.reader import TidelogReader

        return TidelogReader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tidelog.spark.source.reader import TidelogStreamReader

        return TidelogStreamReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tidelog.spark.sink.writer import batch_writer

        return batch_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from tidelog.spark.sink.writer import stream_writer

        return stream_writer(schema, self.options, overwrite)
