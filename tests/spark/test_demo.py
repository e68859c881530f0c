"""`make demo ONCE=1` as its own process: the kills happen, the counts agree, nothing stays."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.waiting import eventually

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
    assert_others_lead_when_a_leader_was_killed(done.stdout)
    # Spark leaves directories of its own behind where its JVM is killed.
    assert not list(tmp_path.glob("tidelog-demo-*"))
    left = [
        process.cmdline()
        for process in psutil.process_iter()
        if str(tmp_path) in " ".join(_quietly(process))
    ]
    assert left == []


def assert_others_lead_when_a_leader_was_killed(said: str) -> None:
    """It says in words who leads before and after; nobody stands still."""
    words = re.search(
        r"  before: (.*)\n\$ kill -KILL \d+    # broker (\d)\n  after:  (.*)\n(?:.*\n)"
        r"  since then: ([\d,]+) more clicks; billing has read ([\d,]+), search has read ([\d,]+), "
        r"fraud has read ([\d,]+); the table has ([\d,]+) more rows\n",
        said,
    )
    assert words is not None, said
    before, victim, after, *counts = words.groups()
    assert f"broker {victim} leads clicks-" in before
    assert f"broker {victim}" not in after and after.count("clicks-") == 4
    assert all(int(each.replace(",", "")) > 0 for each in counts)
    assert "healthy: 3 brokers" in said


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("killed", "once"), [("make", "java"), ("the demo", "java"), ("the demo", "--node-id 1")]
)
def test_everything_that_the_demo_started_ends_when_it_is_killed(
    tmp_path: Path, killed: str, once: str
) -> None:
    """Brokers, a site, applications, the driver of a pipeline, its JVM; or some brokers only."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    (tmp_path / "Makefile").write_text(f"demo:\n\t@{sys.executable} -m examples.demo --once\n")
    make = subprocess.Popen(
        ["make", "-s", "-f", str(tmp_path / "Makefile"), "demo"],
        cwd=ROOT, env=environment, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        eventually(lambda: any(once in each for each in _below(make)), lambda: _below(make), 120.0)
        family = psutil.Process(make.pid).children(recursive=True)
        assert len(family) >= (11 if once == "java" else 3)
    finally:
        if killed == "make":
            make.kill()
        else:
            psutil.Process(make.pid).children()[0].kill()
        make.wait()
    eventually(lambda: not psutil.wait_procs(family, 0)[1], lambda: family, 60.0)


def _below(process: subprocess.Popen[bytes]) -> list[str]:
    commands = []
    for each in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            commands.append(" ".join(each.cmdline()))
    return commands


def _quietly(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
