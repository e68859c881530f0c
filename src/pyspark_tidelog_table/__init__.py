"""Lets Spark find the tables: `format("tidelog_table")`, with nothing to register.

As with `pyspark_tidelog`, nothing is imported here but Spark's own interface.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """`tidelog_table`: a query kept as Delta or Parquet; options in `spark.table.writers`."""

    @classmethod
    def name(cls) -> str:
        return "tidelog_table"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from tidelog.spark.table.writers import BatchTableWriter

        return BatchTableWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from tidelog.spark.table.writers import StreamTableWriter

        return StreamTableWriter(self.options, schema, overwrite)
