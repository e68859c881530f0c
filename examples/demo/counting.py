"""What the demo counts, without Spark: lag, rows, dead letters, pages, and whether it adds up."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow.dataset as arrow_dataset
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable

import tidelog
from examples.terminal import run_quietly

SHOWN = 6


def _servers() -> str:
    return os.environ["TIDELOG_BOOTSTRAP_SERVERS"]


def _json(*arguments: str) -> object:
    return json.loads(run_quietly(*arguments, "--format", "json"))


def group_lag(group: str) -> int:
    """How many records a group has not consumed; -1 where it has committed nothing yet."""
    described = _json("group", "describe", group)
    assert isinstance(described, dict)
    lags = [each["lag"] for each in described["partitions"]]
    return sum(lags) if lags else -1


def leaders(topic: str) -> dict[int, int]:
    """Partition -> the broker that leads it; -1 where none does."""
    described = _json("topic", "describe", topic)
    assert isinstance(described, list)
    return {each["partition"]: each["leader"] for each in described[0]["partitions"]}


def leaders_in_words(topic: str, led: Mapping[int, int]) -> str:
    """ "broker 0 leads clicks-1, broker 2 leads clicks-0 and clicks-2"."""
    words = []
    for broker in sorted(set(led.values())):
        partitions = [f"{topic}-{each}" for each, leader in sorted(led.items()) if leader == broker]
        words.append(f"broker {broker} leads {' and '.join(partitions)}")
    return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far everybody is: clicks in the topic, clicks that each group has consumed, rows."""

    clicks: int
    consumed: Mapping[str, int]
    rows: int

    @classmethod
    def of(cls, directory: Path, groups: Sequence[str]) -> Progress:
        clicks, consumed = 0, {}
        for group in groups:
            described = _json("group", "describe", group)
            assert isinstance(described, dict)
            consumed[group] = sum(each["committed"] or 0 for each in described["partitions"])
            clicks = max(clicks, sum(each["end"] or 0 for each in described["partitions"]))
        return cls(clicks, consumed, rows_in_table(directory))

    def beyond(self, other: Progress) -> bool:
        ahead = (self.consumed[group] > other.consumed[group] for group in other.consumed)
        return self.clicks > other.clicks and self.rows > other.rows and all(ahead)

    def since(self, other: Progress) -> str:
        read = ", ".join(
            f"{group} has read {self.consumed[group] - other.consumed[group]:,}"
            for group in other.consumed
        )
        rows = self.rows - other.rows
        return (
            f"{self.clicks - other.clicks:,} more clicks; {read}; the table has {rows:,} more rows"
        )


def published_lag(pipeline: str) -> int:
    """The lag that the pipeline's runner has last published, which it does every few seconds."""
    listed = _json("pipeline", "list")
    assert isinstance(listed, list)
    return next((each["lag"] for each in listed if each["name"] == pipeline), -1)


def member_partitions(group: str) -> list[int]:
    """How many partitions each member has; none where nobody has joined yet."""
    groups = _json("group", "list")
    assert isinstance(groups, list)
    if group not in (each["name"] for each in groups):
        return []
    members = _json("group", "members", group)
    assert isinstance(members, list)
    return [len(each["partitions"]) for each in members]


def _table(directory: Path) -> DeltaTable | None:
    path = directory / "lake" / "visits"
    return DeltaTable(str(path)) if (path / "_delta_log").is_dir() else None


def rows_in_table(directory: Path) -> int:
    """The rows of the table of visits, from its log alone."""
    table = _table(directory)
    if table is None:
        return 0
    counts = table.get_add_actions(flatten=True)["num_records"]
    return sum(each.as_py() for each in counts)


class TopPages:
    """The counts of pages as the pipeline's topic tells them, and a table of them."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}
        self._consumer: Consumer | None = None
        self._painted = 0

    def update(self, seconds: float) -> None:
        """Take the updates that are there; a count replaces the one before it."""
        if self._consumer is None:
            settings = {"bootstrap.servers": _servers(), "group.id": "-", "log_level": 0}
            self._consumer = Consumer({**settings, "enable.auto.commit": False})
            self._consumer.assign([TopicPartition("page-counts", 0, 0)])
        for message in self._consumer.consume(10_000, seconds):
            if message.error() is None:
                row = json.loads(message.value() or b"{}")
                since = datetime.fromisoformat(row["since"]).isoformat()
                self.counts[since, row["page"]] = row["views"]

    @property
    def views(self) -> int:
        return sum(self.counts.values())

    def paint(self, rows: int) -> None:
        """The top pages; on a terminal over those painted before."""
        if not sys.stdout.isatty():
            return
        if self._painted:
            sys.stdout.write(f"\x1b[{self._painted}A\x1b[J")
        lines = self._lines(rows)
        print("\n".join(lines), flush=True)
        self._painted = len(lines)

    def settle(self) -> None:
        """Leave what was painted last; where there is no terminal, print it now."""
        if not sys.stdout.isatty():
            print("\n".join(self._lines(None)), flush=True)
        self._painted = 0

    def _lines(self, rows: int | None) -> list[str]:
        views: Counter[str] = Counter()
        for (_, page), count in self.counts.items():
            views[page] += count
        widest = max(views.values(), default=1)
        head = f"  {'top pages':<12} {'views':>8}"
        lines = [head if rows is None else f"{head}      {rows:,} rows in the table"]
        lines += [
            f"  {page:<12} {count:>8,} {'#' * (30 * count // widest)}"
            for page, count in views.most_common(SHOWN)
        ]
        return lines

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


@dataclass(slots=True)
class Balance:
    """What was sent, and where it is."""

    sent: int
    stored: int
    table: int
    filtered: int
    dead: int
    duplicates: int
    lag: int
    unacknowledged: int
    same: bool = False

    @property
    def holds(self) -> bool:
        return (
            self.sent == self.stored == self.table + self.filtered + self.dead
            and self.sent > 0
            and not self.duplicates
            and not self.lag
            and not self.unacknowledged
            and self.same
        )

    @property
    def line(self) -> str:
        sign = "=" if self.sent == self.table + self.filtered + self.dead else "≠"
        return (
            f"sent {self.sent:,} {sign} table {self.table:,} + filtered {self.filtered:,} + "
            f"dead {self.dead:,}, duplicates {self.duplicates}, lag {self.lag}"
        )

    @property
    def explanation(self) -> str:
        return (
            f"stored in the topic: {self.stored:,}\nnot acknowledged: {self.unacknowledged}\n"
            f"batch and stream agree: {self.same}"
        )


def balance(directory: Path, ledger: Path, groups: Sequence[str]) -> Balance:
    """Count everything again, from the topic, the table and the dead letters themselves."""
    site = json.loads(ledger.read_text())
    values = tidelog.read("clicks", bootstrap_servers=_servers(), columns=["value"])["value"]
    filtered = sum(b'"/health"' in (each.as_py() or b"") for each in values)
    letters = tidelog.read("clicks.dead", bootstrap_servers=_servers(), columns=["headers"])[
        "headers"
    ]
    places = {_place(each.as_py()) for each in letters}
    table = _table(directory)
    ids = table.to_pyarrow_table(columns=["id"])["id"] if table else []
    lag = sum(max(0, group_lag(each)) for each in groups)
    return Balance(
        sent=site["total"],
        stored=len(values),
        table=len(ids),
        filtered=filtered,
        dead=len(places),
        duplicates=len(ids) - len(set(ids.to_pylist() if table else ())),
        lag=lag,
        unacknowledged=site["failed"],
    )


def _place(headers: list[dict[str, object]] | None) -> tuple[object, object]:
    named = {str(each["key"]): each["value"] for each in headers or ()}
    return named.get("tidelog.partition"), named.get("tidelog.offset")


def batch_equals_stream(directory: Path, counts: dict[tuple[str, str], int]) -> bool:
    """Whether the batch's visits are those of the table, and its counts the last ones told."""
    history = directory / "history"
    table = _table(directory)
    assert table is not None
    streamed = table.to_pyarrow_table(columns=["id", "page"]).to_pylist()
    batched = arrow_dataset.dataset(history / "visits").to_table(columns=["id", "page"]).to_pylist()

    def in_order(rows: list[dict[str, object]]) -> list[tuple[object, object]]:
        return sorted((row["id"], row["page"]) for row in rows)  # type: ignore[type-var]

    if in_order(streamed) != in_order(batched):
        return False
    return _batch_counts(history / "counts") == counts


def _batch_counts(path: Path) -> dict[tuple[str, str], int]:
    counts = {}
    for row in arrow_dataset.dataset(path).to_table(columns=["value"]).to_pylist():
        told = json.loads(row["value"])
        counts[datetime.fromisoformat(told["since"]).isoformat(), told["page"]] = told["views"]
    return counts
