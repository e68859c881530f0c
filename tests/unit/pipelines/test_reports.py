"""What Spark reports is counted once, and what is shown follows from it."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.pipelines.pipeline_files import SMALL, load
from tidelog.cli.pipeline_view import View
from tidelog.client.admin import list_topics
from tidelog.client.blocking import Client
from tidelog.client.group_admin import commit_offsets
from tidelog.model import TopicPartition
from tidelog.pipelines.declare.check import check_static
from tidelog.pipelines.declare.connector import (
    batch_options,
    stream_options,
    write_options,
)
from tidelog.pipelines.declare.file import load_pipeline
from tidelog.pipelines.declare.pipeline import PipelineError, Start, TopicSink
from tidelog.pipelines.declare.starter import write_starter
from tidelog.pipelines.run.brokers import log_ends
from tidelog.pipelines.run.published import SILENT_MS, Published
from tidelog.pipelines.run.reports import (
    BadCounts,
    Lag,
    QueryReport,
    State,
    report_json,
    smallest_positions,
)
from tidelog.testing import Broker


def batch(number: int, rows: int, end: int, bad: int = 0) -> dict[str, Any]:
    """A report as Spark gives it after a micro-batch."""
    return {
        "batchId": number,
        "numInputRows": rows,
        "processedRowsPerSecond": rows * 2.0,
        "durationMs": {"addBatch": 80, "triggerExecution": 100},
        "observedMetrics": {"records.clicks": {"records": rows, "bad": bad}, "other": {"x": 1}},
        "sources": [{"endOffset": {"clicks": {"0": end}, "@tidelog": {"group": "g"}}}],
        "sink": {"numOutputRows": rows - bad},
        "stateOperators": [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 0}],
    }


def idle(number: int, end: int) -> dict[str, Any]:
    """An idle query reports under the number of the batch that is still to come."""
    return {
        "batchId": number,
        "numInputRows": 0,
        "durationMs": {"latestOffset": 3, "triggerExecution": 3},
        "sources": [{"endOffset": {"clicks": {"0": end}}}],
    }


def test_a_batch_is_counted_once_however_often_it_is_reported() -> None:
    report = QueryReport("counts")
    for each in (batch(0, 10, 10, bad=1), batch(0, 10, 10, bad=1), idle(1, 10), batch(1, 5, 15)):
        report.add(each)
    assert (report.rows, report.batch, report.bad, report.batch_ms) == (15, 1, 1, 100)
    assert report.rows_per_second == 10.0
    assert (report.written, report.late) == (14, 4)
    assert report.positions == {TopicPartition("clicks", 0): 15}
    report.add(idle(2, 15))
    assert (report.rows, report.rows_per_second) == (15, 0.0)


def test_the_slowest_query_tells_how_far_a_pipeline_is() -> None:
    fast, slow = QueryReport("a"), QueryReport("b")
    fast.add(batch(0, 9, 9))
    slow.add(batch(0, 4, 4))
    assert smallest_positions([fast, slow]) == {TopicPartition("clicks", 0): 4}


def test_a_few_records_are_not_judged_and_old_ones_are_forgotten() -> None:
    counts = BadCounts()
    counts.add(10, 5)
    assert counts.share() is None and counts.share(final=True) == 0.5
    counts.add(1_000, 0)
    assert counts.share() == 0.0, "what came before is out of the window"
    counts.add(1_000, 100)
    assert counts.share() == 0.1
    assert (counts.records, counts.bad) == (2_010, 105)


def reports() -> list[QueryReport]:
    running = QueryReport("counts", State.RUNNING, rows=1200, rows_per_second=300.4, batch_ms=80)
    running.lag = Lag(7, 1.25)
    return [running, QueryReport("visits", State.WAITING, failures=1, error="no")]


def test_a_terminal_is_painted_over_and_notes_stay() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    view = View("clicks", stream=stream)
    view.show(reports())
    view.show(reports())
    first = stream.getvalue()
    assert first.count("TARGET") == 1, "the second came too soon"
    assert "counts" in first and "1200" in first and "1.2" in first
    view.note("visits: failed")
    view.finish(reports())
    rest = stream.getvalue()[len(first) :]
    assert rest.startswith("\x1b[3A\x1b[Jvisits: failed\n")
    assert rest.count("TARGET") == 1


def test_without_a_terminal_there_are_plain_lines() -> None:
    stream = io.StringIO()
    view = View("clicks", stream=stream)
    view.show(reports())
    lines = stream.getvalue().splitlines()
    assert lines[0] == (
        "clicks.counts state=running rows=1200 written=- rows/s=300 lag=7 lag-s=1.2 batch-ms=80"
        " bad=0 late=0"
    )
    assert "\x1b" not in stream.getvalue()
    quiet = View("clicks", quiet=True, stream=(silent := io.StringIO()))
    quiet.show(reports())
    quiet.finish(reports())
    assert silent.getvalue() == ""


def test_a_pipeline_that_went_silent_is_lost() -> None:
    word = Published(
        "p", "running", "stream", "p.yaml", "h", 1, 0, 1_000, [report_json(reports()[0])]
    )
    assert Published.from_json(word.to_json()) == word
    assert word.state_at(1_000 + SILENT_MS) == "running"
    assert word.state_at(1_001 + SILENT_MS) == "lost"
    word.state = "stopped"
    assert word.state_at(10**9) == "stopped"
    assert Published.from_json(b"{}") is None and Published.from_json(b"x") is None


def test_each_mode_of_a_pipeline_has_its_last_word() -> None:
    """A batch over history must not hide the stream that runs beside it."""
    keys = [
        Published("p", "done", mode, "p.yaml", "h", 1, 0, 0).key
        for mode in ("stream", "catch-up", "batch")
    ]
    assert keys == ["p", "p/catch-up", "p/batch"]


def test_a_sink_that_cannot_tell_is_not_counted() -> None:
    report = QueryReport("counts")
    report.add({**batch(0, 10, 10), "sink": {"numOutputRows": -1}})
    assert report.written is None and report_json(report)["written"] is None


def test_the_starter_passes_its_own_check(tmp_path: Path) -> None:
    written = write_starter(tmp_path, "mine")
    pipeline = load_pipeline(written[0], {})
    assert pipeline.name == "mine" and pipeline.tests
    check_static(pipeline)
    with pytest.raises(PipelineError, match="this file is there already"):
        write_starter(tmp_path, "mine")


def test_sources_become_options_of_the_data_source(tmp_path: Path) -> None:
    text = SMALL.replace(
        "{topic: t}", "{topics: [t, s], limit: {rows: 5, bytes: 9}, on_data_loss: continue}"
    )
    pipeline = load(tmp_path, text)
    source = pipeline.sources["a"]
    assert stream_options(pipeline, source, "g") == {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t,s",
        "failOnDataLoss": "false",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "5",
        "maxBytesPerTrigger": "9",
        "kafka.group.id": "g",
    }
    source.start = Start("latest")
    ends = {TopicPartition("t", 0): 7}
    options = batch_options(pipeline, source, ends)
    assert options["startingOffsets"] == "earliest", "history is not empty"
    assert options["endingOffsets"] == '{"t": {"0": 7}}'
    sink = TopicSink("u", options={"kafka.acks": "1"})
    assert write_options(pipeline, "u", sink)["kafka.acks"] == "1"
    sink.connect = {"bootstrap.servers": "other:1"}
    elsewhere = write_options(pipeline, "u", sink)
    assert elsewhere == {"kafka.bootstrap.servers": "other:1", "topic": "u", "kafka.acks": "1"}


def test_the_ends_by_a_pattern_leave_out_the_brokers_own_topics(
    tmp_path: Path, tidelog_broker: Broker, tidelog_topic: str
) -> None:
    place = {TopicPartition(tidelog_topic, 0): 0}
    with Client(tidelog_broker.bootstrap_servers) as client:
        client.run(commit_offsets(client.cluster, "some-group", place))
        known = client.run(list_topics(client.cluster))
        internal = {topic.name for topic in known if topic.internal}
        pipeline = load(tmp_path, SMALL.replace("{topic: t}", "{pattern: .*}"))
        ends = log_ends(client, pipeline, pipeline.sources["a"])
    assert internal
    assert TopicPartition(tidelog_topic, 0) in ends
    assert not internal & {tp.topic for tp in ends}


@pytest.mark.parametrize("pattern", ["orders|bills", "(?i)ORDERS|bills", "(?i)(?a)orders|.*s"])
def test_a_pattern_is_of_whole_names(tmp_path: Path, pattern: str) -> None:
    pipeline = load(tmp_path, SMALL.replace("{topic: t}", f"{{pattern: '{pattern}'}}"))
    found = re.compile(stream_options(pipeline, pipeline.sources["a"], "g")["subscribePattern"])
    assert found.search("orders") and found.search("bills")
    assert not found.search("my-order") and not found.search("orders.dead")


@pytest.mark.parametrize("pattern", [".*", "(?i)__TIDELOG.*"])
def test_a_pattern_does_not_read_what_the_run_itself_publishes(
    tmp_path: Path, pattern: str
) -> None:
    """Every report was a new record to read, and so to report on."""
    pipeline = load(tmp_path, SMALL.replace("{topic: t}", f"{{pattern: '{pattern}'}}"))
    found = re.compile(stream_options(pipeline, pipeline.sources["a"], "g")["subscribePattern"])
    assert not found.search("__tidelog_pipelines")
    assert found.search("__tidelog_pipelines_of_mine")


@pytest.mark.parametrize(
    ("start", "option", "value"),
    [
        (Start("time", 5), "startingTimestamp", "5"),
        (Start("group", "x"), "startingOffsets", "group:x"),
        (Start("offsets", offsets={0: 3}), "startingOffsets", '{"t": {"0": 3}}'),
        (Start("latest"), "startingOffsets", "latest"),
    ],
)
def test_starts_become_options(tmp_path: Path, start: Start, option: str, value: str) -> None:
    pipeline = load(tmp_path, SMALL)
    source = pipeline.sources["a"]
    source.start = start
    assert stream_options(pipeline, source, "g")[option] == value
