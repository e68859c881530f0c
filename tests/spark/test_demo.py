"""`make demo ONCE=1` as its own process: the kills happen, the counts agree, nothing stays."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(
    r"^sent ([\d,]+) = table ([\d,]+) \+ filtered ([\d,]+) \+ dead ([\d,]+), "
    r"duplicates 0, lag 0$",
    re.MULTILINE,
)


@pytest.mark.timeout(600)
def test_the_demo_adds_up_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--once"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=580, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = LINE.search(done.stdout)
    assert found is not None, done.stdout
    sent, *parts = (int(each.replace(",", "")) for each in found.groups())
    assert sent == sum(parts)
    assert min(parts) > 0
    assert "the batch gives the same rows" in done.stdout
    assert done.stdout.count("kill -KILL") == 3
    # Spark leaves directories of its own behind where its JVM is killed.
    assert not list(tmp_path.glob("tidelog-demo-*"))
    left = [
        process.cmdline()
        for process in psutil.process_iter()
        if str(tmp_path) in " ".join(_quietly(process))
    ]
    assert left == []


def _quietly(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
