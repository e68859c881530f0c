"""`tidelog broker`: one broker for production, from a configuration file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.broker_options import broker_options, build_config, serve
from tidelog.supervisor.child import announcement

if TYPE_CHECKING:
    from tidelog.server.broker import Broker
    from tidelog.server.first_user import FirstUser

# The name of a variable, not a password.
_PASSWORD_VARIABLE = "TIDELOG_BOOTSTRAP_PASSWORD"  # nosec B105


@click.command()
@broker_options
@click.option(
    "--bootstrap-user",
    metavar="NAME",
    help="Create this user, who can log in by SCRAM, unless it exists. The password is"
    f" read from --bootstrap-password-file, from {_PASSWORD_VARIABLE}, or asked for.",
)
@click.option(
    "--bootstrap-password-file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="The password of --bootstrap-user, on the first line of a file.",
)
@click.option("--end-with", "end_with", type=int, hidden=True)
def broker(bootstrap_user: str | None, bootstrap_password_file: str | None, **options: Any) -> None:
    """Start one broker. Kafka's own server.properties will do as --config.

    SIGTERM drains and stops; another one, a second later, stops at once. Exit codes: 0 stopped as
    asked, 1 could not start or run, 2 bad configuration or usage.
    """
    config = build_config(options, {})
    options["first_user"] = _first_user(bootstrap_user, bootstrap_password_file)

    def announce(started: Broker) -> None:
        click.echo(announcement(config.node_id, started.bootstrap_servers), err=True)

    serve(config, options, announce)


def _first_user(name: str | None, file: str | None) -> FirstUser | None:
    """The user to create, with its password; never from the command line, which others can read."""
    if name is None:
        if file is not None:
            raise click.UsageError("--bootstrap-password-file needs --bootstrap-user NAME")
        return None
    from tidelog.server.first_user import FirstUser

    password = os.environ.pop(_PASSWORD_VARIABLE, "")
    if file is not None:
        password = Path(file).read_text().partition("\n")[0]
    elif not password and sys.stdin.isatty():
        password = click.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
        )
    if not password:
        raise click.UsageError(
            f"--bootstrap-user needs a password: in the first line of the file of"
            f" --bootstrap-password-file, or in {_PASSWORD_VARIABLE}"
        )
    return FirstUser(name, password)
