"""The columns of a record, as Spark's Kafka connector names and types them. Needs no Arrow."""

from __future__ import annotations

from typing import Final

HEADERS: Final = "array<struct<key:string,value:binary>>"

# Each with its type in Spark's words.
RECORD_COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": HEADERS,
}
