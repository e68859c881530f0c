"""The command's outside: help, exit codes, hints, colour, completion, and what it imports."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tidelog.cli.common import parse_assignments
from tidelog.cli.faults import CliError, explain, paint
from tidelog.cli.main import _COMMANDS, cli, main
from tidelog.client.faults import (
    AuthenticationError,
    ConnectError,
    HandshakeError,
    MechanismError,
    NetworkError,
    RequestTimeoutError,
    TlsError,
)
from tidelog.client.operation import UnknownTopicError
from tidelog.errors import ConfigError, ErrorCode, KafkaError, TidelogError

SOURCE = str(Path(__file__).parents[3] / "src")


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def printed_by(program: str) -> list[str]:
    """The words that a program prints in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": SOURCE}, capture_output=True, text=True, check=True,
        timeout=60,
    )  # fmt: skip
    return done.stdout.split()


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_help_lists_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("--help", capsys=capsys)
    assert code == 0
    assert all(f"\n  {name} " in out for name in _COMMANDS)
    assert "130  interrupted" in out


@pytest.mark.parametrize(
    ("typed", "meant"), [("tpoic", "tidelog topic"), ("topic lsit", "tidelog topic list")]
)
def test_a_mistyped_command_gets_a_suggestion(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(*typed.split(), capsys=capsys)
    assert code == 2
    assert err.endswith(f"hint: did you mean `{meant}`?\n")


def test_a_command_like_no_other_gets_the_usual_hint(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run("zzzzzzzz", capsys=capsys)
    assert err.endswith("hint: tidelog --help\n")


@pytest.mark.parametrize("command", [name for name in _COMMANDS if name not in ("up", "broker")])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(command, "--help", capsys=capsys)
    assert code == 0
    assert out.startswith(f"Usage: tidelog {command}")


def test_no_help_shows_the_mark_of_a_preformatted_paragraph() -> None:
    pages = list(_help_pages(cli, click.Context(cli, info_name="tidelog")))
    assert len(pages) > 40
    assert [name for name, text in pages if "\\b" in text or "\b" in text] == []


def _help_pages(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _help_pages(found, click.Context(found, info_name=name, parent=context))


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("--version", capsys=capsys)
    assert code == 0
    assert out.startswith("tidelog ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["topic", "create"],
        ["topic", "create", "t", "--partitions", "0"],
        ["topic", "create", "t", "--set", "novalue"],
        ["consume"],
        ["produce", "t", "-z", "rar"],
        ["produce", "t", "-k", "a", "-K", ":"],
        ["produce", "t", "-f", "%k %v", "-K", ":"],
        ["produce", "t", "-f", "%q"],
        ["txn", "abort"],
        ["txn", "list", "--state", "asleep"],
        ["why", "t", "-p", "0"],
    ],
)
def test_wrong_usage_exits_with_2_and_ends_with_a_hint(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(*arguments, capsys=capsys)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.splitlines()[-1].startswith("hint: ")


@pytest.mark.parametrize(
    "arguments",
    [["topic", "list"], ["topic", "describe", "t"], ["cluster", "info"], ["consume", "t"],
     ["produce", "t", "-v", "x"], ["txn", "list"], ["txn", "abort", "x"],
     ["why", "t", "-p", "0", "--stable"]],
)  # fmt: skip
def test_without_a_broker_every_command_exits_with_3_at_once(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", f"127.0.0.1:{closed_port()}")
    code, out, err = run(*arguments, capsys=capsys)
    assert code == 3
    assert out == ""
    assert "refused" in err
    assert "hint: is a broker running?" in err


def test_an_address_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run("topic", "list", "-b", "host:port", capsys=capsys)
    assert code == 1
    assert "'host:port' is no address" in err


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (UnknownTopicError("x"), 4, "topic list"),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 4, "topic list"),
        (ConnectError("h:1", "refused"), 3, "tidelog up"),
        (NetworkError("h:1", "reset"), 3, "doctor"),
        (RequestTimeoutError("h:1", "no answer in time"), 3, "doctor"),
        (KafkaError(ErrorCode.INVALID_CONFIG), 1, "--all"),
        (KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR), 1, "log"),
        (KafkaError(ErrorCode.SECURITY_DISABLED), 1, "authorizer.class.name"),
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 1, "tidelog acl explain"),
        (NetworkError("h:1", "the broker closed the connection"), 3, "--config"),
        (HandshakeError("h:1", "TLS: the broker closed"), 3, "doctor"),
        (TlsError("h:1", "it has expired", "renew it"), 1, "renew it"),
        (MechanismError("h:1", "PLAIN", ["SCRAM-SHA-256"], 33), 1, "sasl.mechanism to SCRAM"),
        (MechanismError("h:1", "PLAIN", [], 34), 1, "security.protocol"),
        (AuthenticationError("h:1", "PLAIN", "no"), 1, "the password"),
        (ConfigError("bad"), 1, "doctor"),
    ],
)
def test_every_fault_has_a_status_and_a_hint(error: TidelogError, status: int, words: str) -> None:
    explained = explain(error)
    assert explained.status == status
    assert words in explained.hint


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert paint("x", "31", Terminal()) == "\x1b[31mx\x1b[0m"
    assert paint("x", "31", io.StringIO()) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert paint("x", "31", Terminal()) == "x"


def test_assignments() -> None:
    assert parse_assignments(["a=1", "b=x=y", "c="], "--set") == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(CliError, match="no value"):
        parse_assignments(["a"], "--set")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_our_variable(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run("completion", shell, capsys=capsys)
    assert code == 0
    assert "_TIDELOG_COMPLETE" in out


def tidelog(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments],
        env={**os.environ, "PYTHONPATH": SOURCE, **environment},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_completion_offers_commands_and_no_topics_without_a_broker() -> None:
    environment = {"_TIDELOG_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    offered = tidelog(COMP_WORDS="tidelog topic ", **environment)
    assert "plain,add-partitions" in offered.stdout.split()
    servers = f"127.0.0.1:{closed_port()}"
    none = tidelog(COMP_WORDS="tidelog consume ", TIDELOG_BOOTSTRAP_SERVERS=servers, **environment)
    assert (none.stdout.strip(), none.stderr, none.returncode) == ("", "", 0)


def test_a_short_command_imports_neither_asyncio_nor_ssl_nor_the_server() -> None:
    program = (
        "import sys\n"
        "from tidelog.cli.main import main\n"
        "try: main(['topic', 'list', '-b', '127.0.0.1:1'])\n"
        "except SystemExit: print(*sorted(sys.modules))\n"
    )
    modules = set(printed_by(program))
    assert "tidelog.client.blocking" in modules
    heavy = {"asyncio", "ssl", "logging", "pyarrow", "yaml", "uvloop", "crc32c", "cramjam"}
    heavy |= {"tidelog.server", "tidelog.storage", "tidelog.config", "tidelog.cli.produce"}
    assert not modules & heavy


@pytest.mark.parametrize("module", ["blocking", "blocking_producer", "blocking_consumer"])
def test_the_blocking_client_never_imports_asyncio_or_ssl(module: str) -> None:
    program = f"import sys, tidelog.client.{module}; print(*sorted(sys.modules))"
    assert not {"asyncio", "ssl"} & set(printed_by(program))


def test_the_collector_does_not_look_through_what_a_command_imports() -> None:
    program = (
        "import gc, sys\n"
        "from tidelog.__main__ import run\n"
        "looks = []\n"
        "gc.callbacks.append(lambda phase, info: looks.append(phase))\n"
        "sys.argv[1:] = ['topic', 'list', '-b', '127.0.0.1:1']\n"
        "try: run()\n"
        "except SystemExit as end: print(end.code, len(looks), gc.get_freeze_count() > 10_000)\n"
    )
    assert printed_by(program) == ["3", "0", "True"]
