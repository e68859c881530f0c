"""Pipelines as DataFrames: values decoded, SQL analysed with its line, records encoded."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.pipelines.pipeline_files import load, write_whole
from tidelog.pipelines.declare.check import check_static
from tidelog.pipelines.declare.file import load_pipeline
from tidelog.pipelines.declare.pipeline import Pipeline, PipelineError, Source
from tidelog.pipelines.declare.starter import write_starter

HEAD = """\
pipeline: p
connect: {bootstrap.servers: "h:1"}
sources:
"""
TARGET = "targets: {o: {from: b, topic: u}}"


def static(values: list[Any]) -> Any:
    """Records with these values (or whole records), as a source."""
    from tidelog.pipelines.run.rows import record_schema

    def row(index: int, given: Any) -> dict[str, Any]:
        record = given if isinstance(given, dict) else {"value": given}
        return {
            "key": b"k",
            "topic": "t",
            "partition": 3,
            "offset": index,
            "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
            "timestampType": 0,
            "headers": [("h", b"1")],
            **record,
        }

    def records(session: Any, source: Source, columns: list[str]) -> Any:
        rows = [row(index, value) for index, value in enumerate(values)]
        return session.createDataFrame(
            [tuple(each[name] for name in columns) for each in rows], record_schema(columns)
        )

    return records


def plan(spark: Any, pipeline: Pipeline, values: list[Any]) -> Any:
    from tidelog.pipelines.run.plan import Plan

    return Plan(spark, pipeline, check_static(pipeline), static(values))


def with_source(directory: Path, source: str, target: str = "topic: u, value: json") -> Pipeline:
    text = f"{HEAD}  a: {{topic: t, {source}}}\ntargets:\n  out: {{from: a, {target}}}\n"
    return load(directory, text)


def split(spark: Any, pipeline: Pipeline, values: list[Any]) -> tuple[list[Any], list[str]]:
    """The rows of the source `a`, and the reasons of its dead letters."""
    made = plan(spark, pipeline, values)
    rows = [row.asDict() for row in made.relation("a").collect()]
    dead = made.dead_letters(pipeline.sources["a"]).collect()
    headers = [
        {each["key"]: bytes(each["value"]).decode() for each in row["headers"]} for row in dead
    ]
    assert all(each["tidelog.topic"] == "t" and each["h"] == "1" for each in headers)
    offsets = [int(each["tidelog.offset"]) for each in headers]
    assert [bytes(row["value"] or b"") for row in dead] == [values[at] or b"" for at in offsets]
    return rows, [each["tidelog.reason"] for each in headers]


def test_json_is_decoded_and_what_is_bad_has_a_reason(spark: Any, tmp_path: Path) -> None:
    """P8: a poisoned record stops nothing."""
    pipeline = with_source(
        tmp_path,
        "value: {json: 'user STRING NOT NULL, n INT'}, record: [partition], bad_records: {to: d}",
    )
    values = [
        b'{"user": "a", "n": 1}',
        b'{"user": "b"}',
        b"nonsense",
        b'{"user": "a", "n": "x"}',
        b'{"n": 1}',
        b"[1]",
        b"",
        None,
        b'{"user": "\xff"}',
    ]
    rows, reasons = split(spark, pipeline, values)
    assert rows == [
        {"user": "a", "n": 1, "partition": 3},
        {"user": "b", "n": None, "partition": 3},
    ]
    assert reasons == [
        "the value is no JSON",
        "the value does not fit the schema",
        "user is null",
        "the value does not fit the schema",
        "the value is no JSON",
        "the value is null",
        "the value is not UTF-8",
    ]


def test_csv_and_prefixed_json_are_decoded(spark: Any, tmp_path: Path) -> None:
    csv = with_source(tmp_path, "value: {csv: 'n INT, s STRING', options: {sep: ;}}")
    rows, reasons = split(spark, csv, [b"1;x", b"y;x", b"1", b""])
    assert rows == [{"n": 1, "s": "x"}]
    assert reasons == ["the value does not fit the schema"] * 2 + ["the value is empty"]
    prefixed = with_source(tmp_path, "value: {json: 'n INT', prefix: confluent}")
    rows, reasons = split(spark, prefixed, [b'\0\0\0\0\x07{"n": 1}', b'{"n": 1}', b"\0"])
    assert rows == [{"n": 1}]
    assert reasons == ["the value has no Confluent prefix"] * 2


def test_nulls_are_bad_kept_or_dropped(spark: Any, tmp_path: Path) -> None:
    for nulls, rows, reasons in (
        ("bad", [], ["the value is null"]),
        ("keep", [{"n": None, "key": b"k"}], []),
        ("drop", [], []),
    ):
        source = f"value: {{json: 'n INT NOT NULL', nulls: {nulls}}}, record: [key]"
        assert split(spark, with_source(tmp_path, source), [None]) == (rows, reasons), nulls


def test_a_bad_record_fails_the_query_where_asked(spark: Any, tmp_path: Path) -> None:
    pipeline = with_source(tmp_path, "value: {json: 'n INT'}, bad_records: fail")
    with pytest.raises(Exception, match="source a: a bad record in t-3 at offset 1: the value is"):
        plan(spark, pipeline, [b'{"n": 1}', b"x"]).relation("a").collect()


def test_rows_become_records(spark: Any, tmp_path: Path) -> None:
    source = "value: {json: 'k STRING, n INT'}"
    cases = {
        "topic: u, key: k": {"key": "x", "value": '{"k":"x","n":1}'},
        "topic: u, value: csv": {"value": "x,1"},
        "topic: u, key: k, value: text": {"key": "x", "value": "1"},
        "topic: u, key: n, partition: n, headers: {was: k}, value: json": {
            "key": "1", "value": '{"k":"x","n":1}', "partition": 1,
            "headers": [{"key": "was", "value": b"x"}],
        },
    }  # fmt: skip
    for target, expected in cases.items():
        pipeline = with_source(tmp_path, source, target)
        made = plan(spark, pipeline, [b'{"k": "x", "n": 1}']).target(pipeline.targets["out"])
        (row,) = made.collect()
        assert row.asDict(recursive=True) == expected, target
    raw = with_source(tmp_path, "record: [headers]", "topic: u, value: raw")
    (row,) = plan(spark, raw, [b"v"]).target(raw.targets["out"]).collect()
    assert (row["key"], row["value"], row["partition"]) == (b"k", b"v", 3)
    assert row["timestamp"] is not None and row["headers"][0]["key"] == "h"


def test_a_row_that_is_a_tombstone_becomes_a_record_without_a_value(
    spark: Any, tmp_path: Path
) -> None:
    source = "value: {json: 'k STRING, n INT, gone BOOLEAN'}"
    values = [b'{"k":"a","n":1}', b'{"k":"b","n":2,"gone":false}', b'{"k":"c","gone":true}']
    for kind, expected in (
        ("json", ['{"k":"a","n":1}', '{"k":"b","n":2}', None]),
        ("csv", ["a,1", "b,2", None]),
        ("text", ["1", "2", None]),
    ):
        target = f"topic: u, key: k, value: {kind}, tombstone: gone"
        pipeline = with_source(tmp_path, source, target)
        made = plan(spark, pipeline, values).target(pipeline.targets["out"]).collect()
        assert [(row["key"], row["value"]) for row in made] == list(
            zip("abc", expected, strict=True)
        ), kind


@pytest.mark.parametrize(
    ("rest", "error"),
    [
        (
            "steps:\n  b:\n    sql: |\n      SELECT *,\n        nn FROM a\n" + TARGET,
            ":9:9: A column, variable, or function parameter with name `nn` cannot be resolved",
        ),
        (
            "steps: {b: {sql: SELECT n FROM a WHER n}}\n" + TARGET,
            ":5:39: Syntax error at or near 'n'",
        ),
        (
            "targets:\n  o: {from: a, topic: u, key: nm}",
            ":6:3: a has no column nm for o; did you mean n",
        ),
        (
            "targets:\n  o: {from: a, topic: u, key: n, tombstone: n}",
            ":6:3: n is a int, a tombstone needs true or false",
        ),
        (
            "targets:\n  o: {from: a, table: {delta: x, partition_by: [day]}}",
            ":6:3: a has no column day to",
        ),
        (
            "targets:\n  o: {from: a, topic: u, value: text}",
            ":6:3: target o writes text, which is one column",
        ),
        (
            "steps: {b: {sql: 'SELECT n, count(*) AS c FROM a GROUP BY n'}}\n"
            "targets:\n  o: {from: b, topic: u}",
            ":7:3: target o is an aggregate: say emit: updates",
        ),
        (
            "steps: {b: {sql: 'SELECT n, count(*) AS c FROM a GROUP BY n'}}\n"
            "targets:\n  o: {from: b, topic: u, emit: final}",
            "or say emit: updates",
        ),
        (
            "steps: {b: {python: 'steps.py:nothing', inputs: [a]}}\n" + TARGET,
            "steps.py has no function nothing",
        ),
        (
            "steps: {b: {python: 'steps.py:broken', inputs: [a]}}\n" + TARGET,
            "step b: broken raised ZeroDivisionError",
        ),
        (
            "steps: {b: {python: 'wrong.py:f', inputs: [a]}}\n" + TARGET,
            "wrong.py:2: NameError",
        ),
    ],
)
def test_what_spark_refuses_is_told_with_file_and_line(
    spark: Any, tmp_path: Path, rest: str, error: str
) -> None:
    from tidelog.pipelines.run.analysis import analyse

    (tmp_path / "steps.py").write_text("def broken(a):\n    1 / 0\n")
    (tmp_path / "wrong.py").write_text("x = 1\nnonsense\n")
    text = f"{HEAD}  a: {{topic: t, value: {{json: 'n INT, k STRING'}}}}\n{rest}\n"
    pipeline = load(tmp_path, text)
    with pytest.raises(PipelineError) as raised:
        analyse(spark, pipeline, check_static(pipeline))
    assert error in str(raised.value), str(raised.value)


def test_a_wrong_schema_and_a_wrong_watermark_name_their_line(spark: Any, tmp_path: Path) -> None:
    from tidelog.pipelines.run.rows import source_schema

    for source, error in (
        ("value: {json: 'n INT, b'}", ":4:40: Syntax error"),
        ("value: {json: 'n INT'}, watermark: {column: at, delay: 1s}", "a has no column at"),
        ("value: {json: 'n INT'}, watermark: {column: n, delay: 1s}", "n is a int, a watermark"),
        ("value: {json: 'key INT'}, record: [key]", "the column key of a is in its value's schema"),
    ):
        pipeline = with_source(tmp_path, source)
        with pytest.raises(PipelineError) as raised:
            source_schema(pipeline.sources["a"])
        assert error in str(raised.value), str(raised.value)


@pytest.mark.parametrize("serializer", ["ByteArraySerializer", "StringSerializer"])
def test_a_copy_leaves_the_partition_and_keeps_headers_and_tombstones(
    spark: Any, tmp_path: Path, serializer: str
) -> None:
    """With its partition a record could not go to a topic that has fewer."""
    path = tmp_path / "copy.properties"
    path.write_text(
        "kafka.topic=t\nkafka.targetTopic=u\nbootstrap.servers=h:1\n"
        f"value.serializer=org.apache.kafka.common.serialization.{serializer}\n"
    )
    pipeline = load_pipeline(path, {})
    rows = plan(spark, pipeline, [b"x", None]).target(pipeline.targets["copy"])
    assert sorted(rows.columns) == ["headers", "key", "timestamp", "value"]
    found = rows.collect()
    texts = [row["value"] and row["value"].encode() if isinstance(row["value"], str)
             else row["value"] and bytes(row["value"]) for row in found]  # fmt: skip
    assert texts == [b"x", None]
    assert {(bytes(row["key"]), row["headers"][0]["key"]) for row in found} == {(b"k", "h")}


def test_the_whole_form_is_analysed_with_its_state(spark: Any, tmp_path: Path) -> None:
    from tidelog.pipelines.run.analysis import analyse

    pipeline = load_pipeline(write_whole(tmp_path), {})
    counts, visits = analyse(spark, pipeline, check_static(pipeline))
    assert (counts.mode, visits.mode) == ("update", "append")
    window = "window = at in windows by 0, 60000000: struct<start:timestamp,end:timestamp>"
    assert counts.state == [
        f"Aggregate by ({window}, page: string) of (count(1): bigint)",
        "kept of each group: (count(1): bigint)",
    ]
    assert visits.state == []
    assert ("day", "date") in visits.columns


def test_the_tests_of_a_file_pass_and_show_what_differs(spark: Any, tmp_path: Path) -> None:
    from tidelog.pipelines.run.cases import run_case

    pipeline = load_pipeline(write_starter(tmp_path, "clicks")[0], {})
    checked = check_static(pipeline)
    (case,) = pipeline.tests
    result = run_case(spark, pipeline, checked, case)
    assert result.passed and result.rows == {"counts": 3, "clicks.bad": 1}
    expected = tmp_path / "cases/counts.jsonl"
    expected.write_text(expected.read_text().replace('"views": 2', '"views": 3'))
    result = run_case(spark, pipeline, checked, case)
    difference = result.differences["counts"]
    assert [line.count('"views": 3') for line in difference.missing] == [1]
    assert [line.count('"views": 2') for line in difference.extra] == [1]
    lines = [
        '{"key": "/", "value": {"minute": "2026-01-01T12:00:00.000Z", "page": "/", "views": 1}}'
    ]
    expected.write_text("\n".join(lines))
    result = run_case(spark, pipeline, checked, case)
    assert result.differences["counts"].missing == [], "records are compared with their key"
    assert len(result.differences["counts"].extra) == 2


def test_a_checkpoint_elsewhere_is_kept_through_hadoop(spark: Any, tmp_path: Path) -> None:
    from tidelog.pipelines.run.checkpoint import HadoopStore

    store = HadoopStore(spark)
    path = f"file://{tmp_path}/state/x.json"
    assert store.read(path) is None and store.names(f"file://{tmp_path}/state") == []
    store.write(path, "größer")
    assert store.read(path) == "größer" and store.names(f"file://{tmp_path}/state") == ["x.json"]
    store.delete(f"file://{tmp_path}/state")
    assert store.read(path) is None
