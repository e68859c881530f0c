"""The tests run in several processes: one that fails fails all, and is shown."""

from __future__ import annotations

import os
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
def running_in(
    directory: Path, bodies: dict[str, str], *options: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a tree with one test in each folder."""
    for folder in ("compat", "e2e", "spark", "unit"):
        (directory / "tests" / folder).mkdir(parents=True, exist_ok=True)
        test = f"import os\n\ndef test_of_{folder}():\n    {bodies.get(folder, 'pass')}\n"
        (directory / "tests" / folder / f"test_{folder}.py").write_text(test)
    command = [sys.executable, str(SCRIPT), "-v", "-p", "no:cacheprovider", *options]
    with subprocess.Popen(
        command,
        cwd=directory,
        # Looking for plug-ins takes longer than such a test does.
        env=dict(os.environ, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process


def run_in(directory: Path, bodies: dict[str, str], *options: str) -> tuple[int, str]:
    with running_in(directory, bodies, *options) as process:
        output, _ = process.communicate()
        return process.returncode, output


def test_all_runs_are_shown(tmp_path: Path) -> None:
    code, output = run_in(tmp_path, {})
    for folder in ("compat", "e2e", "spark", "unit"):
        assert output.count(f"test_of_{folder} PASSED") == 1
    assert code == 0


@pytest.mark.parametrize("folder", ["compat", "unit"])
@pytest.mark.parametrize("fault", ["assert False", "os.kill(os.getpid(), 9)"])
def test_a_failure_in_any_run_is_a_failure(tmp_path: Path, folder: str, fault: str) -> None:
    assert run_in(tmp_path, {folder: fault})[0] == 1


def test_a_run_without_chosen_tests_is_no_failure(tmp_path: Path) -> None:
    code, output = run_in(tmp_path, {}, "-k", "test_of_unit")
    assert "test_of_unit PASSED" in output
    assert code == 0
    assert run_in(tmp_path, {}, "-k", "test_of_nothing")[0] == 1, "but all of them without any are"


def test_whoever_ends_it_ends_all_runs(tmp_path: Path) -> None:
    """A test that waits for ever, and says so in a file."""
    waits = "open(str(os.getpid()), 'w').close(); import signal; signal.pause()"
    with running_in(tmp_path, {"compat": waits, "unit": waits}) as process:
        eventually(lambda: sum(path.name.isdigit() for path in tmp_path.iterdir()) == 2)
        process.terminate()
        assert process.wait(60) == 1
    for path in tmp_path.iterdir():
        assert not (path.name.isdigit() and psutil.pid_exists(int(path.name)))
