"""What Delta's log says of a data file: rows, and per column nulls, smallest and largest value.

Taken from the footer that pyarrow has just written; no value is looked at again. Readers skip files
by these figures, so a bound that might mislead is left out: floats (a NaN is in no bound, yet
compares as the largest), decimals (JSON has no exact ones), booleans, binary, and whatever lies in
lists and maps. Long strings are cut, the upper bound upwards.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

STRING_CHARACTERS_MAX = 32
_LARGEST_CHARACTER = "\U0010ffff"


@dataclass(slots=True)
class _Column:
    """One leaf column over all row groups; `bounds` is None where nothing may be said."""

    path: tuple[str, ...]
    bounded: bool
    null_count: int = 0
    bounds: tuple[Any, Any] | None = None

    def add(self, chunk: pq.ColumnChunkMetaData) -> None:
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            raise ValueError(f"no statistics were written for column {'.'.join(self.path)}")
        self.null_count += statistics.null_count
        if statistics.null_count == chunk.num_values:
            return
        if not self.bounded or not statistics.has_min_max:
            self.bounded = False
            return
        try:
            low, high = statistics.min, statistics.max
        except (OverflowError, ValueError):  # a day or moment that Python has no name for
            self.bounded = False
            return
        lowest, highest = self.bounds or (low, high)
        self.bounds = min(lowest, low), max(highest, high)


def file_statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> str:
    """The `stats` of an add action, as JSON."""
    columns = {
        ".".join(path): _Column(path, _has_bounds(kind))
        for field in schema
        for path, kind in _leaves((field.name,), field.type)
    }
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            chunk = row_group.column(index)
            if chunk.path_in_schema in columns:
                columns[chunk.path_in_schema].add(chunk)
    bounds = {c.path: c.bounds for c in columns.values() if c.bounded and c.bounds is not None}
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": _nested({path: _lower(low) for path, (low, _) in bounds.items()}),
            "maxValues": _nested({path: _upper(high) for path, (_, high) in bounds.items()}),
            "nullCount": _nested({column.path: column.null_count for column in columns.values()}),
        }
    )


def _leaves(path: tuple[str, ...], kind: pa.DataType) -> Iterator[tuple[tuple[str, ...], Any]]:
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            field = kind.field(index)
            yield from _leaves((*path, field.name), field.type)
    elif not pa.types.is_nested(kind):
        yield path, kind


def _has_bounds(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def _lower(value: Any) -> Any:
    return value[:STRING_CHARACTERS_MAX] if isinstance(value, str) else _as_json(value)


def _upper(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= STRING_CHARACTERS_MAX:
        return _as_json(value)
    return value[:STRING_CHARACTERS_MAX] + _LARGEST_CHARACTER


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text if value.tzinfo is None else f"{text}Z"
    return value.isoformat() if isinstance(value, datetime.date) else value


def _nested(values: dict[tuple[str, ...], Any]) -> dict[str, Any]:
    """``{("a", "b"): 1}`` as ``{"a": {"b": 1}}``."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        branch = tree
        for name in path[:-1]:
            branch = branch.setdefault(name, {})
        branch[path[-1]] = value
    return tree
