"""May these columns be written to that table? Schemas are Spark's JSON, which is Delta's too.

A table keeps the type of each column for good. A query may leave columns out (they are null in its
rows); one that brings new columns is refused unless `mergeSchema` asks to add them.
"""

from __future__ import annotations

import json
from typing import Any

from tidelog.spark.table.options import TableError

_NOT_OF_THE_TYPE = ("nullable", "containsNull", "valueContainsNull", "metadata")


def new_columns(incoming: str, existing: str, merge: bool) -> list[dict[str, Any]]:
    """The fields that the table does not have yet; an error where it cannot take them."""
    table = {field["name"]: field for field in json.loads(existing)["fields"]}
    in_lower_case = {name.lower(): name for name in table}
    added = []
    for field in json.loads(incoming)["fields"]:
        name = field["name"]
        if name in table:
            ours, theirs = _type_only(field["type"]), _type_only(table[name]["type"])
            if ours != theirs:
                raise TableError(
                    f"column {name!r} is {_told(theirs)} in the table and {_told(ours)} in the "
                    "query: cast it, or write to another table"
                )
        elif name.lower() in in_lower_case:
            other = in_lower_case[name.lower()]
            raise TableError(f"column {name!r} is called {other!r} in the table: rename it")
        else:
            added.append(field)
    if added and not merge:
        names = ", ".join(field["name"] for field in added)
        raise TableError(
            f"the table has no column {names}: set option mergeSchema (new_columns: add in a"
            " pipeline's file) to add it, or leave it out"
        )
    return added


def with_columns(existing: str, added: list[dict[str, Any]]) -> str:
    """The table's schema with these fields behind its own."""
    schema = json.loads(existing)
    return json.dumps({**schema, "fields": schema["fields"] + added})


def partition_columns(asked: tuple[str, ...], existing: list[str]) -> tuple[str, ...]:
    """Those of the table, which are also taken when none are asked for."""
    if asked and list(asked) != existing:
        kept = ", ".join(existing) or "no column"
        raise TableError(f"partitionBy is {', '.join(asked)}; the table is partitioned by {kept}")
    return tuple(existing)


def _type_only(kind: Any) -> Any:
    if isinstance(kind, dict):
        return {
            key: _type_only(value) for key, value in kind.items() if key not in _NOT_OF_THE_TYPE
        }
    return [_type_only(each) for each in kind] if isinstance(kind, list) else kind


def _told(kind: Any) -> str:
    return kind if isinstance(kind, str) else json.dumps(kind)
