"""A Delta table, written by delta-rs: no jar, no catalog, read by everything that reads Delta.

Tasks put their files into the table's directory, where nothing refers to them. A commit is one
transaction of Delta's log: it adds the files and records the writer's version (Delta's ``txn``
action), so a change that is asked for again finds itself done. Two drivers with the same query id
conflict on that record, and one of them loses.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from tidelog.spark.table.files import remove_files
from tidelog.spark.table.options import TableError, TableOptions
from tidelog.spark.table.schema import new_columns, partition_columns
from tidelog.spark.table.target import Commit, WrittenFiles

# Another writer may change the table's metadata under a commit; delta-rs itself goes on after a
# mere append of another.
COMMIT_ATTEMPTS = 3


class DeltaTarget:
    """Promises: a commit is in the table wholly or not at all, and once."""

    def __init__(self, options: TableOptions, schema: str) -> None:
        self._path = options.path
        self._partition_by = options.partition_by
        self._merge_schema, self._schema = options.merge_schema, schema

    def prepare(self) -> tuple[str, ...]:
        table = open_table(self._path)
        if table is None:
            return self._partition_by
        self._check(table)
        return tuple(table.metadata().partition_columns)

    def task_directory(self, app_id: str) -> str:
        return self._path

    def commit(self, commit: Commit) -> None:
        for attempts_left in reversed(range(COMMIT_ATTEMPTS)):
            try:
                return self._commit_once(commit)
            except CommitFailedError:
                if not attempts_left:
                    raise

    def discard(self, written: list[WrittenFiles]) -> None:
        """A commit that reported a failure may still have happened: ask the table, then remove."""
        table = open_table(self._path)
        # By name, which no other file has: the path of the table comes back in another encoding.
        uris = [] if table is None else table.file_uris()
        kept = {os.path.basename(uri) for uri in uris}
        for each in written:
            paths = [file.path for file in each.files]
            remove_files(each.directory, (p for p in paths if os.path.basename(p) not in kept))

    def _check(self, table: DeltaTable) -> list[dict[str, Any]]:
        """Refuse what does not fit; the columns that must be added first."""
        _refuse_unchecked_rules(table)
        partition_columns(self._partition_by, table.metadata().partition_columns)
        return new_columns(self._schema, table.schema().to_json(), self._merge_schema)

    def _open_or_create(self) -> DeltaTable:
        table = open_table(self._path)
        if table is not None:
            return table
        return DeltaTable.create(
            self._path,
            schema=Schema.from_json(self._schema),
            mode="ignore",
            partition_by=list(self._partition_by),
        )

    def _commit_once(self, commit: Commit) -> None:
        table = self._open_or_create()
        if commit.is_done(table.transaction_version(commit.app_id)):
            self.discard(commit.written)
            return
        added = self._check(table)
        if added:
            table.alter.add_columns([Field.from_json(json.dumps(field)) for field in added])
        if commit.is_empty:
            return
        table.create_write_transaction(
            _add_actions(commit),
            mode="overwrite" if commit.overwrite else "append",
            schema=table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=_properties(commit),
        )


def open_table(path: str) -> DeltaTable | None:
    """A table as it is now; None where there is none."""
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None


def is_there(path: str) -> bool:
    """Whether there is a table, with rows or without."""
    return open_table(path) is not None


def holds_rows(path: str) -> bool:
    """Whether the table has rows."""
    table = open_table(path)
    return table is not None and bool(table.file_uris())


def newest_batch(path: str, app_id: str) -> int | None:
    """The newest of a writer's batches that are there."""
    table = open_table(path)
    return None if table is None else table.transaction_version(app_id)


def _add_actions(commit: Commit) -> list[AddAction | RemoveAction]:
    now_ms = int(time.time() * 1000)
    return [
        AddAction(
            path=file.path,
            size=file.size_bytes,
            partition_values=file.partition_values,
            modification_time=now_ms,
            data_change=True,
            stats=file.statistics,
        )
        for each in commit.written
        for file in each.files
    ]


def _properties(commit: Commit) -> CommitProperties | None:
    if commit.version is None:
        return None
    return CommitProperties(app_transactions=[Transaction(commit.app_id, commit.version)])


def _refuse_unchecked_rules(table: DeltaTable) -> None:
    """Rules that another writer gave the table hold for every row; these writers check none."""
    rules = [
        name for name in table.metadata().configuration if name.startswith("delta.constraints")
    ]
    for field in json.loads(table.schema().to_json())["fields"]:
        rules += [f"{field['name']} NOT NULL"] * (not field["nullable"])
        rules += [
            f"{field['name']}: {key}" for key in field["metadata"] if key.startswith("delta.")
        ]
    if rules:
        raise TableError(f"the table has a rule that would not be checked: {rules[0]}")
