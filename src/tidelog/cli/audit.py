"""`tidelog audit`: verify, show. They read the files of a broker, which may run meanwhile."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from tidelog.cli.common import format_option, print_json, say
from tidelog.cli.faults import EXIT_FAILED, EXIT_USAGE, CliError
from tidelog.security.audit_chain import (
    DIRECTORY,
    HEAD_FILE,
    ChainEnd,
    audit_files,
    decode_entry,
    decode_head,
    lines_of,
    verify,
)

_BLOCK_BYTES = 1024 * 1024
_PROBLEMS_SHOWN = 20


@click.group()
def audit() -> None:
    """Read a broker's audit log, and verify that nobody tampered with it."""


directory_option = click.option(
    "--data-dir",
    "directory",
    type=click.Path(),
    required=True,
    metavar="DIR",
    help="The data directory of the broker.",
)


@audit.command("verify")
@directory_option
@click.option("--expect", metavar="HASH", help="A hash noted earlier that the log must still have.")
@format_option
def verify_log(directory: str, expect: str | None, output: str) -> None:
    """Verify every line of the log, and that none is missing.

    The last line's hash is printed: note it elsewhere, and a later --expect proves that nobody
    wrote the log again up to there. Without that, somebody who may write to DIR could.

    \b
    tidelog audit verify --data-dir /var/lib/tidelog
    """
    # The head first: a broker that runs writes it last.
    head = _head(directory)
    names = _names(directory, head)
    files = [(name, lines_of(_blocks(os.path.join(directory, DIRECTORY, name)))) for name in names]
    verdict = verify(files, head, expect)
    problems = verdict.problems
    if output == "json":
        print_json(
            {
                "entries": verdict.entries,
                "seq": verdict.end.seq,
                "hash": verdict.end.hash,
                "removed_before": verdict.removed_before,
                "problems": [each._asdict() for each in problems],
            }
        )
    else:
        for file, line, what in problems[:_PROBLEMS_SHOWN]:
            sys.stdout.write(f"{file or 'log'}{f', line {line}' if line else ''}: {what}\n")
        if len(problems) > _PROBLEMS_SHOWN:
            sys.stdout.write(f"and {len(problems) - _PROBLEMS_SHOWN} more problems\n")
        if verdict.removed_before > 1:
            say(f"lines before {verdict.removed_before} were removed: the log got too large")
        say(f"{verdict.entries} lines in {len(names)} files; the last is {verdict.end.seq}")
        sys.stdout.write(f"{verdict.end.hash}\n")
    if problems:
        raise CliError(
            f"the audit log has {len(problems)} problems",
            "what the broker said of it is in its own log; compare with a copy from elsewhere",
            EXIT_FAILED,
        )


@audit.command("show")
@directory_option
@click.option("--kind", metavar="KIND", help="admin, authentication, denied or decision.")
@click.option("--action", metavar="NAME", help="Only this action, e.g. DeleteTopics.")
@click.option("--principal", metavar="NAME", help="Only what this one did, e.g. User:alice.")
@click.option("--last", type=click.IntRange(min=1), help="Only that many, the newest.")
@format_option
def show_log(
    directory: str,
    kind: str | None,
    action: str | None,
    principal: str | None,
    last: int | None,
    output: str,
) -> None:
    """Print the log, oldest entry first; with --format json, unchanged.

    \b
    tidelog audit show --data-dir /var/lib/tidelog --action DeleteTopics
    """
    wanted = {"kind": kind, "action": action, "principal": principal}
    chosen: Iterator[tuple[bytes, dict[str, Any]]] = (
        (line, entry)
        for line, entry in _entries(directory)
        if all(entry.get(name) == value for name, value in wanted.items() if value is not None)
    )
    if last is not None:
        from collections import deque

        chosen = iter(deque(chosen, maxlen=last))
    for line, entry in chosen:
        if output == "json":
            sys.stdout.write(line.decode())
        else:
            sys.stdout.write(_shown(entry) + "\n")


def _shown(entry: dict[str, Any]) -> str:
    who = entry.get("principal") or "-"
    resource = ",".join(map(str, entry.get("resource", ()))) or "-"
    words = [
        entry.get("time", "-"),
        who,
        entry.get("host", "-"),
        entry.get("action", "-"),
        resource,
    ]
    words.append(entry.get("outcome", "-"))
    words += [
        f"{name}={json.dumps(entry[name], separators=(',', ':'))}"
        for name in ("stands_for", "errors", "facts", "before", "after")
        if entry.get(name)
    ]
    return "  ".join(_printable(str(word)) for word in words)


def _printable(text: str) -> str:
    """The text without anything that would act on a terminal: names come from clients."""
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _entries(directory: str) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for name in _names(directory, _head(directory)):
        path = os.path.join(directory, DIRECTORY, name)
        for number, line in enumerate(lines_of(_blocks(path)), 1):
            try:
                yield line, decode_entry(line.rstrip(b"\n"))
            except ValueError as error:
                say(f"{name}, line {number}: {error}")


def _head(directory: str) -> ChainEnd | None:
    try:
        with open(os.path.join(directory, HEAD_FILE), "rb") as file:
            return decode_head(file.read(_BLOCK_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(directory, error) from error


def _names(directory: str, head: ChainEnd | None) -> list[str]:
    path = os.path.join(directory, DIRECTORY)
    try:
        return audit_files(os.listdir(path))
    except FileNotFoundError as error:
        if head is not None:
            # All files are gone: that is for `verify` to say.
            return []
        raise CliError(
            f"{directory} has no audit log",
            "name the data directory of one broker (log.dirs); a broker without admin requests and"
            " log-ins, or with audit.log.enable=false, has none",
            EXIT_USAGE,
        ) from error
    except OSError as error:
        raise _unreadable(directory, error) from error


def _blocks(path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                yield block
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> CliError:
    return CliError(f"{path}: {error.strerror}", "run it as the broker's user", EXIT_FAILED)
