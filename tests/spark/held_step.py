"""The step of a pipeline whose tasks wait in mid-batch; copied beside the pipeline's file.

Each task leaves a mark, with its process id in it, when a part of its rows has gone on to what
follows, and then waits until the file ``go`` is there.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

DIRECTORY = Path(__file__).parent
ROWS_BEFORE_MARK = 1000
seen: Counter[int] = Counter()


@udf(StringType(), useArrow=False)
def pass_on(user: str) -> str:
    task = TaskContext.get()
    assert task is not None
    seen[task.taskAttemptId()] += 1
    if seen[task.taskAttemptId()] == ROWS_BEFORE_MARK:
        mark = DIRECTORY / f"task-{task.partitionId()}-{task.attemptNumber()}.mark"
        draft = mark.with_suffix(".draft")
        draft.write_text(str(os.getpid()))
        draft.rename(mark)
        while not (DIRECTORY / "go").exists():
            time.sleep(0.05)
    return user


def hold(visits: Any) -> Any:
    return visits.withColumn("user", pass_on("user"))
