"""The options of `format("tidelog_table")`, and which columns a table can hold.

Every option is in `OPTIONS`; one that is not, and that is not Spark's own, is refused by name, so
that a misspelt `partitionBy` does not become a table without partitions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pyspark.sql import types

DELTA, PARQUET = "delta", "parquet"
OPTIONS = ("path", "format", "partitionBy", "mergeSchema", "txnAppId", "txnVersion")
# What a streaming query leaves among the options of its sink, for itself.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})

_PARTITION_TYPES = (
    types.StringType, types.ByteType, types.ShortType, types.IntegerType, types.LongType,
    types.BooleanType, types.DateType, types.TimestampType, types.TimestampNTZType,
)  # fmt: skip
_COLUMN_TYPES = (
    *_PARTITION_TYPES, types.FloatType, types.DoubleType, types.DecimalType, types.BinaryType,
)  # fmt: skip


class TableError(ValueError):
    """What was asked for cannot be written to this table; nothing was."""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Where a table lies and how it is to be written."""

    path: str
    format: str = DELTA
    partition_by: tuple[str, ...] = ()
    merge_schema: bool = False
    transaction: tuple[str, int] | None = None  # (txnAppId, txnVersion) of a batch write

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> TableOptions:
        """Check what the user gave; names are case-insensitive, as everywhere in Spark."""
        given = {name.lower(): value for name, value in options.items()}
        known = {name.lower() for name in OPTIONS} | _SPARKS_OWN
        unknown = sorted(given.keys() - known)
        if unknown:
            raise TableError(f"unknown option {unknown[0]!r}; there are {', '.join(OPTIONS)}")
        if not given.get("path"):
            raise TableError("option 'path' is missing: the directory of the table")
        table_format = given.get("format", DELTA).lower()
        if table_format not in (DELTA, PARQUET):
            raise TableError(f"option 'format' is {table_format!r}; it is 'delta' or 'parquet'")
        names = [name.strip() for name in given.get("partitionby", "").split(",")]
        return cls(
            path=_local_path(given["path"]),
            format=table_format,
            partition_by=tuple(name for name in names if name),
            merge_schema=_boolean("mergeSchema", given.get("mergeschema", "false")),
            transaction=_transaction(given.get("txnappid"), given.get("txnversion")),
        )


def _local_path(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme == "file":
        text = unquote(parts.path)
    elif parts.scheme and "://" in text:
        raise TableError(
            f"option 'path' is {text!r}: tables are written to a local or mounted file system"
        )
    # Tasks may have another working directory than the driver, where this runs.
    return os.path.abspath(text)


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise TableError(f"option {name!r} is {text!r}; it is 'true' or 'false'")
    return text.lower() == "true"


def _transaction(app_id: str | None, version: str | None) -> tuple[str, int] | None:
    if app_id is None and version is None:
        return None
    if not app_id or version is None or not version.isdecimal():
        raise TableError("options 'txnAppId' and 'txnVersion' (a number) go together")
    return app_id, int(version)


def check_columns(schema: types.StructType, partition_by: tuple[str, ...]) -> None:
    """Refuse what the formats cannot hold, before a row is read."""
    names = [field.name for field in schema.fields]
    lowered = [name.lower() for name in names]
    for name in names:
        if lowered.count(name.lower()) > 1:
            raise TableError(f"column {name!r} is there twice (upper and lower case are the same)")
    for field in schema.fields:
        _check_type(field.name, field.dataType)
    for name in partition_by:
        if name not in names:
            raise TableError(f"partitionBy: there is no column {name!r} in {', '.join(names)}")
        if not isinstance(schema[name].dataType, _PARTITION_TYPES):
            kind = schema[name].dataType.simpleString()
            raise TableError(f"partitionBy: column {name!r} is {kind}, which names no directory")
    if names and len(partition_by) == len(names):
        raise TableError("partitionBy: at least one column must be left for the files")


def _check_type(path: str, kind: types.DataType) -> None:
    if isinstance(kind, types.StructType):
        for field in kind.fields:
            _check_type(f"{path}.{field.name}", field.dataType)
        if not kind.fields:
            raise TableError(f"column {path!r} is a struct without fields")
    elif isinstance(kind, types.ArrayType):
        _check_type(f"{path}.element", kind.elementType)
    elif isinstance(kind, types.MapType):
        _check_type(f"{path}.key", kind.keyType)
        _check_type(f"{path}.value", kind.valueType)
    elif not isinstance(kind, _COLUMN_TYPES):
        raise TableError(f"column {path!r} is {kind.simpleString()}, which a table cannot hold")


def nullable(kind: types.DataType) -> types.DataType:
    """The same type with every field nullable: Spark's NOT NULL is about a query, not a table."""
    if isinstance(kind, types.StructType):
        return types.StructType(
            [types.StructField(each.name, nullable(each.dataType)) for each in kind.fields]
        )
    if isinstance(kind, types.ArrayType):
        return types.ArrayType(nullable(kind.elementType))
    if isinstance(kind, types.MapType):
        return types.MapType(nullable(kind.keyType), nullable(kind.valueType))
    return types.StringType() if isinstance(kind, types.StringType) else kind
