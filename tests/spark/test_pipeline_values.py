"""P8 through pipelines: times that lie, and values that change while a stream runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.spark.held_pipelines import HeldPipeline
from tests.spark.table_writers import start_delta_runtime
from tests.spark.topics import create
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking_producer import Producer
from tidelog.pipelines.declare.check import check_static
from tidelog.pipelines.declare.file import load_pipeline
from tidelog.pipelines.declare.pipeline import Mode
from tidelog.testing import Broker

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WINDOWS = """\
pipeline: {name}
connect: {{bootstrap.servers: "{servers}"}}
checkpoint: ./state
spark: {{spark.sql.shuffle.partitions: 1}}
sources:
  clicks:
    topic: {name}
    value: {{json: "page STRING, at TIMESTAMP"}}
    bad_records: drop
    watermark: {{column: at, delay: 30s, max_future: 1h}}
steps:
  counts:
    sql: |
      SELECT window.start AS minute, page, count(*) AS views
      FROM clicks GROUP BY window(at, '1 minute'), page
targets:
  counts: {{from: counts, emit: final, table: {{delta: ./lake/counts}}}}
on_error: {{retries: 3, backoff: 50ms}}
"""


@pytest.fixture(scope="module", autouse=True)
def _delta_runtime(tmp_path_factory: pytest.TempPathFactory) -> None:
    start_delta_runtime(tmp_path_factory.mktemp("first"))


@pytest.fixture
def topic(tidelog_topic: str) -> str:
    return f"v-{tidelog_topic[-24:]}"


class Windows:
    """Clicks counted by the minute, and told when the minute is over."""

    def __init__(self, spark: Any, servers: str, directory: Path, name: str) -> None:
        self.spark, self.servers, self.name = spark, servers, name
        self.file = directory / "p.yaml"
        self.file.write_text(WINDOWS.format(name=name, servers=servers))
        self.table = directory / "lake" / "counts"
        create(servers, name, 1)

    def run(self, *times: datetime) -> Any:
        """Send clicks at these times, and catch up."""
        from tidelog.pipelines.run.runner import Runner, RunSettings

        with Producer(self.servers) as producer:
            for at in times:
                value = json.dumps({"page": "/", "at": at.isoformat()}).encode()
                producer.send(ProducerRecord(self.name, value))
        pipeline = load_pipeline(self.file, {})
        settings = RunSettings(Mode.CATCH_UP, publish=False)
        (report,) = Runner(self.spark, pipeline, check_static(pipeline), settings).run()
        assert str(report.state) == "done", report.error
        return report

    def counts(self) -> dict[datetime, int]:
        if not DeltaTable.is_deltatable(str(self.table)):
            return {}
        rows = DeltaTable(str(self.table)).to_pyarrow_table().to_pylist()
        return {row["minute"]: row["views"] for row in rows}


def test_p8_an_event_of_the_year_2100_closes_no_window(
    spark: Any, tidelog_broker: Broker, topic: str, tmp_path: Path
) -> None:
    world = Windows(spark, tidelog_broker.bootstrap_servers, tmp_path, topic)
    report = world.run(NOON, NOON, datetime(2100, 1, 1, tzinfo=UTC))
    assert (report.rows, report.bad, report.late) == (3, 1, 0), "it is told, not believed"
    report = world.run(NOON, NOON + timedelta(minutes=5))
    assert (report.rows, report.bad, report.late) == (2, 0, 0), "nothing is late"
    assert world.counts() == {NOON: 3} and report.written == 1

    report = world.run(NOON, NOON + timedelta(minutes=6))
    assert report.late == 1, "what came behind the watermark is counted"
    assert world.counts()[NOON] == 3


def test_p8_values_with_a_new_field_go_on_and_the_table_takes_it_where_asked(
    spark: Any, tidelog_broker: Broker, topic: str, tmp_path: Path
) -> None:
    world = HeldPipeline(
        tmp_path, tidelog_broker.bootstrap_servers, topic, 1000, held=False, retries=0
    )

    def edit(old: str, new: str) -> None:
        text = world.file.read_text()
        assert old in text
        world.file.write_text(text.replace(old, new))

    world.send(range(20), padding=3)  # a field that the schema does not have
    assert str(world.run(spark).state) == "done", world.notes
    with Producer(world.servers) as producer:
        producer.send(ProducerRecord(topic, b'{"user": ["another", "type"], "page": {}}'))
        producer.send(ProducerRecord(topic, b"poison"))
    edit("user STRING, page STRING", "user STRING, page STRING, padding STRING")
    edit("SELECT user, page FROM", "SELECT user, page, padding FROM")
    report = world.run(spark)
    assert str(report.state) == "failed"
    assert "the table has no column padding" in report.error
    edit("table: {delta: ./lake/visits}", "table: {delta: ./lake/visits, new_columns: add}")
    world.send(range(20, 40), padding=2)
    report = world.run(spark)
    assert (str(report.state), report.bad) == ("done", 1), world.notes
    rows = DeltaTable(str(world.table_path)).to_pyarrow_table().to_pylist()
    assert {row["padding"] for row in rows} == {None, "xx"}
