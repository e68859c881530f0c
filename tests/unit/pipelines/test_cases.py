"""The files of a pipeline's tests: what is no record is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.pipelines.pipeline_files import SMALL, load
from tidelog.pipelines.declare.pipeline import PipelineError
from tidelog.pipelines.run.cases import _read_records


@pytest.mark.parametrize(
    "record",
    [
        '{"value": "x", "timestamp": 99999999999999999999}',
        '{"value": "x", "timestamp": 999999999999999}',
        '{"value": "x", "partition": 2147483648}',
        '{"value": "x", "partition": -1}',
        '{"value": "x", "offset": 9223372036854775808}',
    ],
)
def test_a_number_out_of_range_is_told_with_its_line(tmp_path: Path, record: str) -> None:
    """Blank lines count: a line's number is the editor's."""
    source = load(tmp_path, SMALL).sources["a"]
    path = tmp_path / "given.jsonl"
    path.write_text(f'{{"value": "y"}}\n\n{record}\n')
    with pytest.raises(PipelineError, match=r"given\.jsonl:3: no record: "):
        list(_read_records(path, source))
