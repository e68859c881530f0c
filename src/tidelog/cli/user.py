"""`tidelog user`: create, list, delete, password. No password is ever an argument."""

from __future__ import annotations

import os
import stat
import sys
from typing import Any

import click

from tidelog.cli.common import (
    connection_options,
    open_client,
    print_json,
    print_rows,
    say,
)
from tidelog.cli.deleting import delete_each
from tidelog.cli.faults import EXIT_UNKNOWN_TOPIC, EXIT_USAGE, CliError, paint
from tidelog.client.blocking import Client
from tidelog.client.user_admin import (
    DEFAULT_ITERATIONS,
    MECHANISMS,
    NewPassword,
    User,
    delete_user,
    list_users,
    set_password,
)
from tidelog.host.random import SystemRandom

_PASSWORD_BYTES_MAX = 1024
_OTHERS = stat.S_IRWXG | stat.S_IRWXO

_user_argument = click.argument("name", metavar="USER")
_file_option = click.option(
    "--password-file", "file", metavar="FILE", help="The password is the first line of a file."
)
_environment_option = click.option(
    "--password-env", "variable", metavar="NAME", help="The password is in the environment."
)
_iterations_option = click.option(
    "--iterations",
    type=click.IntRange(4096, 16_384),
    default=DEFAULT_ITERATIONS,
    show_default=True,
    help="How much work a guess costs.",
)


@click.group()
def user() -> None:
    """Create, list and delete users, and change passwords."""


@user.command()
@_user_argument
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(MECHANISMS), case_sensitive=False),
    multiple=True,
    help="How the password may be proved; repeatable, both by default.",
)
@_iterations_option
@_file_option
@_environment_option
@connection_options
def create(name: str, mechanisms: tuple[str, ...], **options: Any) -> None:
    """Create a user. The password is asked for, or read from a file or the environment.

    \b
    tidelog user create alice
    tidelog user create alice --password-file alice.password
    ALICE=... tidelog user create alice --password-env ALICE
    """
    password = _password(options)
    with open_client(**options) as client:
        if client.run(list_users(client.cluster, [name])):
            raise CliError(
                f"user '{name}' exists already", f"`tidelog user password {name}` changes it"
            )
        _set(client, NewPassword(name, password, mechanisms or list(MECHANISMS)), options)
    _print_set(name, mechanisms or list(MECHANISMS), options["output"], "created")


@user.command("list")
@connection_options
def list_(**connection: Any) -> None:
    """List users."""
    with open_client(**connection) as client:
        found = client.run(list_users(client.cluster))
    rows: list[dict[str, object]] = [
        {
            "name": each.name,
            "mechanisms": list(each.mechanisms),
            "iterations": [each.mechanisms[name] for name in each.mechanisms],
        }
        for each in found
    ]
    print_rows(rows, ["name", "mechanisms", "iterations"], connection["output"], "no users")


@user.command("password")
@_user_argument
@_iterations_option
@_file_option
@_environment_option
@connection_options
def change_password(name: str, **options: Any) -> None:
    """Change a user's password for all of the user's mechanisms."""
    password = _password(options)
    with open_client(**options) as client:
        known = _require(client, name)
        _set(client, NewPassword(name, password, list(known.mechanisms)), options)
    _print_set(name, list(known.mechanisms), options["output"], "has a new password")


@user.command()
@click.argument("names", metavar="USER...", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="Do not fail if a user does not exist.")
@connection_options
def delete(names: tuple[str, ...], if_exists: bool, **connection: Any) -> None:
    """Delete users. Their connections end; ACLs that name them stay."""
    with open_client(**connection) as client:

        def forget(name: str) -> bool:
            found = client.run(list_users(client.cluster, [name]))
            for each in found:
                client.run(delete_user(client.cluster, each))
            if not found and not if_exists:
                raise _unknown(name)
            if not found:
                say(f"{name} does not exist")
            return bool(found)

        delete_each(names, forget, connection["output"])


def _set(client: Client, new: NewPassword, options: dict[str, Any]) -> None:
    new.iterations = options["iterations"]
    client.run(set_password(client.cluster, new, SystemRandom()))


def _print_set(name: str, mechanisms: list[str] | tuple[str, ...], output: str, what: str) -> None:
    if output == "json":
        print_json({"name": name, "mechanisms": list(mechanisms)})
    else:
        say(f"{name} {what} ({', '.join(mechanisms)})")


def _require(client: Client, name: str) -> User:
    found = client.run(list_users(client.cluster, [name]))
    if not found:
        raise _unknown(name)
    return found[0]


def _unknown(name: str) -> CliError:
    hint = "`tidelog user list` shows the users"
    return CliError(f"user '{name}' does not exist", hint, EXIT_UNKNOWN_TOPIC)


def _password(options: dict[str, Any]) -> str:
    """The new password, from where the options say."""
    file, variable = options.pop("file"), options.pop("variable")
    if file is not None and variable is not None:
        raise CliError("two passwords", "give --password-file or --password-env", EXIT_USAGE)
    if file is not None:
        password = _from_file(file)
    elif variable is not None:
        password = os.environ.get(variable, "")
    elif sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise CliError(
            "no password, and no terminal to ask for it",
            "give --password-file FILE or --password-env NAME",
            EXIT_USAGE,
        )
    if not password or len(password.encode()) > _PASSWORD_BYTES_MAX:
        place = file or (f"${variable}" if variable else "it")
        size = f"longer than {_PASSWORD_BYTES_MAX} bytes" if password else "empty"
        raise CliError(f"the password is {size}", f"look at {place}", EXIT_USAGE)
    return password


def _from_file(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as stream:
            line = stream.readline(_PASSWORD_BYTES_MAX + 2).rstrip("\r\n")
            mode = os.fstat(stream.fileno()).st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise CliError(f"{file}: {reason}", "name a file with one line", EXIT_USAGE) from error
    if stat.S_ISREG(mode) and mode & _OTHERS:
        warning = paint("warning:", "33", sys.stderr)
        say(f"{warning} others may read the password in {file}; `chmod 600 {file}`")
    return line
