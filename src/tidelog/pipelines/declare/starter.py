"""`tidelog pipeline init`: a small pipeline that works, with a test."""

from __future__ import annotations

from pathlib import Path

from tidelog.pipelines.declare.file import NAME
from tidelog.pipelines.declare.pipeline import PipelineError

_PIPELINE = """\
# tidelog pipeline check {name}.yaml      looks at it
# tidelog pipeline test {name}.yaml       runs the tests at its end, without a broker
# tidelog pipeline run {name}.yaml        runs it; --mode catch-up or batch end by themselves
pipeline: {name}            # its group is tidelog.{name}
connect: {{bootstrap.servers: "${{TIDELOG_BOOTSTRAP_SERVERS:-127.0.0.1:9092}}"}}
checkpoint: ./state/{name}
trigger: 1s
sources:
  clicks:
    topic: clicks
    start: earliest
    value: {{json: "user STRING, page STRING, at TIMESTAMP"}}
    bad_records: {{to: clicks.dead, stop_above: 5%}}
    watermark: {{column: at, delay: 30s}}
steps:
  visits:
    sql: SELECT *, date(at) AS day FROM clicks WHERE page <> '/health'
  page_counts:
    sql: |
      SELECT window.start AS minute, page, count(*) AS views
      FROM visits
      GROUP BY window(at, '1 minute'), page
targets:
  counts:
    from: page_counts
    topic: page-counts
    key: page
    value: json
    emit: updates
  visits:
    from: visits
    table: {{parquet: ./lake/visits, partition_by: [day]}}
on_error: {{retries: 3, backoff: 5s, then: stop}}
tests:
  - name: views are counted by page and minute
    given: {{clicks: cases/clicks.jsonl}}
    expect:
      counts: cases/counts.jsonl
      clicks.bad: cases/bad.txt
"""
_FILES = {
    "cases/clicks.jsonl": """\
{"user": "ada", "page": "/", "at": "2026-01-01T12:00:01Z"}
{"user": "ada", "page": "/docs", "at": "2026-01-01T12:00:07Z"}
{"user": "bob", "page": "/docs", "at": "2026-01-01T12:00:30Z"}
{"user": "bob", "page": "/health", "at": "2026-01-01T12:00:31Z"}
{"user": "bob", "page": "/docs", "at": "2026-01-01T12:01:02Z"}
not a click
""",
    "cases/counts.jsonl": """\
{"minute": "2026-01-01T12:00:00.000Z", "page": "/", "views": 1}
{"minute": "2026-01-01T12:00:00.000Z", "page": "/docs", "views": 2}
{"minute": "2026-01-01T12:01:00.000Z", "page": "/docs", "views": 1}
""",
    "cases/bad.txt": "not a click\n",
}


def write_starter(directory: Path, name: str) -> list[Path]:
    """Write the files; those that are there already are left alone, and are an error."""
    if not NAME.fullmatch(name):
        rule = "letters, digits, '_', '.' and '-', and the first is a letter or a digit"
        raise PipelineError(f"a pipeline cannot be called '{name}': a name has {rule}")
    files = {directory / f"{name}.yaml": _PIPELINE.format(name=name)}
    files |= {directory / path: text for path, text in _FILES.items()}
    there = [f"{path}: this file is there already" for path in files if path.exists()]
    if there:
        raise PipelineError(*there)
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text)
    return list(files)
