"""Names close to one that was mistyped: of commands, and of the topics that the broker has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click

from tidelog.cli.faults import CliError, explain
from tidelog.errors import TidelogError

_BOOTSTRAP: Final = "tidelog.bootstrap"
_SECONDS: Final = 1.0


def remember_bootstrap(context: click.Context, _: click.Parameter, value: str) -> str:
    """The callback of `--bootstrap-server`: its brokers can say which topics there are."""
    context.meta[_BOOTSTRAP] = value
    return value


def explain_with_suggestion(error: TidelogError) -> CliError:
    """As `explain`; an unknown topic gets the names that look like it as its hint."""
    from tidelog.client.operation import UnknownTopicError

    fault = explain(error)
    if isinstance(error, UnknownTopicError):
        fault.hint = suggestion(error.topic, _topics()) or fault.hint
    return fault


def suggest_command(error: click.UsageError) -> None:
    """Raise CliError if an unknown command looks like one that exists."""
    context = error.ctx
    if context is None or not isinstance(context.command, click.Group):
        return
    prefix = "No such command '"
    if not error.message.startswith(prefix) or "Did you mean" in error.message:
        return
    name = error.message[len(prefix) :].partition("'")[0]
    path = context.command_path
    found = suggestion(name, context.command.list_commands(context))
    if found is not None:
        raise CliError(error.message, found.replace("`", f"`{path} ", 1), error.exit_code)


def suggestion(name: str, names: Iterable[str]) -> str | None:
    """A hint with the name most like this one; None if nothing is like it."""
    from tidelog.config.table import nearest

    found = nearest(name, names)
    return f"did you mean `{found}`?" if found else None


def _topics() -> list[str]:
    from tidelog.cli.common import open_client
    from tidelog.client.admin import list_topics

    bootstrap = click.get_current_context().meta.get(_BOOTSTRAP)
    if bootstrap is None:
        return []
    try:
        with open_client(bootstrap, _SECONDS) as client:
            return [each.name for each in client.run(list_topics(client.cluster))]
    except TidelogError:
        return []
