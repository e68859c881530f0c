"""The columns of a record, named and typed as in Spark's Kafka connector."""

from __future__ import annotations

import pyarrow as pa

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

COLUMNS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(HEADER),
}


def record_schema(names: tuple[str, ...] | None = None) -> pa.Schema:
    """The Arrow schema of these columns, or of all but the headers."""
    chosen = names if names is not None else tuple(name for name in COLUMNS if name != "headers")
    for name in chosen:
        if name not in COLUMNS:
            raise ValueError(f"a record has no column '{name}'; it has {', '.join(COLUMNS)}")
    return pa.schema([(name, COLUMNS[name]) for name in chosen])
