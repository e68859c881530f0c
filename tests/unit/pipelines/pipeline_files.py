"""Pipelines' files as the tests of this directory write them."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tidelog.pipelines.declare.file import load_pipeline
from tidelog.pipelines.declare.pipeline import Pipeline

# The form that docs/pipelines.md shows, with every section.
WHOLE = """\
pipeline: clicks
connect: {bootstrap.servers: "${SERVERS:-127.0.0.1:9092}"}
checkpoint: ./state/clicks
trigger: 1s
spark: {spark.sql.shuffle.partitions: 2}
sources:
  clicks:
    topic: clicks
    start: earliest
    limit: {rows: 200000}
    on_data_loss: fail
    value: {json: "user STRING, page STRING, at TIMESTAMP"}
    bad_records: {to: clicks.dead, stop_above: 1%}
    watermark: {column: at, delay: 30s}
steps:
  visits: {sql: "SELECT *, date(at) AS day FROM clicks WHERE page <> '/health'"}
  known: {python: "steps.py:join_users", inputs: [visits]}
  page_counts:
    sql: |
      SELECT window.start AS minute, page, count(*) AS views
      FROM known GROUP BY window(at, '1 minute'), page
targets:
  counts:
    from: page_counts
    topic: page-counts
    key: page
    value: json
    emit: updates
  visits:
    from: visits
    table: {delta: ./lake/visits, partition_by: [day]}
on_error: {retries: 3, backoff: 5s, then: stop}
tests:
  - given: {clicks: cases/clicks.jsonl}
    expect: {counts: cases/counts.jsonl}
"""
SMALL = """\
pipeline: small
connect: {bootstrap.servers: "h:1"}
sources:
  a: {topic: t}
targets:
  out: {from: a, topic: u, value: raw}
"""


def write(directory: Path, text: str, name: str = "p.yaml") -> Path:
    path = directory / name
    path.write_text(textwrap.dedent(text))
    return path


def write_whole(directory: Path) -> Path:
    """The whole form with the files that it names."""
    (directory / "cases").mkdir(exist_ok=True)
    (directory / "cases/clicks.jsonl").write_text("")
    (directory / "cases/counts.jsonl").write_text("")
    (directory / "steps.py").write_text("def join_users(visits):\n    return visits\n")
    return write(directory, WHOLE)


def load(directory: Path, text: str, **environment: str) -> Pipeline:
    return load_pipeline(write(directory, text), environment)
