"""What can be said of a pipeline without Spark is said, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.pipelines.pipeline_files import SMALL, load, write_whole
from tidelog.pipelines.declare.check import check_static
from tidelog.pipelines.declare.file import load_pipeline
from tidelog.pipelines.declare.pipeline import PipelineError
from tidelog.pipelines.run.option_check import check_options


def test_the_whole_form_passes_with_its_warnings(tmp_path: Path) -> None:
    pipeline = load_pipeline(write_whole(tmp_path), {})
    checked = check_static(pipeline)
    assert checked.order == ["visits", "known", "page_counts"]
    assert checked.inputs == {"visits": ["clicks"], "known": ["visits"], "page_counts": ["known"]}
    assert checked.sources_of("page_counts", pipeline.sources) == ["clicks"]
    (warning,) = checked.warnings
    assert "p.yaml:14:16: rows later than the watermark are dropped by a stream" in warning


def test_steps_are_ordered_behind_what_they_read(tmp_path: Path) -> None:
    text = SMALL + "steps: {c: {sql: SELECT * FROM b}, b: {sql: SELECT * FROM A}}\n"
    checked = check_static(load(tmp_path, text))
    assert checked.order == ["b", "c"]
    assert checked.inputs["b"] == ["a"], "names are the same in either case"
    assert [warning.split(": ")[1] for warning in checked.warnings] == [
        "no target uses c",
        "no target uses b",
    ]


def test_sql_that_only_spark_understands_is_left_to_spark(tmp_path: Path) -> None:
    sql = "FROM a |> SET x = 2 |> JOIN c USING (k) |> JOIN unknown USING (b, k)"
    steps = f"steps: {{b: {{sql: '{sql}'}}, c: {{sql: SELECT * FROM a JOIN b}}}}\n"
    checked = check_static(load(tmp_path, SMALL + steps))
    assert checked.inputs["b"] == ["a", "c"], "a guess; what it misses, or a circle, is no error"
    assert "p.yaml:7:9: the SQL of step b cannot be checked without Spark" in checked.warnings[0]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("targets:", "steps:\n  b:\n    sql: |\n      SELECT *\n      FROM aa\ntargets:",
         "9:12: step b reads aa, which is neither a source nor a step; did you mean a?"),
        ("from: a", "from: clicks", "6:3: target out is from clicks, which is neither"),
        ("targets:", "steps: {A: {sql: SELECT 1}}\ntargets:", "5:9: the name A is taken at line 4"),
        ("targets:", "steps: {b: {sql: SELECT * FROM c}, c: {sql: SELECT * FROM b}}\ntargets:",
         "the steps read each other in a circle: b → c → b"),
        ("targets:", "steps: {b: {python: 'no.py:f', inputs: [a]}}\ntargets:", "there is no file"),
        ("topic: u", "topic: t", "6:3: target out writes to t, which source a reads"),
        ("{topic: t}", "{pattern: '[tu]'}",
         "6:3: target out writes to u, which source a reads by its pattern [tu]"),
        ("{topic: t}", "{pattern: 't|(?:U)', value: text, bad_records: {to: U}}",
         "4:3: source a would read its own bad records again"),
        ("topic: u", "topic: t, connect: {bootstrap.servers: 'h:1'}",
         "6:3: target out writes to t, which source a reads"),
        ("value: raw", "tombstone: x, value: json",
         "6:3: target out has a tombstone and no key, so nobody could tell what is deleted"),
        ("value: raw", "tombstone: x, key: key, value: raw",
         "6:3: target out is raw: a row whose value is null is a tombstone already"),
        ("{topic: t}", "{topic: 'a b'}", "4:3: 'a b' is no topic"),
        ("{topic: t}", "{topic: t, value: text, bad_records: {to: 'd/d'}}", "'d/d' is no topic"),
        ("  a: {", "  window: {topic: w}\n  a: {", "4:3: window is a word of SQL"),
        ("targets:", "steps: {Stream: {sql: SELECT 1}}\ntargets:", "Stream is a word of SQL"),
        ("topic: u", "topic: ..", "6:3: '..' is no topic"),
        ("out:", "state:", "6:3: a target cannot be called state"),
        ("{topic: t}", "{topic: t, bad_records: {to: d}}", "4:3: source a is raw, so no record"),
        ("{topic: t}", "{topic: t, value: text, bad_records: {to: t}}", "its own bad records"),
        ("{topic: t}", "{pattern: t, start: {0: 1}}", "4:3: start by partition needs one topic"),
        ("topic: u, value: raw}", "table: {delta: x}}\n  two: {from: a, table: {delta: x}}",
         "7:3: target two writes to the same directory as out"),
        ("topic: u, value: raw}", "table: {delta: ./x}}\n  two: {from: a, table: {delta: y/../x}}",
         "7:3: target two writes to the same directory as out"),
        ("topic: u, value: raw}", "table: {delta: x}}\n  two: {from: a, table: {delta: x/sub}}",
         "7:3: the table "),
        ("topic: u, value: raw}", "table: {delta: s/x}}\ncheckpoint: ./s", "6:3: the table "),
        ("targets:", "tests: [{given: {b: x}, expect: {ou: y}}]\ntargets:", "there is no source b"),
        ("targets:", "tests: [{given: {a: x}, expect: {ou: y}}]\ntargets:",
         "there is no target ou; did you mean out?"),
        ("targets:", "tests: [{given: {a: x}, expect: {out: y}}]\ntargets:", "there is no file"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, error: str
) -> None:
    assert old in SMALL
    pipeline = load(tmp_path, SMALL.replace(old, new))
    with pytest.raises(PipelineError) as raised:
        check_static(pipeline)
    assert error in str(raised.value), str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("{topic: t}", "{topic: t, options: {minPartition: 3}}", "4:3: source a: "),
        ("{topic: t}", "{topic: t, options: {minPartitions: x}}", "4:3: source a: "),
        ("{topic: t}", "{topic: t, options: {endingOffsets: latest}}", "a stream has no end"),
        ("topic: u", "topic: u, options: {kafka.acks: some}", "6:3: target out: "),
        ('"h:1"}', '"h:1", security.protocol: SASL_SSL}', "4:3: source a: "),
    ],
)  # fmt: skip
def test_options_that_a_run_would_fail_on_are_named_before(
    tmp_path: Path, old: str, new: str, error: str
) -> None:
    pipeline = load(tmp_path, SMALL.replace(old, new))
    check_static(pipeline)
    with pytest.raises(PipelineError) as raised:
        check_options(pipeline)
    assert error in str(raised.value), str(raised.value)


def test_a_topic_of_other_brokers_may_have_the_name_of_one_that_is_read(tmp_path: Path) -> None:
    elsewhere = "topic: t, connect: {bootstrap.servers: 'other:1'}"
    check_static(load(tmp_path, SMALL.replace("topic: u", elsewhere)))


def test_a_pattern_is_one_of_whole_names(tmp_path: Path) -> None:
    for pattern in ("[tU]", "u.", ".u", "(?i)T"):
        check_static(load(tmp_path, SMALL.replace("{topic: t}", f"{{pattern: '{pattern}'}}")))
    with pytest.raises(PipelineError, match="which source a reads by its pattern"):
        check_static(load(tmp_path, SMALL.replace("{topic: t}", "{pattern: '(?i)U'}")))


def test_dropped_bad_records_are_warned_about(tmp_path: Path) -> None:
    text = SMALL.replace("{topic: t}", "{topic: t, value: text}").replace("raw", "text")
    (warning,) = check_static(load(tmp_path, text)).warnings
    assert "p.yaml:4:3: bad records of a are dropped" in warning
