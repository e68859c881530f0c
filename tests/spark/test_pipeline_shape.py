"""The text of a query's state: the same for the same file, another where the state is another."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.pipelines.pipeline_files import load
from tidelog.pipelines.declare.check import check_static
from tidelog.pipelines.declare.pipeline import Pipeline

HEAD = """\
pipeline: p
connect: {bootstrap.servers: "h:1"}
sources:
  clicks:
    topic: t
    value: {json: "page STRING, user STRING, n INT, m INT, at TIMESTAMP"}
    watermark: {column: at, delay: 1m}
  orders:
    topic: o
    value: {json: "page STRING, user STRING, n INT, m INT, at TIMESTAMP"}
    watermark: {column: at, delay: 1m}
"""


def of_sql(directory: Path, sql: str) -> Pipeline:
    text = f'{HEAD}steps: {{s: {{sql: "{sql}"}}}}\n'
    return load(directory, text + "targets: {out: {from: s, topic: u, emit: updates}}\n")


def of_python(directory: Path, body: str) -> Pipeline:
    # A file of its own: a step's file is run once per process.
    file = Path(tempfile.mkstemp(suffix=".py", dir=directory)[1])
    file.write_text(f"def f(clicks):\n    return clicks.{body}\n")
    text = f"{HEAD}steps: {{s: {{python: '{file.name}:f', inputs: [clicks]}}}}\n"
    return load(directory, text + "targets: {out: {from: s, topic: u}}\n")


def shape(spark: Any, pipeline: Pipeline) -> tuple[list[str], list[str]]:
    """The state of the target `out`, and the sources that it reads."""
    from tidelog.pipelines.run.plan import Plan
    from tidelog.pipelines.run.rows import record_schema
    from tidelog.pipelines.run.shape import source_order, state_of

    with tempfile.TemporaryDirectory() as empty:

        def records(session: Any, source: Any, columns: list[str]) -> Any:
            return session.readStream.schema(record_schema(columns)).parquet(empty)

        plan = Plan(spark, pipeline, check_static(pipeline), records)
        frame = plan.target(pipeline.targets["out"])
        return state_of(frame), source_order(frame, pipeline.sources)


JOIN = "SELECT c.n AS n FROM clicks c JOIN orders o ON c.{} = o.user AND c.at = o.at"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT page, count(*) AS c, sum(n) AS t FROM clicks GROUP BY page",
         "SELECT page, sum(n) AS t, count(*) AS c FROM clicks GROUP BY page"),
        ("SELECT page, sum(n) AS t FROM clicks GROUP BY page",
         "SELECT page, sum(m) AS t FROM clicks GROUP BY page"),
        ("SELECT page, sum(n) AS t FROM clicks GROUP BY page",
         "SELECT page, sum(n) AS t, sum(n) + sum(m) AS v FROM clicks GROUP BY page"),
        ("SELECT page AS k, sum(n) AS t FROM clicks GROUP BY page",
         "SELECT user AS k, sum(n) AS t FROM clicks GROUP BY user"),
        ("SELECT k, sum(n) AS t FROM (SELECT page AS k, n FROM clicks) GROUP BY k",
         "SELECT k, sum(n) AS t FROM (SELECT user AS k, n FROM clicks) GROUP BY k"),
        ("SELECT window.start AS s, count(*) AS c FROM clicks GROUP BY window(at, '1 minute')",
         "SELECT window.start AS s, count(*) AS c FROM clicks GROUP BY window(at, '1 hour')"),
        ("SELECT count(*) AS c FROM clicks GROUP BY window(at, '4 minutes', '2 minutes')",
         "SELECT count(*) AS c FROM clicks GROUP BY window(at, '6 minutes', '2 minutes')"),
        ("SELECT count(*) AS c FROM clicks GROUP BY session_window(at, '5 minutes')",
         "SELECT count(*) AS c FROM clicks GROUP BY session_window(at, '5 hours')"),
        (JOIN.format("user"), JOIN.format("page")),
        (JOIN.format("user"), JOIN.format("user").replace("c.n AS n", "c.m AS n")),
        ("SELECT c.n AS n FROM clicks c JOIN orders o ON c.user = o.page AND c.at = o.at",
         "SELECT c.n AS n FROM clicks c JOIN orders o ON o.user = c.page AND c.at = o.at"),
        ("SELECT sum(c.n) AS n FROM clicks c JOIN orders o ON c.user = o.user GROUP BY c.page",
         "SELECT sum(o.n) AS n FROM clicks c JOIN orders o ON c.user = o.user GROUP BY c.page"),
        # Nobody reads the other sum, so the optimizer leaves it out of the state.
        ("SELECT a FROM (SELECT page, sum(n) AS a, sum(m) AS b FROM clicks GROUP BY page)",
         "SELECT b FROM (SELECT page, sum(n) AS a, sum(m) AS b FROM clicks GROUP BY page)"),
        ("SELECT DISTINCT page FROM clicks", "SELECT DISTINCT user FROM clicks"),
    ],
)  # fmt: skip
def test_an_edit_whose_state_would_be_misread_changes_the_text(
    spark: Any, tmp_path: Path, one: str, other: str
) -> None:
    first, again, edited = (shape(spark, of_sql(tmp_path, sql)) for sql in (one, one, other))
    assert first == again, "the same file must go on from its own checkpoint"
    assert first[0] and first[0] != edited[0], first
    assert "#" not in "".join(first[0]), "an id of Spark's would be another next time"


def test_the_clock_and_chance_do_not_change_the_text(spark: Any, tmp_path: Path) -> None:
    """Such a query would be refused its own checkpoint at every start."""
    sql = (
        "SELECT salt, max(now() - at) AS age, sum(if(at > now(), n, 0)) AS t"
        " FROM (SELECT floor(rand() * 4) AS salt, n, at FROM clicks) GROUP BY salt"
    )
    first, again = (shape(spark, of_sql(tmp_path, sql)) for _ in range(2))
    assert first == again
    assert "rand()" in first[0][0] and "now()" in first[0][1], first


def test_other_keys_of_deduplication_change_the_text(spark: Any, tmp_path: Path) -> None:
    texts = [
        shape(spark, of_python(tmp_path, f"dropDuplicates(['{key}', 'at'])"))[0]
        for key in ("page", "page", "user")
    ]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0] == ["Deduplicate by (page: string, at: timestamp)"]


def test_what_a_step_leaves_as_it_was_does_not_change_the_text(spark: Any, tmp_path: Path) -> None:
    one = "SELECT page, sum(n) AS t FROM clicks GROUP BY page"
    other = "SELECT x.page AS p, sum(x.n) AS total FROM clicks AS x WHERE m > 1 GROUP BY x.page"
    assert shape(spark, of_sql(tmp_path, one)) == shape(spark, of_sql(tmp_path, other))


def test_an_alias_with_the_name_of_a_source_is_not_taken_for_it(spark: Any, tmp_path: Path) -> None:
    pipeline = of_sql(tmp_path, "SELECT * FROM orders AS clicks")
    assert shape(spark, pipeline)[1] == ["orders"]
    both = of_sql(tmp_path, "SELECT n FROM orders AS clicks UNION ALL SELECT n FROM clicks AS o")
    assert shape(spark, both)[1] == ["orders", "clicks"]
