"""`--config client.properties`: how a command's connections are secured, under Kafka's names.

The file is named by the option or by TIDELOG_CLIENT_CONFIG, so that no secret is in the arguments,
where everybody sees it. Of its settings the commands use `bootstrap.servers`, `security.protocol`,
`ssl.*` and `sasl.*`; those of producers and consumers are left alone. A file with secrets that
others may read gets a warning.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from tidelog.cli.faults import EXIT_USAGE, CliError, paint
from tidelog.client.security import OPEN, SECRET_NAMES, ClientSecurity, read_security
from tidelog.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
VARIABLE: Final = "TIDELOG_CLIENT_CONFIG"
_HELP: Final = "A client's settings: security.protocol, ssl.*, sasl.*, bootstrap.servers."
_META: Final = "tidelog.cli.profile"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_FILE_BYTES_MAX: Final = 1 << 20
# A broker's file has one of these, a client's has none.
_BROKERS_NAMES: Final = ("listeners", "log.dirs", "log.dir", "node.id", "broker.id")


@dataclass(slots=True, frozen=True)
class Profile:
    """What a file says of the brokers and of the connections to them."""

    bootstrap: str = ""
    security: ClientSecurity = OPEN
    file: str | None = None


NO_PROFILE: Final = Profile()


def current_profile() -> Profile:
    """The profile of the command that runs."""
    context = click.get_current_context(silent=True)
    if context is None:
        return NO_PROFILE
    found: Profile = context.meta.get(_META, NO_PROFILE)
    return found


def default_bootstrap() -> str:
    """The brokers to ask where the command does not say which."""
    return current_profile().bootstrap or DEFAULT_BOOTSTRAP


def profile_option(function: F) -> F:
    """`--config`; its profile is kept with the command's context, not among its parameters."""
    return click.option(
        "--config",
        "--command-config",
        "profile",
        metavar="FILE",
        envvar=VARIABLE,
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=_remember,
        help=_HELP,
    )(function)


def profile_or_settings_option(function: F) -> F:
    """`--config` where Kafka's tools give settings of a topic by it: NAME=VALUE stays theirs.

    The parameter `configs` has these; a file is the profile.
    """
    return click.option(
        "--config",
        "--command-config",
        "configs",
        metavar="FILE",
        multiple=True,
        is_eager=True,
        callback=_sort_out,
        help=f"{_HELP}  [env var: {VARIABLE}]",
    )(function)


def _sort_out(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    files = [each for each in given if "=" not in each or os.path.exists(each)]
    _remember(context, parameter, files[-1] if files else os.environ.get(VARIABLE))
    return tuple(each for each in given if each not in files)


def _remember(context: click.Context, _: click.Parameter, file: str | None) -> None:
    if not file:
        return
    try:
        context.meta[_META] = read_profile(file)
    except ConfigError as error:
        if context.resilient_parsing:
            # The shell asks what could come next; it has no use for an error.
            return
        hint = "--config names a file of Kafka's client settings"
        raise CliError(str(error), hint, EXIT_USAGE) from error


def read_profile(file: str) -> Profile:
    """The profile in a properties file; ConfigError names what is wrong with it."""
    from tidelog.config.properties_file import read_properties

    try:
        with open(file, encoding="utf-8") as stream:
            text = stream.read(_FILE_BYTES_MAX)
            mode = os.fstat(stream.fileno()).st_mode
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not a text file") from error
    values = {entry.name: entry.text for entry in read_properties(text, file)}
    brokers = next((name for name in _BROKERS_NAMES if name in values), None)
    if brokers is not None:
        raise ConfigError(f"{file} is a broker's file: it has {brokers}")
    if mode & _OTHERS and any(values.get(name) for name in SECRET_NAMES):
        warning = paint("warning:", "33", sys.stderr)
        sys.stderr.write(
            f"{warning} {file} has secrets, and others may read it; `chmod 600 {file}`\n"
        )
    try:
        security = read_security(values)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    return Profile(values.get("bootstrap.servers", "").strip(), security, file)
