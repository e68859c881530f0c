"""Edits that a checkpoint cannot follow are refused, and so is a second runner."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tidelog.spark.pipeline.checkpoint import (
    FINGERPRINT,
    Checkpoint,
    Fingerprint,
    SourceShape,
    changes,
    is_local,
    set_aside,
)
from tidelog.spark.pipeline.model import PipelineError

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
    for text in ("", "[]", "{}", TABLE.to_json().replace('"version": 1', '"version": 9')):
        assert Fingerprint.from_json(text) is None


def used(root: Path) -> Checkpoint:
    """A checkpoint that a query has run on."""
    checkpoint = Checkpoint(str(root), "counts")
    checkpoint.admit(COUNTS, "p.yaml")
    (root / "counts/offsets").mkdir()
    (root / "counts/offsets/0").write_text("v1")
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


def test_a_table_that_is_begun_anew_is_kept_aside(tmp_path: Path) -> None:
    table = tmp_path / "visits"
    assert set_aside(str(table)) is None
    table.mkdir()
    (table / "part").write_text("x")
    aside = set_aside(str(table))
    assert aside is not None and (Path(aside) / "part").read_text() == "x"
    assert not table.exists()


def test_local_and_other_places_are_told_apart() -> None:
    assert is_local("/a") and is_local("file:///a") and is_local("")
    assert not is_local("s3a://bucket/a")
