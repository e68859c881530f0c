"""The columns of a record as Arrow has them."""

from __future__ import annotations

import pyarrow as pa

from tidelog.arrow.record_columns import HEADERS, RECORD_COLUMNS

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_TYPES = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    HEADERS: pa.list_(HEADER),
}
COLUMNS: dict[str, pa.DataType] = {name: _TYPES[kind] for name, kind in RECORD_COLUMNS.items()}


def record_schema(names: tuple[str, ...] | None = None) -> pa.Schema:
    """The Arrow schema of these columns, or of all but the headers."""
    chosen = names if names is not None else tuple(name for name in COLUMNS if name != "headers")
    for name in chosen:
        if name not in COLUMNS:
            raise ValueError(f"a record has no column '{name}'; it has {', '.join(COLUMNS)}")
    return pa.schema([(name, COLUMNS[name]) for name in chosen])
