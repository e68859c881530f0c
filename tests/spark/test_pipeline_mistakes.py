"""Ordinary mistakes in a pipeline's file: told in a line with their place, and nothing is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.pipelines.pipeline_files import load
from tidelog.pipelines.declare.check import check_static
from tidelog.pipelines.declare.pipeline import PipelineError

FILE = """\
pipeline: p
connect: {{bootstrap.servers: "h:1"}}
sources:
  a: {{topic: t, {source}}}
  o: {{topic: o, value: {{json: "user STRING, n INT"}}}}
steps:
  s: {{sql: "{sql}"}}
targets:
  out: {{from: s, topic: u, {target}}}
"""
DECODED = 'value: {json: "user STRING, n INT"}'


def analysed(spark: Any, directory: Path, source: str, sql: str, target: str) -> Any:
    from tidelog.pipelines.run.analysis import analyse

    text = FILE.format(source=source or DECODED, sql=sql or "SELECT * FROM a", target=target)
    pipeline = load(directory, text)
    return analyse(spark, pipeline, check_static(pipeline))


@pytest.mark.parametrize(
    ("source", "sql", "target", "error"),
    [
        ("", "SELECT * FROM a JOIN o ON a.user = o.user", "value: json",
         "p.yaml:9:3: s has the column user twice, so out cannot tell which is meant"),
        ('value: {json: "user STRING, USER STRING"}', "", "value: json",
         "p.yaml:4:32: the schema has user and USER, and SQL does not tell case apart"),
        ('value: {json: "Key STRING"}, record: [key]', "", "value: json",
         "p.yaml:4:3: the column key of a is in its value's schema too"),
        ('value: {json: "m MAP<INT,STRING>"}', "", "value: json", "p.yaml:4:3: source a: "),
        ("", "SELECT n AS partition FROM a", "value: text, partition: partition",
         "p.yaml:9:3: target out writes text, which is one column; it has none"),
        ("", "SELECT no FROM a", "value: json", "p.yaml:7:20: "),
        ("", "SELEC no FROM a", "value: json", "p.yaml:7:13: "),
        ("", "SELECT array(1) AS k FROM a", "value: csv, headers: {k: no}", "no column no"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place_and_no_traceback(
    spark: Any, tmp_path: Path, source: str, sql: str, target: str, error: str
) -> None:
    with pytest.raises(PipelineError) as raised:
        analysed(spark, tmp_path, source, sql, target)
    assert error in str(raised.value), str(raised.value)
    assert all(" at org." not in line for line in raised.value.problems)


def test_a_column_with_a_dot_can_be_key_and_header(spark: Any, tmp_path: Path) -> None:
    target = "key: a.b, headers: {h: a.b}, value: json"
    (out,) = analysed(spark, tmp_path, "", "SELECT user AS `a.b`, n FROM a", target)
    assert [name for name, _ in out.columns] == ["key", "value", "headers"]


def test_a_setting_of_spark_with_a_wrong_value_is_named(spark: Any, tmp_path: Path) -> None:
    from tidelog.pipelines.run.analysis import analyse

    text = FILE.format(source=DECODED, sql="SELECT * FROM a", target="value: json")
    pipeline = load(tmp_path, text + "spark: {spark.sql.shuffle.partitions: many}\n")
    with pytest.raises(PipelineError, match=r"p\.yaml: spark: spark.sql.shuffle.partitions: "):
        analyse(spark, pipeline, check_static(pipeline))


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE made USING parquet LOCATION '{place}' AS SELECT 1 AS x",
        "CREATE OR REPLACE GLOBAL TEMP VIEW made AS SELECT 1 AS x",
        "INSERT OVERWRITE DIRECTORY '{place}' USING parquet SELECT 1 AS x",
        "WITH q AS (SELECT 1 AS x) INSERT INTO parquet.`{place}` SELECT * FROM q",
        "DROP TABLE IF EXISTS made",
        "SET spark.sql.shuffle.partitions = 7",
    ],
)
def test_a_check_carries_no_command_out(spark: Any, tmp_path: Path, sql: str) -> None:
    place = tmp_path / "made"
    with pytest.raises(PipelineError, match=r"p\.yaml:7:13: step s is a command"):
        analysed(spark, tmp_path, "", sql.format(place=place), "value: json")
    assert not place.exists()
