"""A Java is found by running it, and a missing one is explained."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tidelog.spark.launch import java
from tidelog.spark.launch.java import JavaNotFoundError, find_java, parse_version, wrap


def make_java(home: Path, words: str, status: int = 0) -> Path:
    """A program in a home that says what a Java would."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit {status}\n")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25-ea"', 25),
        ("command not found", None),
    ],
)
def test_versions_are_told(words: str, version: int | None) -> None:
    assert parse_version(words) == version


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", 'openjdk version "21.0.1"')
    make_java(tmp_path / "path", 'openjdk version "17.0.1"')
    found = find_java({"JAVA_HOME": str(home), "PATH": str(tmp_path / "path/bin")}, tmp_path)
    assert (found.home, found.version) == (home, 21)


def test_a_java_home_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", 'java version "1.8.0"')
    found_home = make_java(tmp_path / "usr/lib/jvm/java-17", 'openjdk version "17.0.1"')
    found = find_java({"JAVA_HOME": str(old), "PATH": ""}, tmp_path)
    assert found.home == found_home


def test_a_link_on_the_path_leads_to_its_home(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", 'openjdk version "17.0.1"')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/java").symlink_to(home / "bin/java")
    assert find_java({"PATH": str(tmp_path / "bin")}, tmp_path).home == home


def test_the_macs_own_look_up_is_asked(tmp_path: Path) -> None:
    home = make_java(tmp_path / "Library/jdk", 'openjdk version "17.0.1"')
    program = tmp_path / "usr/libexec/java_home"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho {home}\n")
    program.chmod(0o755)
    assert find_java({"PATH": ""}, tmp_path).home == home


def test_every_candidate_is_listed_with_the_reason(tmp_path: Path) -> None:
    broken = make_java(tmp_path / "broken", "no such library", status=127)
    make_java(tmp_path / "usr/lib/jvm/java-11", 'openjdk version "11.0.1"')
    with pytest.raises(JavaNotFoundError) as raised:
        find_java({"JAVA_HOME": str(broken), "PATH": str(tmp_path)}, tmp_path)
    text = str(raised.value)
    assert f"JAVA_HOME ({broken}): `java -version` failed: no such library" in text
    assert "PATH: there is no java on it" in text
    assert "java-11/bin/java: version 11 is older than 17" in text
    assert "pip install 'tidelog[java]'" in text


def test_a_home_without_java_is_told(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match=r"there is no .*/bin/java"):
        find_java({"JAVA_HOME": str(tmp_path / "none"), "PATH": ""}, tmp_path)


def test_the_wrapper_leaves_out_the_one_option(tmp_path: Path) -> None:
    home = tmp_path / "it's a home"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n')
    program.chmod(0o755)
    wrapped = wrap(home, tmp_path / "cache")
    assert wrap(home, tmp_path / "cache") == wrapped, "it is written once"
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", ""]
    done = subprocess.run(
        [wrapped / "bin/java", *given], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["<-cp>", "<a b>", "<Main>", "<>"]
