"""Small files find a place also where the user has no home to write to."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tidelog.spark.launch.cache import cache_directory


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def test_it_is_in_the_cache_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_directory() == tmp_path / "cache" / "tidelog"
    assert cache_directory().is_dir()


def test_a_user_without_a_home_has_a_private_directory(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that runs under a number that no name belongs to."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert cache_directory() == temporary / f"tidelog-cache-{os.getuid()}"
    assert cache_directory().stat().st_mode & 0o777 == 0o700


def test_what_cannot_be_made_is_left_alone(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_directory() == temporary / f"tidelog-cache-{os.getuid()}"


def test_a_directory_that_somebody_else_put_there_is_not_used(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "theirs").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    planted = temporary / f"tidelog-cache-{os.getuid()}"
    planted.symlink_to(tmp_path / "theirs")
    found = cache_directory()
    assert found.parent == temporary
    assert found != planted
