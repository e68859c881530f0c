"""`tidelog pipeline` without Spark: what it writes, refuses and imports."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError

from tidelog.cli.doctor_spark import check_java, check_worker_python
from tidelog.cli.main import main
from tidelog.errors import TidelogError
from tidelog.spark.launch import session
from tidelog.testing import Broker


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["pipeline", *arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_what_init_writes_passes_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("init", str(tmp_path), "--name", "mine", capsys=capsys)
    assert code == 0
    assert out.splitlines()[0] == str(tmp_path / "mine.yaml")
    code, _, err = run("check", "--no-spark", str(tmp_path / "mine.yaml"), capsys=capsys)
    assert code == 0
    assert "1 sources, 2 steps and 2 targets are well" in err
    assert run("init", str(tmp_path), "--name", "mine", capsys=capsys)[0] == 2


@pytest.mark.parametrize("name", ["my pipe", "a/b", "x: {y", ""])
def test_init_writes_nothing_under_a_name_that_check_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code, out, err = run("init", str(tmp_path), "--name", name, capsys=capsys)
    assert (code, out) == (2, "")
    assert f"a pipeline cannot be called '{name}'" in err
    assert list(tmp_path.iterdir()) == []


def test_init_writes_nothing_where_something_is_in_the_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cases").write_text("a file")
    code, out, err = run("init", str(tmp_path), capsys=capsys)
    assert (code, out) == (1, "")
    assert f"{tmp_path / 'cases'}: " in err and "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["cases"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotADirectoryError(20, "Not a directory", "/lake/x"), "/lake/x: Not a directory"),
        (PySparkRuntimeError("Java gateway process exited"), "Java gateway process exited"),
    ],
)
def test_what_stops_spark_before_it_runs_is_a_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    said: str,
) -> None:
    """A checkpoint below a file, a master that is none."""

    def fail(*given: object) -> None:
        raise error

    monkeypatch.setattr(session, "open_session", fail)
    assert run("init", str(tmp_path), capsys=capsys)[0] == 0
    code, _, err = run("check", str(tmp_path / "clicks.yaml"), capsys=capsys)
    assert code == 1
    assert said in err and "Traceback" not in err


def test_a_wrong_file_is_wrong_usage_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("pipeline: x\nsource: {}\n")
    code, out, err = run("check", str(file), capsys=capsys)
    assert (code, out) == (2, "")
    assert f"{file}:2:1: the file has no source; did you mean sources?" in err
    assert err.splitlines()[-1].startswith("hint: ")
    assert run("run", str(file), "--into", "x", capsys=capsys)[0] == 2


def test_a_file_without_tests_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "pipeline: x\nconnect: {bootstrap.servers: h}\nsources: {a: {topic: t}}\n"
        "targets: {b: {from: a, topic: u, value: raw}}\n"
    )
    code, _, err = run("test", str(file), capsys=capsys)
    assert code == 1 and "has no tests" in err


def test_a_test_that_is_not_there_is_named_with_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("init", str(tmp_path), capsys=capsys)[0] == 0
    file = tmp_path / "clicks.yaml"
    code, _, err = run("test", str(file), "--case", "typo", capsys=capsys)
    assert code == 2
    assert f"{file} has no test 'typo'" in err and "hint: its tests are " in err


def test_a_run_without_a_broker_ends_before_spark_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", f"127.0.0.1:{probe.getsockname()[1]}")
    run("init", str(tmp_path), capsys=capsys)
    code, _, err = run("run", str(tmp_path / "clicks.yaml"), capsys=capsys)
    assert code == 3 and "no broker reached" in err


def test_driver_memory_is_a_setting_of_the_session(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tidelog_broker: Broker,
    tidelog_topic: str,
) -> None:
    def refuse(name: str, settings: dict[str, str]) -> None:
        seen.update(settings)
        raise TidelogError("seen")

    seen: dict[str, str] = {}
    monkeypatch.setattr("tidelog.spark.launch.session.open_session", refuse)
    file = tmp_path / "p.yaml"
    file.write_text(
        f"pipeline: x\nconnect: {{bootstrap.servers: '{tidelog_broker.bootstrap_servers}'}}\n"
        f"checkpoint: {tmp_path}/state\nsources: {{a: {{topic: {tidelog_topic}}}}}\n"
        f"targets: {{b: {{from: a, table: {{parquet: {tmp_path / 'b'}}}}}}}\n"
    )
    code, _, err = run("run", str(file), "--driver-memory", "3g", capsys=capsys)
    assert code == 1, err
    assert seen["spark.driver.memory"] == "3g"


def test_neither_help_nor_a_static_check_imports_spark(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from tidelog.cli.main import cli\n"
        f"cli.main(['pipeline', 'init', {str(tmp_path)!r}], standalone_mode=False)\n"
        f"cli.main(['pipeline', 'check', '--no-spark', {str(tmp_path / 'clicks.yaml')!r}],"
        " standalone_mode=False)\n"
        "print(sorted({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_doctor_names_the_python_of_the_workers(tmp_path: Path) -> None:
    assert check_worker_python({}).ok
    assert check_worker_python({"PYSPARK_PYTHON": sys.executable, "PATH": ""}).ok
    missing = check_worker_python({"PYSPARK_PYTHON": "/none/python", "PATH": ""})
    assert not missing.ok and "is not there" in missing.sentence
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    wrong = check_worker_python({"PYSPARK_PYTHON": str(other), "PATH": ""})
    assert not wrong.ok and "may not find its modules" in wrong.sentence


def test_the_doctor_explains_a_missing_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.spark.launch import java

    monkeypatch.setattr(java, "_candidates", lambda environment, system: iter(()))
    finding = check_java({})
    assert not finding.ok and "no Java of version 17" in finding.sentence
