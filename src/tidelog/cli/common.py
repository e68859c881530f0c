"""What the commands share: the options that are the same everywhere, and their output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from tidelog.cli.faults import EXIT_USAGE, CliError
from tidelog.cli.profile import (
    DEFAULT_BOOTSTRAP,
    current_profile,
    default_bootstrap,
    profile_option,
)
from tidelog.cli.suggest import remember_bootstrap
from tidelog.client.blocking import Client
from tidelog.client.settings import ClientSettings

F = TypeVar("F", bound=Callable[..., Any])

bootstrap_option = click.option(
    "-b",
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT[,…]",
    envvar="TIDELOG_BOOTSTRAP_SERVERS",
    default=default_bootstrap,
    show_default=DEFAULT_BOOTSTRAP,
    show_envvar=True,
    callback=remember_bootstrap,
    help="Bootstrap brokers.",
)


def choice_option(
    *names: str, choices: Sequence[str], help_text: str, default: str = ""
) -> Callable[[F], F]:
    """An option that is one of some words, by default the first of them."""
    return click.option(
        *names,
        type=click.Choice(choices),
        default=default or choices[0],
        show_default=True,
        help=help_text,
    )


def timeout_option(default: float, help_text: str) -> Callable[[F], F]:
    return click.option(
        "--timeout",
        "timeout_s",
        metavar="SECONDS",
        type=click.FloatRange(min=0.1),
        default=default,
        show_default=True,
        help=help_text,
    )


def partitions_option(help_text: str) -> Callable[[F], F]:
    kind = click.IntRange(min=0)
    return click.option("-p", "--partition", "chosen", type=kind, multiple=True, help=help_text)


format_option = choice_option(
    "--format", "output", choices=("text", "json"), help_text="Output format."
)


def connection_options(function: F) -> F:
    """`-b`, `--config`, `--format` and `--timeout`: every command that asks a broker takes them."""
    return asking_options(profile_option(function))


def asking_options(function: F) -> F:
    """The same without `--config`, for a command that has its own."""
    return bootstrap_option(
        format_option(timeout_option(25.0, "Give up after this time.")(function))
    )


def client_settings(timeout_s: float) -> ClientSettings:
    """The settings of every command's client."""
    security = current_profile().security
    return ClientSettings.impatient("tidelog-cli", int(timeout_s * 1000), security)


def open_client(bootstrap: str, timeout_s: float, **_: object) -> Client:
    """A client for the options of `connection_options`, given with any others."""
    return Client(bootstrap, client_settings(timeout_s))


def complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of topics, where a broker gives them quickly."""
    from tidelog.client.admin import list_topics
    from tidelog.errors import TidelogError

    bootstrap = ctx.params.get("bootstrap") or default_bootstrap()
    try:
        with open_client(bootstrap, 0.5) as client:
            topics = client.run(list_topics(client.cluster))
    except TidelogError:
        return []
    return [topic.name for topic in topics if topic.name.startswith(incomplete)]


topic_argument = click.argument("topic", shell_complete=complete_topic)


def parse_assignments(entries: Iterable[str], option: str) -> dict[str, str]:
    """NAME=VALUE, repeatable, as a mapping."""
    values: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise CliError(f"{option} {entry}: no value", f"{option} NAME=VALUE", EXIT_USAGE)
        values[name.strip()] = value
    return values


_NAMED_MAX = 5


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many there are beside them."""
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more


def say(*words: str) -> None:
    """A line for the person, not for the program that reads stdout."""
    sys.stderr.write(" ".join(words) + "\n")


def print_json(value: object) -> None:
    """A document on stdout."""
    import json

    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_rows(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str], output: str, nothing: str
) -> None:
    """Rows as the option `--format` asks; `nothing` is said of a table that would be empty."""
    if output == "json":
        print_json(rows)
    elif rows:
        print_table(rows, columns)
    else:
        say(nothing)


def print_table(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    """Rows under upper-case headings, in columns as wide as they need to be."""
    lines = [[column.upper().replace("_", "-") for column in columns]]
    lines += [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ",".join(str(entry) for entry in value) or "-"
    return str(value)
