"""Pipelines run on a real Spark against a real broker: catch-up, stream, batch, and what fails."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spark.processes import wait_for
from tests.spark.topics import create
from tidelog.client.batching import ProducerRecord
from tidelog.client.blocking import Client
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.blocking_producer import Producer
from tidelog.client.group_admin import committed_offsets
from tidelog.client.offsets import Start, log_bounds
from tidelog.client.settings import ClientSettings
from tidelog.model import TopicPartition
from tidelog.pipelines.declare.check import check_static
from tidelog.pipelines.declare.file import load_pipeline
from tidelog.pipelines.declare.pipeline import Mode, PipelineError
from tidelog.pipelines.run.published import read_published
from tidelog.testing import Broker

FILE = """\
pipeline: {name}
connect: {{bootstrap.servers: "{servers}"}}
checkpoint: ./state
trigger: 100ms
sources:
  clicks:
    topic: {name}-in
    value: {{json: "user STRING, page STRING, at TIMESTAMP"}}
    bad_records: {{to: {name}-dead, stop_above: 50%}}
    watermark: {{column: at, delay: 30s}}
steps:
  visits: {{sql: "SELECT user, page, date(at) AS day FROM clicks WHERE page <> '/health'"}}
  views: {{sql: "SELECT page, count(*) AS views FROM visits GROUP BY page"}}
targets:
  views: {{from: views, topic: {name}-views, key: page, emit: updates}}
  visits:
    from: visits
    table: {{delta: ./lake/visits, partition_by: [day]}}
on_error: {{retries: 8, backoff: 50ms}}
"""


class World:
    """A pipeline's file, its topics, and what was sent to them."""

    def __init__(self, spark: Any, broker: Broker, directory: Path, name: str) -> None:
        self.spark, self.name, self.directory = spark, name, directory
        self.servers = broker.bootstrap_servers
        self.file = directory / "p.yaml"
        self.file.write_text(FILE.format(name=name, servers=self.servers))
        for suffix in ("in", "dead", "views"):
            create(self.servers, f"{name}-{suffix}", 2)
        self.visits: Counter[tuple[str, str]] = Counter()
        self.bad = 0
        self.notes: list[str] = []

    def send(self, first: int, count: int) -> None:
        """Clicks, every tenth of the health check, every twenty-fifth bad."""
        with Producer(self.servers) as producer:
            for number in range(first, first + count):
                page = "/health" if number % 10 == 0 else f"/{number % 3}"
                click = {"user": f"u{number}", "page": page, "at": "2026-01-01T00:00:00Z"}
                value = b"bad" if number % 25 == 7 else json.dumps(click).encode()
                producer.send(ProducerRecord(f"{self.name}-in", value, b"%d" % number))
                if value == b"bad":
                    self.bad += 1
                elif page != "/health":
                    self.visits[(f"u{number}", page)] += 1

    @property
    def views(self) -> dict[str, int]:
        return dict(Counter(page for _, page in self.visits.elements()))

    def runner(self, mode: Mode, **settings: Any) -> Any:
        from tidelog.pipelines.run.runner import Runner, RunSettings

        pipeline = load_pipeline(self.file, {})
        wanted = RunSettings(mode, **settings)
        return Runner(self.spark, pipeline, check_static(pipeline), wanted, notes=self.notes.append)

    def run(self, mode: Mode, **settings: Any) -> dict[str, Any]:
        reports = {report.name: report for report in self.runner(mode, **settings).run()}
        assert list(reports) == ["clicks.bad", "views", "visits"]
        return reports

    def edit(self, old: str, new: str) -> None:
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))

    def published(self) -> dict[str, Any]:
        """The last words of pipelines by key."""
        return {word.key: word for word in read_published(self.servers, ClientSettings())}

    def records(self, suffix: str) -> list[Any]:
        """All records of a topic."""
        partitions = [TopicPartition(f"{self.name}-{suffix}", number) for number in range(2)]
        found: list[Any] = []
        with Consumer(self.servers) as consumer:
            ends = consumer.run(log_bounds(consumer.cluster, partitions))
            consumer.assign(dict.fromkeys(partitions, Start("start")))
            total = sum(end for _, end in ends.values())
            while len(found) < total:
                for _, records in consumer.poll(1.0):
                    found += records
        return found

    def last_views(self) -> dict[str, int]:
        """The last update of every key."""
        return {
            record.key.decode(): json.loads(record.value)["views"]
            for record in self.records("views")
        }

    def table(self) -> Counter[tuple[str, str]]:
        from deltalake import DeltaTable

        rows = DeltaTable(str(self.directory / "lake/visits")).to_pyarrow_table().to_pylist()
        assert all(str(row["day"]) == "2026-01-01" for row in rows)
        return Counter((row["user"], row["page"]) for row in rows)


@pytest.fixture
def world(spark: Any, tidelog_broker: Broker, tidelog_topic: str, tmp_path: Path) -> World:
    return World(spark, tidelog_broker, tmp_path, f"p-{tidelog_topic[-24:]}")


def test_catch_up_resumes_and_a_batch_gives_the_same(world: World) -> None:
    world.send(0, 200)
    reports = world.run(Mode.CATCH_UP)
    assert {str(report.state) for report in reports.values()} == {"done"}, world.notes
    assert [report.rows for report in reports.values()] == [200, 200, 200]
    assert {report.bad for report in reports.values()} == {world.bad}
    assert all(report.lag is not None and report.lag.records == 0 for report in reports.values())
    assert world.table() == world.visits
    assert world.last_views() == world.views

    dead = world.records("dead")
    assert {record.value for record in dead} == {b"bad"}
    headers = {name: value.decode() for name, value in dead[0].headers}
    assert headers["tidelog.reason"] == "the value is no JSON"
    assert headers["tidelog.topic"] == f"{world.name}-in"
    assert headers["tidelog.pipeline"] == world.name
    places = {
        (dict(r.headers)["tidelog.partition"], dict(r.headers)["tidelog.offset"]) for r in dead
    }
    assert len(places) == world.bad, "a batch that is tried again may write them again"

    with Client(world.servers) as client:
        group = client.run(committed_offsets(client.cluster, f"tidelog.{world.name}"))
    assert sum(group.values()) == 200
    word = world.published()[f"{world.name}/catch-up"]
    assert word.state == "done"
    assert [query["lag"] for query in word.queries] == [0, 0, 0]
    updates = len(world.records("views"))
    assert [query["written"] for query in word.queries] == [
        world.bad, updates, world.visits.total(),
    ]  # fmt: skip

    world.send(200, 50)
    (views,) = world.runner(Mode.CATCH_UP, only=["views"]).run()
    assert views.rows == 50, "only what is new"
    assert world.last_views() == world.views

    into = world.directory / "look"
    reports = world.runner(Mode.BATCH, only=["views", "visits"], into=str(into)).run()
    assert [report.rows for report in reports] == [250, 250]
    assert [report.written for report in reports] == [len(world.views), world.visits.total()]
    word = world.published()[f"{world.name}/batch"]
    assert (word.state, [query["state"] for query in word.queries]) == ("done", ["done", "done"])
    rows = world.spark.read.parquet(str(into / "visits")).collect()
    assert Counter((row["user"], row["page"]) for row in rows) == world.visits
    rows = world.spark.read.parquet(str(into / "views")).collect()
    assert {row["key"]: json.loads(row["value"])["views"] for row in rows} == world.views
    assert sum(world.table().values()) < sum(world.visits.values()), "the target was left alone"


def test_a_stream_follows_stops_and_is_alone_on_its_checkpoint(world: World) -> None:
    world.send(0, 60)
    runner = world.runner(Mode.STREAM)
    seen: dict[str, Any] = {}
    runner.listener = lambda reports: seen.update({report.name: report.rows for report in reports})
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.extend(runner.run()))
    thread.start()
    try:
        wait_for(lambda: set(seen.values()) == {60} or not thread.is_alive())
        assert thread.is_alive(), world.notes
        with pytest.raises(PipelineError, match="this checkpoint is in use by process"):
            world.run(Mode.CATCH_UP)
        world.send(60, 40)
        wait_for(lambda: set(seen.values()) == {100} or not thread.is_alive())
        assert thread.is_alive(), world.notes
    finally:
        runner.stop()
        thread.join(120)
    assert [str(report.state) for report in ended] == ["stopped"] * 3, world.notes
    assert world.table() == world.visits and world.last_views() == world.views

    with pytest.raises(PipelineError, match="--into DIR writes beside it"):
        world.run(Mode.BATCH)
    world.edit("count(*) AS views", "count(*) AS views, max(user) AS last")
    with pytest.raises(PipelineError, match="--reset views") as refused:
        world.run(Mode.CATCH_UP)
    assert "its state was Aggregate by (page: string) of (count(1): bigint)" in str(refused.value)
    reports = world.run(Mode.CATCH_UP, reset=["views", "visits"])
    assert [report.rows for report in reports.values()] == [0, 100, 100]
    assert world.table() == world.visits, "the table so far was set aside"
    assert len(list(world.directory.glob("lake/visits.before-*"))) == 1


def test_a_query_that_fails_is_tried_again_and_then_told(world: World) -> None:
    world.edit(f"{{to: {world.name}-dead, stop_above: 50%}}", "fail")
    world.edit("retries: 8", "retries: 1")
    world.send(0, 10)
    runner = world.runner(Mode.CATCH_UP, only=["visits"])
    (report,) = runner.run()
    assert (str(report.state), report.failures) == ("failed", 2)
    assert "a bad record in" in report.error and "the value is no JSON" in report.error
    assert any("tried again in 0.05 s (1 of 1)" in note for note in world.notes)


def test_too_many_bad_records_stop_the_pipeline(world: World) -> None:
    world.edit("stop_above: 50%", "stop_above: 1%")
    world.send(0, 50)
    reports = world.run(Mode.CATCH_UP)
    assert "failed" in {str(report.state) for report in reports.values()}
    assert any("4.00% of the recent records of clicks are bad" in note for note in world.notes)
