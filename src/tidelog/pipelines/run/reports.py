"""How a running pipeline is doing: counted from what Spark reports of its micro-batches.

No Spark in here: a report is the JSON of a streaming query's progress, as a dictionary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from tidelog.model import TopicPartition
from tidelog.spark.source.offsets import StreamOffset

# A share of bad records is judged over at least so many, so that one bad of ten stops nobody.
JUDGED_RECORDS_MIN: Final = 1_000
# What the counts of a source are called among the observed metrics, before the source's name.
OBSERVED: Final = "records."


class State(StrEnum):
    """Where a query is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(slots=True)
class Lag:
    """How far behind: in records, and the age in seconds of the oldest that was not read."""

    records: int
    seconds: float | None


@dataclass(slots=True)
class BadCounts:
    """The records of one source and how many were bad, in this run."""

    records: int = 0
    bad: int = 0
    recent: deque[tuple[int, int]] = field(default_factory=deque)

    def add(self, records: int, bad: int) -> None:
        self.records += records
        self.bad += bad
        self.recent.append((records, bad))
        while len(self.recent) > 1:
            rest = sum(each for each, _ in self.recent) - self.recent[0][0]
            if rest < JUDGED_RECORDS_MIN:
                break
            self.recent.popleft()

    def share(self, *, final: bool = False) -> float | None:
        """The bad ones' share of the recent records; None where these are too few to judge."""
        records = sum(each for each, _ in self.recent)
        if not records or (records < JUDGED_RECORDS_MIN and not final):
            return None
        return sum(bad for _, bad in self.recent) / records


@dataclass(slots=True)
class QueryReport:
    """One query: a target's, or the dead letters of a source.

    `rows` are read, `written` reached the target (None where nobody has said so), `late` came
    behind the watermark and were dropped.
    """

    name: str
    state: State = State.STARTING
    batch: int = -1
    rows: int = 0
    written: int | None = None
    late: int = 0
    rows_per_second: float = 0.0
    batch_ms: int = 0
    lag: Lag | None = None
    failures: int = 0
    error: str = ""
    counts: dict[str, BadCounts] = field(default_factory=dict)
    positions: dict[TopicPartition, int] = field(default_factory=dict)

    def add(self, report: Mapping[str, Any]) -> None:
        """Take in one report; of a micro-batch that was seen before nothing is counted again."""
        rows = int(report.get("numInputRows", 0))
        batch = int(report.get("batchId", -1))
        durations = report.get("durationMs", {})
        # An idle query reports too, under the number of the batch that is still to come.
        if batch > self.batch and "addBatch" in durations:
            self.batch = batch
            self.rows += rows
            self.batch_ms = int(durations.get("triggerExecution", 0))
            self._count(report.get("observedMetrics") or {})
            self._add_written((report.get("sink") or {}).get("numOutputRows"))
            for state in report.get("stateOperators") or ():
                self.late += int(state.get("numRowsDroppedByWatermark") or 0)
        self.rows_per_second = float(report.get("processedRowsPerSecond") or 0.0) if rows else 0.0
        for source in report.get("sources", ()):
            end = source.get("endOffset")
            if isinstance(end, dict):
                self.positions.update(StreamOffset.from_dict(end).next)

    def _count(self, observed: Mapping[str, Any]) -> None:
        for name, counts in observed.items():
            if name.startswith(OBSERVED) and counts:
                source = self.counts.setdefault(name.removeprefix(OBSERVED), BadCounts())
                source.add(int(counts.get("records") or 0), int(counts.get("bad") or 0))

    def _add_written(self, rows: int | None) -> None:
        """What a sink says that it wrote; one that cannot tell says -1."""
        if rows is not None and rows >= 0:
            self.written = (self.written or 0) + rows

    @property
    def bad(self) -> int:
        return sum(counts.bad for counts in self.counts.values())


def smallest_positions(reports: Iterable[QueryReport]) -> dict[TopicPartition, int]:
    """How far all the queries have come that read a partition: where the slowest is."""
    found: dict[TopicPartition, int] = {}
    for report in reports:
        for partition, offset in report.positions.items():
            found[partition] = min(offset, found.get(partition, offset))
    return found


def report_json(report: QueryReport) -> dict[str, Any]:
    """A report as it is published and printed."""
    return {
        "name": report.name,
        "state": str(report.state),
        "rows": report.rows,
        "written": report.written,
        "late": report.late,
        "rows_per_second": round(report.rows_per_second, 1),
        "batch_ms": report.batch_ms,
        "lag": None if report.lag is None else report.lag.records,
        "lag_seconds": None
        if report.lag is None or report.lag.seconds is None
        else round(report.lag.seconds, 1),
        "bad": report.bad,
        "failures": report.failures,
        "error": report.error or None,
    }
