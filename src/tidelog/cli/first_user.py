"""The options that create the first user of a secured cluster, and where its password is from."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tidelog.server.first_user import FirstUser

# The name of a variable, not a password.
_PASSWORD_VARIABLE = "TIDELOG_BOOTSTRAP_PASSWORD"  # nosec B105

_OPTIONS = (
    click.option(
        "--bootstrap-user",
        metavar="NAME",
        multiple=True,
        help="Create this user, who can log in by SCRAM, unless it exists. The password is"
        f" read from --bootstrap-password-file, from {_PASSWORD_VARIABLE}, or asked for."
        " Repeatable.",
    ),
    click.option(
        "--bootstrap-password-file",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        multiple=True,
        help="The password of --bootstrap-user, on the first line of a file. Repeatable.",
    ),
)


def first_user_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def first_users(options: Mapping[str, Any]) -> list[FirstUser]:
    """The users to create, with their passwords; never from the command line, which others read."""
    names, files = options["bootstrap_user"], options["bootstrap_password_file"]
    if files and len(files) != len(names):
        raise click.UsageError(
            "--bootstrap-password-file needs --bootstrap-user NAME, one for each file"
        )
    if len(names) > 1 and not files:
        raise click.UsageError("with several --bootstrap-user, each needs a password file")
    if not names:
        return []
    from tidelog.server.first_user import FirstUser

    passwords = [_first_line(file) for file in files] or [_asked(names[0])]
    for name, password in zip(names, passwords, strict=True):
        if not password:
            raise click.UsageError(
                f"--bootstrap-user {name} needs a password: in the first line of the file of"
                f" --bootstrap-password-file, or in {_PASSWORD_VARIABLE}"
            )
    return [FirstUser(*each) for each in zip(names, passwords, strict=True)]


def _first_line(file: str) -> str:
    try:
        return Path(file).read_text().partition("\n")[0]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise click.BadParameter(
            f"{file}: {reason}", param_hint="--bootstrap-password-file"
        ) from None


def _asked(name: str) -> str:
    password = os.environ.pop(_PASSWORD_VARIABLE, "")
    if not password and sys.stdin.isatty():
        password = click.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
        )
    return password


def first_user_arguments(options: Mapping[str, Any]) -> list[str]:
    """What has brokers that are started from here create the users."""
    users = first_users(options)
    arguments = []
    for user in users:
        arguments += ["--bootstrap-user", user.name]
    for file in options["bootstrap_password_file"]:
        arguments += ["--bootstrap-password-file", os.path.abspath(file)]
    if users and not options["bootstrap_password_file"]:
        # The brokers inherit it.
        os.environ[_PASSWORD_VARIABLE] = users[0].password
    return arguments
