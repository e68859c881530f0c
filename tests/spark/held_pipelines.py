"""A pipeline from a topic to a Delta table that can be held in mid-batch, and its truth."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tests.spark import held_step
from tests.spark.topics import create
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking_producer import Producer
from tidelog.pipelines.declare.check import check_static
from tidelog.pipelines.declare.file import load_pipeline
from tidelog.pipelines.declare.pipeline import Mode

PARTITIONS = 4
FILE = """\
pipeline: {name}
connect: {{bootstrap.servers: "{servers}"}}
checkpoint: ./state
trigger: 0s
spark:
  spark.executor.memory: 512m
  spark.sql.execution.arrow.maxRecordsPerBatch: 500
sources:
  clicks:
    topic: {name}
    value: {{json: "user STRING, page STRING"}}
    limit: {{rows: {limit}}}
    options: {{minPartitions: {partitions}}}
steps:
  visits: {{sql: "SELECT user, page FROM clicks WHERE page <> '/health'"}}
  held: {{python: "steps.py:hold", inputs: [visits]}}
targets:
  visits: {{from: {step}, table: {{delta: ./lake/visits}}}}
on_error: {{retries: {retries}, backoff: 50ms}}
"""
Visits = Counter[tuple[str, str]]


@dataclass
class HeldPipeline:
    """The file, its topic, and what was sent to it; `limit` is the rows of a micro-batch."""

    directory: Path
    servers: str
    name: str
    limit: int = 1_000_000
    held: bool = True
    retries: int = 8

    def __post_init__(self) -> None:
        self.file = self.directory / "p.yaml"
        self.table_path = self.directory / "lake" / "visits"
        self.checkpoint = self.directory / "state" / "visits"
        self.visits: Visits = Counter()
        self.notes: list[str] = []
        names = {"name": self.name, "servers": self.servers, "limit": self.limit}
        names |= {"step": "held" if self.held else "visits", "retries": self.retries}
        self.file.write_text(FILE.format(**names, partitions=PARTITIONS))
        shutil.copy(held_step.__file__, self.directory / "steps.py")
        create(self.servers, self.name, PARTITIONS)

    def send(self, numbers: Iterable[int], padding: int = 0) -> None:
        """Clicks, every tenth of the health check, with so many bytes that nobody reads."""
        with Producer(self.servers) as producer:
            for number in numbers:
                page = "/health" if number % 10 == 0 else f"/{number % 3}"
                click = {"user": f"u{number}", "page": page, "padding": "x" * padding}
                value = json.dumps(click).encode()
                producer.send(ProducerRecord(self.name, value, b"%d" % number))
                if page != "/health":
                    self.visits[(f"u{number}", page)] += 1

    def runner(self, session: Any, mode: Mode = Mode.CATCH_UP, **wanted: Any) -> Any:
        from tidelog.pipelines.run.runner import Runner, RunSettings

        pipeline = load_pipeline(self.file, {})
        settings = RunSettings(mode, publish=False, **wanted)
        return Runner(session, pipeline, check_static(pipeline), settings, notes=self.notes.append)

    def run(self, session: Any) -> Any:
        """Catch up; the report of the one query."""
        (report,) = self.runner(session).run()
        return report

    def marks(self) -> dict[str, int]:
        """The tasks that are in mid-batch or were, and their processes."""
        return {path.stem: int(path.read_text()) for path in self.directory.glob("task-*.mark")}

    def open_gate(self) -> None:
        (self.directory / "go").touch()

    def table(self) -> Visits:
        """What is in the table; nothing where there is none."""
        if not DeltaTable.is_deltatable(str(self.table_path)):
            return Counter()
        rows = DeltaTable(str(self.table_path)).to_pyarrow_table().to_pylist()
        return Counter((row["user"], row["page"]) for row in rows)
