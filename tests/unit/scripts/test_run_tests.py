"""The tests run in two halves: one that fails fails all, and is shown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.waiting import eventually

SCRIPT = Path(__file__).parents[3] / "scripts" / "run_tests.py"


@contextmanager
def running_in(directory: Path, bodies: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run a tree with one test in each folder."""
    for folder in ("compat", "spark", "unit"):
        (directory / "tests" / folder).mkdir(parents=True)
        test = f"import os\n\ndef test_of_{folder}():\n    {bodies.get(folder, 'pass')}\n"
        (directory / "tests" / folder / f"test_{folder}.py").write_text(test)
    command = [sys.executable, str(SCRIPT), "-v", "-p", "no:cacheprovider"]
    with subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        yield process


def run_in(directory: Path, bodies: dict[str, str]) -> tuple[int, str]:
    with running_in(directory, bodies) as process:
        output, _ = process.communicate()
        return process.returncode, output


def test_both_halves_run_and_are_shown(tmp_path: Path) -> None:
    code, output = run_in(tmp_path, {})
    for folder in ("compat", "spark", "unit"):
        assert f"test_of_{folder} PASSED" in output
    assert code == 0


@pytest.mark.parametrize("folder", ["compat", "unit"])
@pytest.mark.parametrize("fault", ["assert False", "os.kill(os.getpid(), 9)"])
def test_a_failure_in_either_half_is_a_failure(tmp_path: Path, folder: str, fault: str) -> None:
    assert run_in(tmp_path, {folder: fault})[0] == 1


def test_whoever_ends_it_ends_both_halves(tmp_path: Path) -> None:
    """A test that waits for ever, and says so in a file."""
    waits = "open(str(os.getpid()), 'w').close(); import signal; signal.pause()"
    with running_in(tmp_path, {"compat": waits, "unit": waits}) as process:
        eventually(lambda: sum(path.name.isdigit() for path in tmp_path.iterdir()) == 2)
        process.terminate()
        assert process.wait(60) == 1
    for path in tmp_path.iterdir():
        assert not (path.name.isdigit() and psutil.pid_exists(int(path.name)))
