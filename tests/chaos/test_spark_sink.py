"""Spark's sink, exactly once, while drivers and executors are killed and tasks are speculated."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.spark_sink import LINES, run

KILLS = 30


@pytest.mark.long
@pytest.mark.spark
def test_p1_p2_every_row_is_there_once_whichever_drivers_and_executors_are_killed(
    tmp_path: Path,
) -> None:
    result = run(KILLS, 1, tmp_path)
    assert result.kills == Counter(driver=KILLS, executor=KILLS)
    assert result.rows > KILLS * LINES
    assert result.speculated > 0
    print(result)
