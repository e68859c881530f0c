"""The pipeline examples as a reader runs them, drivers killed: every mode gives the truth."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import psutil
import pytest

from examples.pipelines.example import NAMES
from examples.pipelines.trial import MODES

ROOT = Path(__file__).resolve().parents[2]
LONG = bool(os.environ.get("TIDELOG_LONG"))
CASES = (
    [(name, 200_000, MODES) for name in NAMES]
    if LONG
    else [("website_activity", 20_000, ("catch-up", "batch"))]
)
SECONDS_MAX = 3600
GONE_SECONDS_MAX = 60.0
MARK = "EXAMPLES_TEST_MARK"


def marked(mark: str) -> list[psutil.Process]:
    """The processes that were started, directly or not, with this mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


def run(name: str, *arguments: str) -> list[str]:
    """The lines of an example that ended well and left neither a process nor a file."""
    mark = uuid.uuid4().hex
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    # Not pytest's directory: Spark makes Unix-domain sockets below it, whose names must be short.
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [sys.executable, "-m", "examples.pipelines", name, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths, "TMPDIR": directory, MARK: mark},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        print(done.stdout, done.stderr)
        assert done.returncode == 0
        # Workers of a driver that was killed notice it a moment later.
        _, left = psutil.wait_procs(marked(mark), timeout=GONE_SECONDS_MAX)
        assert left == [] == marked(mark)
        assert os.listdir(directory) == []
    return done.stdout.splitlines()


def check(lines: list[str], modes: tuple[str, ...]) -> None:
    assert [line.split()[:3] for line in lines[1:]] == [[mode, "=", "truth:"] for mode in modes]
    for line in lines[1:]:
        assert ("driver killed 1 time" in line) == (not line.startswith("batch")), line
        assert not re.search(r"\b0\b", line.partition("truth:")[2]), "a target is empty"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "events", "modes"), CASES, ids=[case[0] for case in CASES])
def test_every_mode_gives_the_truth_after_a_kill(
    name: str, events: int, modes: tuple[str, ...]
) -> None:
    chosen = [word for mode in modes for word in ("--mode", mode)]
    check(run(name, "--events", str(events), "--kill", *chosen), modes)
