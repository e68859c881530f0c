"""The writers of tables as tasks and the driver call them, without a Spark session."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql import types
from pyspark.sql.types import DataType, StructType

from pyspark_tidelog_table import DefaultSource

FORMATS = ["delta", "parquet"]
KINDS: dict[str, DataType] = {
    "boolean": types.BooleanType(),
    "short": types.ShortType(),
    "int": types.IntegerType(),
    "long": types.LongType(),
    "double": types.DoubleType(),
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "date": types.DateType(),
    "timestamp": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "interval": types.DayTimeIntervalType(),
    "void": types.NullType(),
    "variant": types.VariantType(),
}
Columns = dict[str, str | DataType]
COLUMNS: Columns = {"id": "long", "day": "string"}


def schema_of(columns: Columns) -> StructType:
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, KINDS[kind] if isinstance(kind, str) else kind)
    return schema


def batch_of(ids: Any, day: str | None = "a") -> pa.RecordBatch:
    ids = list(ids)
    return pa.record_batch(
        {"id": pa.array(ids, pa.int64()), "day": pa.array([day] * len(ids), pa.string())}
    )


def batch_writer(
    path: Path, columns: Columns = COLUMNS, overwrite: bool = False, **options: str
) -> Any:
    return DefaultSource({"path": str(path), **options}).writer(schema_of(columns), overwrite)


def stream_writer(
    path: Path, columns: Columns = COLUMNS, overwrite: bool = False, **options: str
) -> Any:
    return DefaultSource({"path": str(path), **options}).streamWriter(schema_of(columns), overwrite)


def append(
    path: Path, *batches: pa.RecordBatch, columns: Columns = COLUMNS, **options: str
) -> None:
    writer = batch_writer(path, columns, **options)
    writer.commit([writer.write(iter(batches))])


def read(path: Path, table_format: str) -> pa.Table:
    """What a reader without Spark sees."""
    if table_format == "delta":
        return DeltaTable(str(path)).to_pyarrow_table()
    files = glob.glob(f"{path}/**/*.parquet", recursive=True)
    read = ds.dataset(files, partitioning="hive", partition_base_dir=str(path)).to_table()
    return read.drop_columns(["tidelog_batch"])


def ids_of(path: Path, table_format: str) -> list[int]:
    return sorted(read(path, table_format)["id"].to_pylist())


def parquet_files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.parquet"))


def start_delta_runtime(directory: Path) -> None:
    """delta-rs starts its event loops once per process and keeps them: no leak, so do it first."""
    append(directory / "t", batch_of([1]))
    assert ids_of(directory / "t", "delta") == [1]
