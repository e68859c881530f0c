"""A pipeline's file is read wholly or refused with file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.pipelines.pipeline_files import SMALL, WHOLE, load, write, write_whole
from tidelog.pipelines.declare.file import load_pipeline
from tidelog.pipelines.declare.pipeline import (
    BadPolicy,
    BadRecords,
    Emit,
    Limit,
    OnError,
    PipelineError,
    Start,
    TableSink,
    TopicSink,
    ValueFormat,
)


def test_every_section_of_the_whole_form_is_read(tmp_path: Path) -> None:
    pipeline = load_pipeline(write_whole(tmp_path), {})
    assert (pipeline.name, pipeline.group) == ("clicks", "tidelog.clicks")
    assert pipeline.bootstrap_servers == "127.0.0.1:9092"
    assert pipeline.checkpoint == str(tmp_path / "state/clicks")
    assert pipeline.trigger_ms == 1000
    assert pipeline.spark == {"spark.sql.shuffle.partitions": "2"}
    source = pipeline.sources["clicks"]
    assert (source.topics, source.start, source.limit) == (["clicks"], Start(), Limit(200000))
    assert source.fail_on_data_loss and source.value.format is ValueFormat.JSON
    assert source.bad_records == BadRecords(BadPolicy.TOPIC, "clicks.dead", 0.01)
    assert source.watermark is not None
    assert (source.watermark.column, source.watermark.delay_ms) == ("at", 30_000)
    assert list(pipeline.steps) == ["visits", "known", "page_counts"]
    known = pipeline.steps["known"].python
    assert known is not None and known.path == tmp_path / "steps.py"
    counts, visits = pipeline.targets.values()
    assert counts.sink == TopicSink("page-counts", ValueFormat.JSON, "page")
    assert counts.emit is Emit.UPDATES and visits.emit is None
    assert visits.sink == TableSink("delta", str(tmp_path / "lake/visits"), ["day"])
    assert pipeline.on_error == OnError(3, 5_000, "stop")
    assert pipeline.tests[0].given == {"clicks": tmp_path / "cases/clicks.jsonl"}


def test_the_environment_is_put_in_place(tmp_path: Path) -> None:
    assert load(tmp_path, WHOLE, SERVERS="broker:1").bootstrap_servers == "broker:1"
    assert load(tmp_path, WHOLE, SERVERS="").bootstrap_servers == "127.0.0.1:9092"
    escaped = SMALL + "steps: {b: {sql: \"SELECT '$${x}' FROM a\"}}\n"
    step = load(tmp_path, escaped).steps["b"]
    assert step.sql is not None and step.sql.text == "SELECT '${x}' FROM a"
    with pytest.raises(PipelineError, match=r"p.yaml:2:31: the environment variable NONE is not"):
        load(tmp_path, SMALL.replace("h:1", "${NONE}"))
    with pytest.raises(PipelineError, match=r"p.yaml:2:31: \$\{ without a name"):
        load(tmp_path, SMALL.replace("h:1", "${1}"))


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start()),
        ("latest", Start("latest")),
        ("2026-01-01T00:00Z", Start("time", 1767225600000)),
        ("2026-01-01", Start("time", 1767225600000)),
        ("group:billing", Start("group", "billing")),
        ("{0: 120, 3: 0}", Start("offsets", offsets={0: 120, 3: 0})),
    ],
)
def test_every_start_is_understood(tmp_path: Path, text: str, start: Start) -> None:
    source = load(tmp_path, SMALL.replace("topic: t}", f"topic: t, start: {text}}}")).sources["a"]
    assert source.start == start


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("pipeline: small\n", "", "1:1: the file needs pipeline"),
        ("pipeline: small", "pipeline: a b", "1:11: a pipeline's name has"),
        (
            "pipeline: small",
            "pipeline: small\ntriger: 1s",
            "2:1: the file has no triger; did you mean trigger?",
        ),
        ('connect: {bootstrap.servers: "h:1"}\n', "", "1:1: the file needs connect"),
        ("{topic: t}", "{topics: t}", "4:15: topics is a list"),
        (
            "{topic: t}",
            "{topic: t, pattern: x}",
            "4:17: pattern: source a has one of topic, topics",
        ),
        ("{topic: t}", "{limit: {rows: 1}}", "4:6: source a needs topic, topics or pattern"),
        ("{topic: t}", "{pattern: '('}", "4:7: pattern: no regular expression"),
        (
            "pipeline: small",
            "pipeline: small\ntrigger: 999999999999d",
            "2:10: '999999999999d' is longer than 36500d",
        ),
        ("topic: u", "topic: u, headers: {h: ''}", "6:42: the header h needs a column"),
        ('"h:1"', '""', "1:1: the file needs connect"),
        ("topic: u", "topic: u, connect: {bootstrap.servers: ''}", "connect needs bootstrap"),
        ("\n  out: {from: a, topic: u, value: raw}", " {}", "5:10: targets is empty"),
        ("{topic: t}", "{topic: t, start: {}}", "4:24: start names no partition"),
        ("{topic: t}", "{topic: t, start: soon}", "4:24: 'soon' is no start"),
        ("{topic: t}", "{topic: t, start: {0: x}}", "4:25: start maps partitions"),
        ("{topic: t}", "{topic: t, start: {0: " + "9" * 5000 + "}}", "4:25: start maps partitions"),
        ("{topic: t}", "{topic: t, limit: {rows: 0}}", "4:31: rows is a whole number from 1"),
        ("{topic: t}", "{topic: t, limit: {row: 1}}", "4:25: limit has no row; did you mean rows?"),
        (
            "{topic: t}",
            "{topic: t, value: jason}",
            "4:24: 'jason' is none of json, csv, text, raw; did you",
        ),
        ("{topic: t}", "{topic: t, value: json}", "4:24: json needs a schema"),
        (
            "{topic: t}",
            "{topic: t, value: {json: 'a INT', prefix: x}}",
            "4:40: prefix: 'x' is none",
        ),
        ("{topic: t}", "{topic: t, value: text, record: [size]}", "4:39: a record has key"),
        (
            "{topic: t}",
            "{topic: t, record: [key]}",
            "4:26: a raw source has the column key already",
        ),
        (
            "{topic: t}",
            "{topic: t, value: text, bad_records: x}",
            "4:43: bad_records is drop, fail or",
        ),
        (
            "{topic: t}",
            "{topic: t, value: text, bad_records: {to: d, stop_above: 1}}",
            "stop_above is a share",
        ),
        ("{topic: t}", "{topic: t, watermark: {column: x}}", "4:28: watermark needs delay"),
        ("{topic: t}", "{topic: t, watermark: {column: x, delay: 30}}", "'30' is no duration"),
        ("  a: {topic: t}", "  a-b: {topic: t}", "4:3: 'a-b' cannot be a name in SQL"),
        ("{from: a, topic: u, value: raw}", "{topic: u}", "6:8: target out needs from"),
        ("{from: a, topic: u, value: raw}", "{from: a}", "6:8: target out needs topic or table"),
        (
            "{from: a, topic: u, value: raw}",
            "{from: a, table: {orc: x}}",
            "table needs delta or parquet",
        ),
        (
            "value: raw}",
            "connect: {client.id: x}}",
            "6:28: connect: connect needs bootstrap.servers",
        ),
        (
            "topic: u, value: raw}",
            "table: {delta: x}, connect: {a: b}}",
            "target out has no connect",
        ),
        ("value: raw}", "emit: complete}", "6:28: emit: the whole result with every batch"),
        ("topic: u, value: raw}", "table: {delta: x}, emit: updates}", "a table takes rows once"),
        ("targets:\n  out: {from: a, topic: u, value: raw}\n", "", "the file needs targets"),
        ("targets:", "steps: {b: {}}\ntargets:", "5:12: step b needs sql or python"),
        (
            "targets:",
            "steps: {b: {sql: SELECT x, y FROM a}}\ntargets:",
            "5:28: step b has no y FROM a; a text with commas needs quotes inside { }",
        ),
        ("targets:", "steps: {b: {python: x}}\ntargets:", "python names a file and a function"),
        ("targets:", "on_error: {then: die}\ntargets:", "then: 'die' is none of stop, continue"),
        ("targets:", "tests: [{given: {a: x}}]\ntargets:", "a test needs expect"),
        ("targets:", "sources: {}\ntargets:", "p.yaml:5: sources was set before"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, error: str
) -> None:
    assert old in SMALL
    with pytest.raises(PipelineError) as raised:
        load(tmp_path, SMALL.replace(old, new))
    assert error in str(raised.value), str(raised.value)


def test_all_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    text = SMALL.replace("topic: t}", "topic: t, start: x}").replace("value: raw", "values: raw")
    with pytest.raises(PipelineError) as raised:
        load(tmp_path, text)
    assert [line.split(":")[1] for line in raised.value.problems] == ["4", "6"]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a: [", b"- 1"])
def test_what_is_no_pipeline_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(content)
    with pytest.raises(PipelineError, match=r"p\.yaml"):
        load_pipeline(path, {})
    with pytest.raises(PipelineError, match="No such file"):
        load_pipeline(tmp_path / "none.yaml", {})


def test_a_table_at_a_url_of_this_machine_is_the_directory_itself(tmp_path: Path) -> None:
    """As file:///lake/t it was never found, so its rows came twice beside a lost checkpoint."""
    for written in (f"file://{tmp_path}/a%20b/t", "./a b/t", "./x/../a b/t/"):
        text = SMALL.replace("topic: u, value: raw", f"table: {{parquet: '{written}'}}")
        sink = load(tmp_path, text).targets["out"].sink
        assert isinstance(sink, TableSink) and sink.path == str(tmp_path / "a b/t")
    text = SMALL.replace("topic: u, value: raw", "table: {delta: 's3a://lake/t'}")
    with pytest.raises(PipelineError, match=r"p\.yaml:6:26: delta: 's3a://lake/t' is no directory"):
        load(tmp_path, text)


# ---- the properties form --------------------------------------------------------------------

PROPERTIES = """\
kafka.topic=clicks
kafka.targetTopic=copy
metadata.broker.list=h:1
"""


def test_a_properties_file_is_the_smallest_pipeline(tmp_path: Path) -> None:
    pipeline = load_pipeline(write(tmp_path, PROPERTIES, "copy.properties"), {})
    assert (pipeline.name, pipeline.bootstrap_servers) == ("copy", "h:1")
    assert pipeline.checkpoint == str(tmp_path / "state/copy")
    source, target = pipeline.sources["records"], pipeline.targets["copy"]
    assert (source.topics, source.start.kind) == (["clicks"], "latest")
    assert source.value.format is ValueFormat.RAW
    assert target.sink == TopicSink("copy", ValueFormat.RAW, "key")


@pytest.mark.parametrize(
    ("line", "start"),
    [
        ("kafka.forceFromStart=true", "earliest"),
        ("kafka.forceFromStart=false", "latest"),
        ("kafka.autooffset.reset=smallest", "earliest"),
        ("kafka.autooffset.reset=latest", "latest"),
    ],
)
def test_properties_say_where_to_begin(tmp_path: Path, line: str, start: str) -> None:
    path = write(tmp_path, PROPERTIES + line, "p.properties")
    assert load_pipeline(path, {}).sources["records"].start.kind == start


def test_a_serializer_of_strings_reads_text(tmp_path: Path) -> None:
    line = "value.serializer=org.apache.kafka.common.serialization.StringSerializer"
    pipeline = load_pipeline(write(tmp_path, PROPERTIES + line, "p.properties"), {})
    assert pipeline.sources["records"].value.format is ValueFormat.TEXT
    assert pipeline.sources["records"].record == ["key", "timestamp", "headers"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("kafka.topic=a\nbootstrap.servers=h:1\n", "kafka.targetTopic is missing"),
        (
            PROPERTIES + "kafka.tpic=x",
            "p.properties:4: unknown name kafka.tpic; did you mean kafka.topic",
        ),
        (PROPERTIES + "kafka.forceFromStart=yes", "4: 'yes' is none of true, false"),
        (PROPERTIES + "kafka.autooffset.reset=x", "4: 'x' is none of earliest"),
        (PROPERTIES + "value.serializer=com.acme.Avro", "4: com.acme.Avro is no serializer"),
    ],
)
def test_wrong_properties_are_named(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(PipelineError) as raised:
        load_pipeline(write(tmp_path, text, "p.properties"), {})
    assert error in str(raised.value)
