"""The examples run as their pages say, and leave nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.e2e.example_process import ROOT, command


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(tmp_path)}


def run(tmp_path: Path, name: str, *arguments: str) -> str:
    done = subprocess.run(
        command(name, *arguments),
        check=False,
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def processes_naming(text: str) -> list[str]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if text in line:
            found.append(line)
    return found


def test_the_tour_ends_by_itself_with_every_count_in_agreement(tmp_path: Path) -> None:
    shown = run(tmp_path, "tour", "--once")
    assert "\x1b[" not in shown, "colour in a pipe"
    summary = re.search(r"all counts agree.* ([\d,]+) records acknowledged, ([\d,]+) found", shown)
    assert summary is not None, shown
    assert summary[1] == summary[2]
    assert "kill -KILL" in shown and "tidelog_produced_records_total" in shown
    assert list(tmp_path.iterdir()) == []
    assert processes_naming(str(tmp_path)) == []


def test_an_interrupted_tour_leaves_no_process_and_no_directory(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("tour"),
        cwd=ROOT,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as tour:
        assert tour.stdout is not None
        seen = ""
        while "tidelog is up on" not in seen:
            line = tour.stdout.readline()
            assert line, seen
            seen += line
        assert processes_naming(str(tmp_path)) != []
        tour.send_signal(signal.SIGINT)
        tour.communicate(timeout=60)
    assert tour.returncode == 130
    assert list(tmp_path.iterdir()) == []
    assert processes_naming(str(tmp_path)) == []


def test_keys_go_on_elsewhere_when_partitions_are_added_as_the_page_shows(tmp_path: Path) -> None:
    shown = run(tmp_path, "keys_and_partitions")
    assert "4 keys stayed, 8 moved" in shown
    assert shown in (ROOT / "docs" / "promises.md").read_text()


@pytest.mark.parametrize("options", [[], ["--own-client"]])
def test_the_batching_measurement_runs(tmp_path: Path, options: list[str]) -> None:
    shown = run(tmp_path, "batching", "--records", "2000", *options)
    rates = [line.split()[-3] for line in shown.splitlines()[2:]]
    assert len(rates) == 3 and all(float(rate.replace(",", "")) > 0 for rate in rates), shown
    assert list(tmp_path.iterdir()) == []
