"""The tests run in two halves: one that fails fails all, and is shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "run_tests.py"


def run_in(directory: Path, bodies: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a tree with one test in each folder."""
    for folder in ("compat", "spark", "unit"):
        (directory / "tests" / folder).mkdir(parents=True)
        test = f"import os\n\ndef test_of_{folder}():\n    {bodies.get(folder, 'pass')}\n"
        (directory / "tests" / folder / f"test_{folder}.py").write_text(test)
    command = [sys.executable, str(SCRIPT), "-v", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_both_halves_run_and_are_shown(tmp_path: Path) -> None:
    done = run_in(tmp_path, {})
    for folder in ("compat", "spark", "unit"):
        assert f"test_of_{folder} PASSED" in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize("folder", ["compat", "unit"])
@pytest.mark.parametrize("fault", ["assert False", "os.kill(os.getpid(), 9)"])
def test_a_failure_in_either_half_is_a_failure(tmp_path: Path, folder: str, fault: str) -> None:
    assert run_in(tmp_path, {folder: fault}).returncode == 1
