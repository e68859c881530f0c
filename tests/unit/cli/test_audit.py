"""`tidelog audit`: what was done to a log is said, with the line and an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidelog.cli.main import cli
from tidelog.host.disk import SystemDisk
from tidelog.server.audit_file import AuditFiles, FileLimits

ACTIONS = ("CreateTopics", "DeleteTopics", "Login", "CreateTopics")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The one file of a log with four lines."""
    files = AuditFiles(str(tmp_path), SystemDisk(), FileLimits(1 << 20, 1 << 30))
    for action in ACTIONS:
        principal = "User:bob" if action == "Login" else "User:alice"
        files.append([{"action": action, "principal": principal, "resource": ["Topic:\x1b[2Jt"]}])
    files.close()
    (path,) = (tmp_path / "audit").iterdir()
    return path


def run(verb: str, log: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["audit", verb, "--data-dir", str(log.parents[1]), *options])


def test_a_whole_log_is_verified_and_its_hash_can_be_expected_later(log: Path) -> None:
    done = run("verify", log)
    assert done.exit_code == 0, done.output
    noted = done.stdout.strip()
    assert len(noted) == 64
    assert run("verify", log, "--expect", noted).exit_code == 0
    assert run("verify", log, "--expect", "0" * 64).exit_code != 0


def test_a_changed_byte_is_reported_with_its_line(log: Path) -> None:
    data = log.read_bytes()
    log.write_bytes(data.replace(b"DeleteTopics", b"CreateTopics"))
    done = run("verify", log)
    assert done.exit_code != 0
    assert f"{log.name}, line 2: the line was changed" in done.stdout
    found = json.loads(run("verify", log, "--format", "json").stdout)
    assert [(each["file"], each["line"]) for each in found["problems"]] == [(log.name, 2)]


def test_an_end_that_was_cut_off_and_a_missing_file_are_reported(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]))
    assert "lines 4 to 4 are missing at the end" in run("verify", log).stdout
    log.unlink()
    assert "lines 1 to 4 are missing at the end" in run("verify", log).stdout
    log.parent.rmdir()
    assert "lines 1 to 4 are missing at the end" in run("verify", log).stdout


def test_lines_are_shown_by_what_was_asked_and_harm_no_terminal(log: Path) -> None:
    def shown(*options: str) -> list[str]:
        done = run("show", log, *options)
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    assert len(shown()) == 4 and "\x1b" not in "".join(shown())
    assert len(shown("--action", "CreateTopics")) == 2
    assert len(shown("--principal", "User:bob")) == len(shown("--last", "1")) == 1
    entries = [json.loads(line) for line in shown("--format", "json")]
    assert tuple(each["action"] for each in entries) == ACTIONS


def test_a_directory_without_a_log_is_said_to_have_none(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["audit", "verify", "--data-dir", str(tmp_path)])
    assert done.exit_code != 0
    assert "has no audit log" in str(done.output) + str(done.exception)
