"""Runs clear up behind those that were killed, and leave those alone that are alive."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.spark.launch.run_directory import NAME, PATH_LENGTH_MAX, RunDirectory
from tidelog.spark.launch.session import session_settings

RUN = """
import sys
from tidelog.spark.launch.run_directory import RunDirectory
directory = RunDirectory(sys.argv[1])
for name in ("blockmgr-1", "spark-2"):
    (directory.path / name).mkdir()
(directory.path / "librocksdbjni1.so").write_bytes(b"x")
print(directory.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def state() -> Iterator[Path]:
    """A short path; pytest's own are too long for sockets."""
    path = Path(tempfile.mkdtemp(prefix="t-"))
    yield path
    shutil.rmtree(path)


def start(state: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(state)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)
    process.communicate()


def test_what_a_killed_run_left_is_cleared_by_the_next_and_no_other(state: Path) -> None:
    killed, left = start(state)
    alive, used = start(state)
    try:
        end(killed, signal.SIGKILL)
        assert left.parent == used.parent == state / NAME
        assert {path.name for path in left.iterdir()} == {
            ".lock", "blockmgr-1", "spark-2", "librocksdbjni1.so",
        }  # fmt: skip
        mine = RunDirectory(str(state))
        assert not left.exists(), "it is of nobody"
        assert (used / "spark-2").is_dir() and mine.path.is_dir()
        mine.remove()
        assert not mine.path.exists()
    finally:
        end(alive, signal.SIGKILL)


def test_long_and_remote_places_have_their_directory_elsewhere(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(state))
    for place in (str(state / ("x" * PATH_LENGTH_MAX)), "s3a://bucket/state", ""):
        directory = RunDirectory(place)
        assert directory.path.parent.parent == state
        assert len(str(directory.path)) <= PATH_LENGTH_MAX
        assert directory.path.stat().st_mode & 0o077 == 0
        directory.remove()


def test_a_long_temporary_directory_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets in it could not be opened, and no Python process of Spark would start."""
    long = tmp_path / ("x" * PATH_LENGTH_MAX)
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    directory = RunDirectory(str(long))
    assert len(str(directory.path)) <= PATH_LENGTH_MAX
    directory.remove()
    assert not long.exists()


def test_the_jvm_is_told_where_and_the_user_has_the_last_word() -> None:
    name = "spark.driver.extraJavaOptions"
    options = session_settings({name: "-Dmine=1"}, "/s", Path("/s/.run/1"))[name]
    assert '"-Djava.io.tmpdir=/s/.run/1" -Dmine=1' in options and "log4j2" in options
    assert "tmpdir" not in session_settings({}, "/s")[name]


def test_a_directory_that_its_run_removes_meanwhile_is_passed_over(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (state / NAME / "1-gone").mkdir(parents=True)
    is_dir = Path.is_dir

    def removed_then(path: Path) -> bool:
        found = is_dir(path)
        if path.name == "1-gone" and found:
            path.rmdir()
        return found

    monkeypatch.setattr(Path, "is_dir", removed_then)
    mine = RunDirectory(str(state))
    assert mine.path.exists()
    mine.remove()
