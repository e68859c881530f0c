"""What a batch writes for a look replaces nothing but what an earlier one wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.pipelines.pipeline_files import SMALL, load
from tidelog.pipelines.declare.pipeline import Pipeline, PipelineError
from tidelog.pipelines.run.places import check_into
from tidelog.spark.locations import overlap


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    table = "table: {parquet: ./lake/out}"
    text = SMALL.replace("topic: u, value: raw", table) + "checkpoint: ./state\n"
    return load(tmp_path, text)


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("/a/t", "/a/t", True),
        ("/a/t", "/a/x/../t/", True),
        ("/a/t", "/a/t/sub", True),
        ("/a/t/sub", "file:///a/t", True),
        ("/a/t", "/a/t2", False),
        ("/a/t", "s3a://a/t", False),
    ],
)
def test_directories_that_lie_in_one_another(one: str, other: str, together: bool) -> None:
    assert overlap(one, other) is together


@pytest.mark.parametrize(
    ("into", "what"),
    [
        ("lake", "the table of out"),
        (".", ""),
        ("lake/out", "the table of out"),
        ("lake/out/sub", "the table of out"),
        ("state", "the checkpoint"),
        ("look", ""),
    ],
)
def test_a_look_does_not_replace_a_live_table(
    tmp_path: Path, pipeline: Pipeline, into: str, what: str
) -> None:
    if not what:
        check_into(str(tmp_path / into), ["out"], pipeline)
        return
    with pytest.raises(PipelineError, match=f"--into .* would replace .* and {what} is "):
        check_into(str(tmp_path / into), ["out"], pipeline)


def test_a_look_replaces_only_what_an_earlier_one_wrote(tmp_path: Path, pipeline: Pipeline) -> None:
    place = tmp_path / "look/out"
    place.mkdir(parents=True)
    for name in ("part-00000-1.c000.snappy.parquet", ".part-0.parquet.crc", "_SUCCESS"):
        (place / name).write_text("")
    check_into(f"{tmp_path}/look/", ["out"], pipeline)
    (place / "thesis.tex").write_text("")
    with pytest.raises(PipelineError, match="holds other files than a batch writes"):
        check_into(f"{tmp_path}/look", ["out"], pipeline)
