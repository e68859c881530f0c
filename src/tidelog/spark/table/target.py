"""What the two kinds of table have in common: what a task reports, and what a commit is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql.datasource import WriterCommitMessage

from tidelog.spark.table.files import DataFile
from tidelog.spark.table.options import TableError


@dataclass
class WrittenFiles(WriterCommitMessage):
    """What one task has written below `directory`, for the writer named `app_id`."""

    app_id: str
    directory: str
    files: list[DataFile] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Commit:
    """One change of a table: by whom, which of its changes, and what it does.

    `version` rises with every change of an `app_id` (a streaming query's id and its batch id), so
    that the same change is made once however often it is asked for; without it (a plain batch
    write) the change is made. A `streaming` query asks again for its last change at most.
    """

    app_id: str
    version: int | None
    written: list[WrittenFiles]
    overwrite: bool = False
    streaming: bool = False

    def __post_init__(self) -> None:
        assert self.version is None or self.version >= 0, "changes are counted from 0"

    @property
    def is_empty(self) -> bool:
        return not self.overwrite and not any(each.files for each in self.written)

    def is_done(self, newest: int | None) -> bool:
        """Whether it is in the table, which has the writer's changes up to `newest`.

        A streaming query that is further behind goes by an old copy of its checkpoint. Its batches
        need not hold what those of the same numbers held, so nothing may be taken for done.
        """
        if self.version is None or newest is None or newest < self.version:
            return False
        if self.streaming and newest > self.version:
            raise TableError(
                f"the table has batch {newest} of query {self.app_id}, which is at batch"
                f" {self.version}: its checkpoint is older than the table. Put the newer checkpoint"
                " back, or begin anew with an empty table and an empty checkpoint"
            )
        return True


class TableTarget(Protocol):
    """A table that is written to. Everything but `task_directory` runs in the driver."""

    def prepare(self) -> tuple[str, ...]:
        """Check columns against the table, if there is one; its partition columns."""

    def task_directory(self, app_id: str) -> str:
        """Where a task puts its files, unseen by readers until the commit."""

    def commit(self, commit: Commit) -> None:
        """Make the files part of the table, all at once, unless they are already."""

    def discard(self, written: list[WrittenFiles]) -> None:
        """Remove what did not become part of the table."""
