"""Commands shown on the pages exist, with the options they are shown with."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import click
import pytest

from tests.unit.docs.pages import ROOT, blocks, named, pages, spans
from tidelog.cli.main import cli
from tidelog.config.table import SETTINGS

SETTING_NAMES = {setting.name for setting in SETTINGS}
_OPERATORS = re.compile(r"[|<>&;]+")


def shell_commands(page: Path) -> list[list[str]]:
    """The words of every command in shell blocks, and of `tidelog …` and `make …` in prose."""
    lines = []
    for block in blocks(page):
        if block.language in ("sh", "bash", "shell"):
            lines += [line.removeprefix("$ ") for line in block.text.splitlines()]
    lines += [span for span in spans(page) if re.match(r"(tidelog|make|python -m) ", span)]
    commands: list[list[str]] = []
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>&;")
        lexer.whitespace_split = True
        commands.append([])
        for word in lexer:
            if _OPERATORS.fullmatch(word):
                commands.append([])
            elif word not in ("…", "..."):
                commands[-1].append(word)
    return [words for words in commands if words]


def check_tidelog(words: list[str]) -> None:
    """Walk the groups and let click parse the rest, without running anything."""
    command: click.Command = cli
    path = ["tidelog"]
    parent = click.Context(cli, info_name="tidelog")
    rest = words
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(parent, rest[0])
        assert found is not None, f"{' '.join(path)} has no command {rest[0]}"
        command, path, rest = found, [*path, rest[0]], rest[1:]
    if isinstance(command, click.Group):
        assert rest in ([], ["--help"], ["--version"], ["-V"], ["-h"]), rest
        return
    if not rest:
        return  # the command's name alone, as prose has it
    with command.make_context(path[-1], list(rest), parent=parent):
        pass
    for option, value in pairwise(rest):
        if option in ("--set", "--config") and "=" in value:
            name = value.partition("=")[0]
            assert name in SETTING_NAMES or name == "NAME", f"there is no setting {name}"


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert words[0] in targets


def check_python(words: list[str]) -> None:
    if len(words) > 1 and words[0] == "-m" and words[1].split(".")[0] in ("tidelog", "examples"):
        assert find_spec(words[1]) is not None, f"there is no module {words[1]}"


CHECKS = {"tidelog": check_tidelog, "make": check_make, "python": check_python}


@pytest.mark.parametrize("page", pages(), ids=named)
def test_commands_on_a_page_exist(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who reads the page has this file by then.
    (tmp_path / "client.properties").touch()
    monkeypatch.chdir(tmp_path)
    faults = []
    for words in shell_commands(page):
        check = CHECKS.get(words[0])
        if check is None:
            continue
        try:
            check(words[1:])
        except click.exceptions.Exit:
            pass
        except (AssertionError, click.ClickException) as error:
            faults.append(f"{' '.join(words)}: {error}")
    assert faults == []


def test_the_check_sees_the_commands_that_are_shown() -> None:
    shown = [words for page in pages() for words in shell_commands(page)]
    assert sum(words[0] == "tidelog" for words in shown) >= 30
    assert ["tidelog", "up"] in shown and ["make", "demo"] in shown


@pytest.mark.parametrize(
    "command",
    ["tidelog nonsense", "tidelog topic create --nonsense", "tidelog up --set no.such.setting=1"],
)
def test_the_check_refuses_what_does_not_exist(command: str) -> None:
    with pytest.raises((AssertionError, click.ClickException)):
        check_tidelog(command.split()[1:])
