"""A directory of Parquet files that any reader may glob at any moment, without half a batch in it.

    visits/tidelog_batch=<query id>-0000000007/day=2026-01-01/part-….zstd.parquet
    .visits.tidelog/schema.json         columns and partition columns
    .visits.tidelog/staging/<query id>/ what is being written

A batch becomes visible by **one rename** of its directory, whose name is also the record that it is
there: the same batch, asked for again, finds the name taken. The price is one more column,
``tidelog_batch``. Everything else lies beside the table, on the same file system, because readers
that glob look into hidden directories too.

Replacing the table takes two renames, of the old rows away and of the new ones into their place: a
reader in between finds no table, never a mixture. If the process dies there, the next write puts
the old rows back.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from typing import Any

from tidelog.spark.table.files import partition_directory
from tidelog.spark.table.options import TableError, TableOptions
from tidelog.spark.table.schema import new_columns, partition_columns, with_columns
from tidelog.spark.table.target import Commit, WrittenFiles

BATCH_COLUMN = "tidelog_batch"


class ParquetTarget:
    """Promises: a commit is seen wholly or not at all, and once."""

    def __init__(self, options: TableOptions, schema: str) -> None:
        self._path = options.path
        self._beside = beside(self._path)
        self._replaced = os.path.join(self._beside, "replaced")
        self._partition_by = options.partition_by
        self._merge_schema, self._schema = options.merge_schema, schema

    def prepare(self) -> tuple[str, ...]:
        if any(each["name"].lower() == BATCH_COLUMN for each in json.loads(self._schema)["fields"]):
            raise TableError(f"column {BATCH_COLUMN!r} is the table's own: rename it")
        known = self._read_schema()
        if known is None:
            if os.path.isdir(self._path) and os.listdir(self._path):
                raise TableError(f"{self._path} holds files that were not written as such a table")
            return self._partition_by
        new_columns(self._schema, json.dumps(known["schema"]), self._merge_schema)
        return partition_columns(self._partition_by, known["partitionBy"])

    def task_directory(self, app_id: str) -> str:
        """One per attempt of a task: what a straggler writes later is in nobody's way."""
        return os.path.join(self._staging(app_id), str(uuid.uuid4()))

    def commit(self, commit: Commit) -> None:
        self._put_back_replaced()
        self._keep_schema()
        os.makedirs(self._path, exist_ok=True)
        name = commit.app_id if commit.version is None else f"{commit.app_id}-{commit.version:010}"
        batch = partition_directory((BATCH_COLUMN,), (name,))
        done = commit.is_done(newest_batch(self._path, commit.app_id))
        if not commit.is_empty and not done:
            gathered = os.path.join(self._staging(commit.app_id), f"commit-{uuid.uuid4()}")
            self._gather(commit, os.path.join(gathered, batch))
            if commit.overwrite:
                self._replace(gathered)
            else:
                _rename_if_free(os.path.join(gathered, batch), os.path.join(self._path, batch))
        self.discard(commit.written)

    def discard(self, written: list[WrittenFiles]) -> None:
        """Nothing in the staging directory is ever part of the table."""
        for app_id in {each.app_id for each in written}:
            shutil.rmtree(self._staging(app_id), ignore_errors=True)

    def _staging(self, app_id: str) -> str:
        name = partition_directory(("app",), (app_id,))
        return os.path.join(self._beside, "staging", name)

    @staticmethod
    def _gather(commit: Commit, directory: str) -> None:
        """Only what finished tasks have reported; renames, so no bytes are copied."""
        os.makedirs(directory)
        for written in commit.written:
            for file in written.files:
                target = os.path.join(directory, file.path)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                os.rename(os.path.join(written.directory, file.path), target)

    def _replace(self, new: str) -> None:
        os.rename(self._path, self._replaced)
        os.rename(new, self._path)
        shutil.rmtree(self._replaced, ignore_errors=True)

    def _put_back_replaced(self) -> None:
        if os.path.isdir(self._replaced):
            if os.path.exists(self._path):
                shutil.rmtree(self._replaced, ignore_errors=True)
            else:
                os.rename(self._replaced, self._path)

    def _read_schema(self) -> dict[str, Any] | None:
        try:
            with open(os.path.join(self._beside, "schema.json"), encoding="utf-8") as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return None

    def _keep_schema(self) -> None:
        """Note the columns of the first commit, and those that were added since."""
        partition_by = self.prepare()
        known, target = self._read_schema(), os.path.join(self._beside, "schema.json")
        columns = self._schema if known is None else json.dumps(known["schema"])
        added = new_columns(self._schema, columns, self._merge_schema)
        if known is not None and not added:
            return
        noted = {"schema": json.loads(with_columns(columns, added)), "partitionBy": partition_by}
        draft = f"{target}.{uuid.uuid4()}"
        os.makedirs(self._beside, exist_ok=True)
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(noted, file)
        os.replace(draft, target)


def beside(path: str) -> str:
    """Where the rest of a table lies."""
    parent, name = os.path.split(path)
    return os.path.join(parent, f".{name}.tidelog")


def _places(path: str) -> tuple[str, str]:
    """Where the table is, or was put while it was being replaced: the next write puts it back."""
    return path, os.path.join(beside(path), "replaced")


def is_there(path: str) -> bool:
    """Whether there is a table, with rows or without."""
    return any(os.path.isdir(place) for place in _places(path))


def holds_rows(path: str) -> bool:
    """Whether the table has rows."""
    return any(name.endswith(".parquet") for place in _places(path)
               for _, _, names in os.walk(place) for name in names)  # fmt: skip


def newest_batch(path: str, app_id: str) -> int | None:
    """The newest of a writer's batches that are there."""
    names = os.listdir(path) if os.path.isdir(path) else []
    prefix = partition_directory((BATCH_COLUMN,), (f"{app_id}-",))
    numbers = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return max((int(number) for number in numbers if number.isdecimal()), default=None)


def _rename_if_free(source: str, target: str) -> None:
    """A directory that is not empty is never replaced by a rename: the first one stays."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
