"""A pipeline on Spark that copies the topic into a table while brokers fail."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from deltalake import DeltaTable

from tests.e2e.group_schedules.task import TOPIC
from tests.spark.cluster import ROOT, spark_environment

_FILE: Final = """\
pipeline: chaos
connect: {{bootstrap.servers: "{servers}"}}
checkpoint: ./state
trigger: 1s
spark: {{spark.sql.shuffle.partitions: 2, spark.driver.memory: 512m}}
sources:
  work: {{topic: {topic}, value: text}}
targets:
  work: {{from: work, table: {{delta: ./lake/work}}}}
on_error: {{retries: 1000, backoff: 1s}}
"""
_STOP_S: Final = 60.0


class Pipeline:
    """The process of `tidelog pipeline run`, and the table that it writes."""

    def __init__(self, directory: Path, servers: str) -> None:
        directory.mkdir()
        self._table = directory / "lake" / "work"
        self.log = directory / "pipeline.log"
        file = directory / "chaos.yaml"
        file.write_text(_FILE.format(servers=servers, topic=TOPIC))
        command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(file), "--no-publish",
                   "--master", "local[1]"]  # fmt: skip
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=spark_environment(), stdout=log, stderr=log
            )

    def is_running(self) -> bool:
        return self._process.poll() is None

    def rows(self) -> int:
        """How many rows the table has."""
        if not DeltaTable.is_deltatable(str(self._table)):
            return 0
        return DeltaTable(str(self._table)).to_pyarrow_dataset().count_rows()

    def problems(self, values: set[int]) -> list[str]:
        """How the table differs from the values that were acknowledged; others may be there."""
        column = DeltaTable(str(self._table)).to_pyarrow_table().column("value").to_pylist()
        counts = Counter(map(int, column))
        missing = values - counts.keys()
        repeated = [value for value, count in counts.items() if count > 1]
        found = []
        if missing:
            found.append(f"the table lacks {len(missing)} values, such as {min(missing)}")
        if repeated:
            found.append(f"the table repeats {len(repeated)} values, such as {min(repeated)}")
        return found

    def stop(self) -> None:
        """Ctrl-C, and no more patience than that needs."""
        if self.is_running():
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        if self.is_running():
            self._process.kill()
        self._process.wait()
