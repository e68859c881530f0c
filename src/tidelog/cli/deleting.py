"""What commands that destroy data share: they ask first on a terminal, and say what they did."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import click

from tidelog.cli.common import print_json, say
from tidelog.cli.faults import EXIT_FAILED, EXIT_USAGE, CliError, show
from tidelog.cli.suggest import explain_with_suggestion
from tidelog.client.operation import UnknownTopicError
from tidelog.errors import KafkaError

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask first. Scripts need this.")


def confirm(deed: str, yes: bool) -> None:
    """Ask on a terminal whether to do it; without one, nothing is done without `--yes`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CliError(f"not confirmed: {deed}", "add --yes to do it in a script", EXIT_USAGE)
    if not click.confirm(f"{deed[:1].upper()}{deed[1:]}?", err=True):
        say("nothing changed")
        raise click.exceptions.Exit(EXIT_FAILED)


def delete_each(names: Sequence[str], delete: Callable[[str], bool], output: str) -> None:
    """Delete what can be deleted, print it, then fail if anything could not be.

    `delete` returns False if there is nothing to delete and that is no error.
    """
    gone: list[str] = []
    failed: list[click.ClickException] = []
    try:
        for name in names:
            try:
                deleted = delete(name)
            except CliError as error:
                failed.append(error)
            except (KafkaError, UnknownTopicError) as error:
                failed.append(explain_with_suggestion(error))
            else:
                gone += [name] if deleted else []
    finally:
        _print_deleted(gone, output)
    for each in failed[:-1]:
        show(each)
    if failed:
        raise failed[-1]


def _print_deleted(names: Sequence[str], output: str) -> None:
    if output == "json":
        print_json([{"name": name} for name in names])
        return
    for name in names:
        say(f"{name} deleted")
