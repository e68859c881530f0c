"""What the targets of a pipeline hold, and how it is compared with the truth.

A table holds every row exactly once, so rows are counted. A topic holds every row at least once: a
micro-batch that a crash cut off is written again. What comes twice is counted as a repeat and taken
once, told apart as its consumers would: by the whole record, by its key, or, for dead letters, by
where the bad record was. What only one example has is with that example.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, ClassVar

import tidelog
from examples.processes import wait_until
from tidelog.client.admin import describe_topic
from tidelog.client.blocking import Client
from tidelog.client.offsets import log_bounds
from tidelog.model import TopicPartition

SHOWN_MAX = 3
# The events' times are long past, and retention goes by them.
KEEP_ALL = {"retention.ms": "-1"}
# Small segments that are closed soon, so that the last ones are compacted, too.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0",
}
COMPACTION_SECONDS_MAX = 120.0


@dataclass(frozen=True)
class Place:
    """Where one run writes: its directory, the end of its topics' names, the broker."""

    directory: Path
    suffix: str
    servers: str

    def read(self, topic: str, *columns: str) -> list[dict[str, Any]]:
        """The records of a topic, those of a partition in order."""
        table = tidelog.read(topic + self.suffix, bootstrap_servers=self.servers, columns=columns)
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def compacted(self, topic: str) -> str:
        """Wait until the log cleaner has left one record of each key; how many of how many."""

        def keys() -> list[bytes]:
            return [row["key"] for row in self.read(topic, "key")]

        def is_clean() -> bool:
            found = keys()
            return len(found) == len(set(found))

        wait_until(is_clean, f"{topic} to be compacted", COMPACTION_SECONDS_MAX)
        with Client(self.servers) as client:
            name = topic + self.suffix
            numbers = client.run(describe_topic(client.cluster, name)).partitions
            partitions = [TopicPartition(name, number) for number in numbers]
            bounds = client.run(log_bounds(client.cluster, partitions))
        written = sum(end for _, end in bounds.values())
        return f"compacted {written:,} → {len(keys()):,}"


@dataclass(frozen=True)
class Held:
    """The rows of a target, as texts, how many more were there a second time, and what else there
    is to say."""

    rows: Counter[str]
    repeats: int = 0
    note: str = ""


class Kind(ABC):
    """What a target is; one without a topic is a table."""

    topic: str
    partitions: ClassVar[int] = 2
    configs: ClassVar[Mapping[str, str]] = KEEP_ALL

    @abstractmethod
    def held(self, place: Place, truth: Sequence[str]) -> Held:
        """What it holds now; `truth` only helps to tell what is there a second time."""


@dataclass(frozen=True)
class Delta(Kind):
    """A Delta table: every row counts."""

    path: str
    topic = ""

    def held(self, place: Place, truth: Sequence[str]) -> Held:
        from deltalake import DeltaTable

        path = place.directory / self.path
        if not DeltaTable.is_deltatable(str(path)):
            return Held(Counter())
        return Held(Counter(as_texts(DeltaTable(str(path)).to_pyarrow_table().to_pylist())))


@dataclass(frozen=True)
class Records(Kind):
    """A topic of JSON records with keys and headers; equal ones are one."""

    topic: str

    def held(self, place: Place, truth: Sequence[str]) -> Held:
        found = place.read(self.topic, "key", "value", "headers")
        rows = set(
            as_texts(
                [
                    {
                        "key": row["key"].decode(),
                        "value": json.loads(row["value"]),
                        "headers": {
                            each["key"]: each["value"].decode() for each in row["headers"] or ()
                        },
                    }
                    for row in found
                ]
            )
        )
        return Held(Counter(rows), len(found) - len(rows))


@dataclass(frozen=True)
class Latest(Kind):
    """A topic of updates: the last record of each key is what holds."""

    topic: str

    def held(self, place: Place, truth: Sequence[str]) -> Held:
        last = {row["key"]: row["value"] for row in place.read(self.topic, "key", "value")}
        return Held(Counter(as_texts([json.loads(value) for value in last.values()])))


@dataclass(frozen=True)
class DeadLetters(Kind):
    """Bad records with where they were in their headers; the truth is their values, as hex."""

    topic: str

    def held(self, place: Place, truth: Sequence[str]) -> Held:
        found = place.read(self.topic, "value", "headers")
        distinct = {}
        for row in found:
            headers = {header["key"]: header["value"] for header in row["headers"]}
            where = tuple(headers[f"tidelog.{name}"] for name in ("topic", "partition", "offset"))
            distinct[where] = dead_letter(row["value"])
        return Held(Counter(as_texts(list(distinct.values()))), len(found) - len(distinct))


def dead_letter(value: bytes | None) -> dict[str, Any]:
    """The row of a truth for a bad record."""
    return {"value": None if value is None else value.hex()}


def as_texts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [json.dumps(row, sort_keys=True, default=_as_text) for row in rows]


def _as_text(value: object) -> str:
    """A value of a table as JSON has it in a topic."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no text here")


@dataclass(frozen=True)
class Comparison:
    """One target beside the truth."""

    target: str
    held: Held
    truth: Counter[str]

    @property
    def equal(self) -> bool:
        return self.held.rows == self.truth

    def __str__(self) -> str:
        again = f" (+{self.held.repeats:,} repeats)" if self.held.repeats else ""
        note = f" ({self.held.note})" if self.held.note else ""
        return f"{self.target} {self.held.rows.total():,}{again}{note}"

    def differences(self) -> list[str]:
        """A few rows that are missing (-) or should not be there (+), and how many there are."""
        lines = []
        for sign, rows in (("-", self.truth - self.held.rows), ("+", self.held.rows - self.truth)):
            if rows:
                lines.append(f"{self.target}: {sign} {rows.total():,} rows, such as")
                lines += [f"    {sign} {text}" for text in sorted(rows)[:SHOWN_MAX]]
        return lines
