"""Edits that a checkpoint cannot follow are refused, and so is a second runner."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tidelog.pipelines.declare.pipeline import PipelineError, TableSink
from tidelog.pipelines.run.checkpoint import (
    FINGERPRINT,
    Checkpoint,
    Fingerprint,
    SourceShape,
    changes,
)
from tidelog.pipelines.run.table_state import set_aside
from tidelog.spark.locations import is_local

COUNTS = Fingerprint(
    [SourceShape(["clicks"])], ["Aggregate by (string) of count: bigint"], "update", "topic"
)
TABLE = Fingerprint([SourceShape(["clicks"])], [], "append", "delta table", "/lake/visits", ["day"])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (COUNTS, COUNTS, None),
        (COUNTS, replace(COUNTS, sources=[SourceShape(["clicks", "more"])]), None),
        (
            COUNTS,
            replace(COUNTS, sources=[SourceShape(["orders"])]),
            "read clicks and now reads orders",
        ),
        (COUNTS, replace(COUNTS, sources=[SourceShape([], "c.*")]), "now reads the pattern c.*"),
        (
            COUNTS,
            replace(COUNTS, sources=[*COUNTS.sources, SourceShape(["x"])]),
            "read 1 sources and",
        ),
        (COUNTS, replace(COUNTS, state=[]), "is now none"),
        (COUNTS, replace(COUNTS, mode="append"), "emit: updates and now with emit: final"),
        (
            COUNTS,
            replace(COUNTS, sink="delta table", table="/x"),
            "to a topic and now to a delta table /x",
        ),
        (COUNTS, replace(COUNTS, sink="topic, exactly once"), None),
        (
            replace(COUNTS, sink="topic, exactly once"),
            COUNTS,
            "to a topic, exactly once and now to a topic",
        ),
        (TABLE, replace(TABLE, table="/other"), "delta table /lake/visits and now to a delta"),
        (TABLE, replace(TABLE, partition_by=[]), "by day and is now by nothing"),
    ],
)
def test_what_a_checkpoint_cannot_follow_is_named(
    old: Fingerprint, new: Fingerprint, words: str | None
) -> None:
    found = changes(old, new)
    assert (words is None) == (found == [])
    assert words is None or words in found[0]


def test_a_fingerprint_survives_its_file() -> None:
    assert Fingerprint.from_json(TABLE.to_json()) == TABLE
    for text in ("", "[]", "{}", TABLE.to_json().replace('"version": 2', '"version": 9')):
        assert Fingerprint.from_json(text) is None


def test_a_fingerprint_without_arguments_and_keys_is_refused_with_the_remedy(
    tmp_path: Path,
) -> None:
    """What version 1 noted cannot be compared: it took sum(n) and sum(m) for the same."""
    used(tmp_path)
    note = tmp_path / "counts" / FINGERPRINT
    note.write_text(note.read_text().replace('"version": 2', '"version": 1'))
    with pytest.raises(PipelineError, match=r"cannot be read by this version; .*--reset counts"):
        Checkpoint(str(tmp_path), "counts").admit(COUNTS, "p.yaml")


def used(root: Path) -> Checkpoint:
    """A checkpoint that a query has run on."""
    checkpoint = Checkpoint(str(root), "counts")
    checkpoint.admit(COUNTS, "p.yaml")
    (root / "counts/metadata").write_text('{"id":"9c0f"}')
    for log in ("offsets", "commits"):
        (root / "counts" / log).mkdir()
        (root / "counts" / log / "0").write_text('v1\n{"watermark":0}\n-')
        (root / "counts" / log / ".0.crc").write_text("")
    return checkpoint


def test_an_edit_that_cannot_be_followed_is_refused_with_the_remedy(tmp_path: Path) -> None:
    checkpoint = used(tmp_path)
    checkpoint.admit(COUNTS, "p.yaml")
    with pytest.raises(PipelineError) as raised:
        checkpoint.admit(replace(COUNTS, mode="append"), "p.yaml")
    assert "counts: its checkpoint cannot follow this edit" in str(raised.value)
    assert "`tidelog pipeline run p.yaml --reset counts`" in str(raised.value)
    checkpoint.reset()
    assert not checkpoint.exists
    checkpoint.admit(replace(COUNTS, mode="append"), "p.yaml")


def test_an_edit_before_the_first_batch_costs_nothing(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path), "counts")
    checkpoint.admit(COUNTS, "p.yaml")
    checkpoint.admit(TABLE, "p.yaml")


def test_a_fingerprint_of_a_later_version_is_refused(tmp_path: Path) -> None:
    checkpoint = used(tmp_path)
    (tmp_path / "counts" / FINGERPRINT).write_text('{"version": 2}')
    with pytest.raises(PipelineError, match="cannot be read by this version"):
        checkpoint.admit(COUNTS, "p.yaml")


def test_a_second_runner_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    first, second = Checkpoint(str(tmp_path), "counts"), Checkpoint(str(tmp_path), "counts")
    first.lock()
    with pytest.raises(PipelineError, match=f"in use by process {os.getpid()}"):
        second.lock()
    other = Checkpoint(str(tmp_path), "visits")
    other.lock()
    other.unlock()
    first.unlock()
    second.lock()
    second.unlock()


def test_p4_a_checkpoint_that_is_whole_is_accepted(tmp_path: Path) -> None:
    checkpoint = used(tmp_path)
    checkpoint.check_whole("p.yaml")
    assert (checkpoint.planned, checkpoint.query_id) == (0, "9c0f")
    (tmp_path / "counts/offsets/1").write_text('v1\n{"watermark":0}\n{"clicks":{"0":5}}')
    checkpoint.check_whole("p.yaml")
    assert checkpoint.planned == 1, "planned and not yet written: what a kill leaves"
    Checkpoint(str(tmp_path), "fresh").check_whole("p.yaml")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("metadata", None, "metadata is missing or cut off"),
        ("metadata", '{"id":"9c', "metadata is missing or cut off"),
        ("metadata", "{}", "metadata is missing or cut off"),
        ("offsets/0", None, "offsets is empty, and commits at 0"),
        ("offsets/0", "", "offsets/0 is cut off"),
        ("offsets/0", "v1", "offsets/0 is cut off"),
        ("offsets/0", 'v1\n{"watermark":', "offsets/0 is cut off"),
        ("offsets/0", "\ufffd\0\0", "offsets/0 is cut off"),
        ("commits/0", "", "commits/0 is cut off"),
        ("commits/1", "v1\n{}", "offsets ends at 0, and commits at 1"),
    ],
)
def test_p4_a_damaged_checkpoint_is_named_with_the_remedy(
    tmp_path: Path, name: str, content: str | None, words: str
) -> None:
    checkpoint = used(tmp_path)
    file = tmp_path / "counts" / name
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with pytest.raises(PipelineError) as raised:
        checkpoint.check_whole("p.yaml")
    told = str(raised.value)
    assert told.startswith("counts: its checkpoint is damaged: ") and words in told
    assert "or begin anew with `tidelog pipeline run p.yaml --reset counts`" in told


def test_p4_a_checkpoint_of_other_bytes_is_damaged(tmp_path: Path) -> None:
    checkpoint = used(tmp_path)
    (tmp_path / "counts/offsets/0").write_bytes(b"\xff\xfe\0")
    with pytest.raises(PipelineError, match="offsets/0 is cut off"):
        checkpoint.check_whole("p.yaml")


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_table_that_is_begun_anew_is_kept_aside(tmp_path: Path, table_format: str) -> None:
    table = tmp_path / "visits"
    sink = TableSink(table_format, str(table))
    assert set_aside(sink) is None
    table.mkdir()
    (table / "part").write_text("x")
    (tmp_path / ".visits.tidelog").mkdir()
    aside = set_aside(sink)
    assert aside is not None and (Path(aside) / "part").read_text() == "x"
    assert not table.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f".{Path(aside).name}.tidelog",
        Path(aside).name,
    ], "its columns go with it, else those of the new one would have to be the same"


def test_local_and_other_places_are_told_apart() -> None:
    assert is_local("/a") and is_local("file:///a") and is_local("")
    assert not is_local("s3a://bucket/a")
