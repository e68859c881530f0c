"""The options that `up` and `broker` share, and how they become settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tidelog.config import BrokerConfig, load
from tidelog.config.loader import environment_name
from tidelog.config.table import BROKER_SETTINGS
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition

if TYPE_CHECKING:
    from tidelog.server.broker import Broker

EXIT_CANNOT_START = 1
EXIT_BAD_CONFIGURATION = 2
_ASK_DOCTOR = "tidelog doctor looks for the usual causes"

_OPTIONS = (
    click.option("--config", "files", multiple=True, type=click.Path(), metavar="FILE",
                 help="Properties or YAML file. Repeatable; later files win."),
    click.option("--node-id", type=int, help="This broker's id."),
    click.option("--listen", metavar="HOST:PORT",
                 help="Address to listen on for clients."),
    click.option("--advertise", metavar="HOST:PORT",
                 help="Address that clients connect to, if it differs from --listen."),
    click.option("--data-dir", type=click.Path(), metavar="DIR", help="Data directory."),
    click.option("--store", metavar="ADDRESS",
                 help="Metadata store of the cluster: zookeeper://HOST:2181,…/CHROOT."
                      " Without it, the broker runs alone."),
    click.option("--metrics", metavar="HOST:PORT",
                 help="Serve /metrics, /healthz and /readyz on this address."),
    click.option("--accept-loss", "accept_loss", multiple=True, metavar="TOPIC-PARTITION",
                 help="Serve what is left of a partition that the log reports as incomplete."
                      " Repeatable."),
    click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE",
                 help="Override a setting (docs/configuration.md). Repeatable."),
    click.option("--log-level", default="info", show_default=True,
                 type=click.Choice(["debug", "info", "warning", "error"]),
                 help="Log level on stderr."),
)  # fmt: skip


def broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the shared options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def build_config(options: Mapping[str, Any], defaults: Mapping[str, str]) -> BrokerConfig:
    """Settings from files, environment and flags, over the command's own defaults."""
    overrides = dict(assignments(options["assignments"]))
    _refuse_secrets(overrides)
    if options["node_id"] is not None:
        overrides["node.id"] = str(options["node_id"])
    for option, setting in (("listen", "listeners"), ("advertise", "advertised.listeners")):
        if options[option]:
            name = _only_listener(options["files"], overrides, defaults, f"--{option}")
            overrides[setting] = f"{name}://{_with_port(options[option], f'--{option}')}"
    if options["data_dir"]:
        overrides["log.dirs"] = options["data_dir"]
    if options.get("store"):
        overrides["store"] = options["store"]
    if options["metrics"]:
        overrides["metrics.listener"] = _with_port(options["metrics"], "--metrics")
    return load_config(options["files"], overrides, defaults)


def _only_listener(
    files: Sequence[str], overrides: Mapping[str, str], defaults: Mapping[str, str], option: str
) -> str:
    """The listener whose address an option gives: it keeps its name, and so its security."""
    opened = load_config(files, overrides, defaults).listeners.opened
    if len(opened) > 1:
        names = ", ".join(each.name for each in opened)
        raise click.BadParameter(
            f"there are several listeners, {names}; give their addresses in the settings",
            param_hint=option,
        )
    return opened[0].name


def load_config(
    files: Sequence[str], overrides: Mapping[str, str], defaults: Mapping[str, str]
) -> BrokerConfig:
    """The settings; a sentence and an exit code where they cannot be used."""
    try:
        return load(files=files, environment=os.environ, overrides=overrides, defaults=defaults)
    except TidelogError as error:
        fail(str(error), EXIT_BAD_CONFIGURATION, "see docs/configuration.md for every setting")


def serve(
    config: BrokerConfig, options: Mapping[str, Any], on_started: Callable[[Broker], None]
) -> None:
    """Run the broker until it is asked to stop; a sentence and an exit code where it cannot."""
    from tidelog.server.logs import set_up_logging
    from tidelog.server.process import run_broker

    users = options.get("first_users", ())
    set_up_logging(options["log_level"])
    accept_loss = [_partition(text) for text in options["accept_loss"]]
    try:
        run_broker(config, on_started, accept_loss, options.get("end_with"), users)
    except TidelogError as error:
        fail(str(error), EXIT_CANNOT_START, _ASK_DOCTOR)
    except OSError as error:
        message, hint = _start_fault(error, config)
        fail(message, EXIT_CANNOT_START, hint)


def _start_fault(error: OSError, config: BrokerConfig) -> tuple[str, str]:
    """What kept a broker from starting, and what to do: the doctor's words where it knows."""
    from tidelog.cli.doctor_host import check_directory, check_port_free

    yet_to_check = chain(
        (check_directory(each) for each in config.data_dirs),
        (check_port_free(each.host, each.port) for each in config.listeners.opened),
    )
    for finding in yet_to_check:
        if not finding.ok:
            return finding.sentence, finding.hint
    return str(error), _ASK_DOCTOR


def fail(message: str, code: int, hint: str) -> NoReturn:
    """Say what went wrong on stderr, and leave."""
    click.echo(f"error: {message}\nhint: {hint}", err=True)
    raise SystemExit(code)


def assignments(texts: Sequence[str]) -> list[tuple[str, str]]:
    pairs = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--set")
        pairs.append((name.strip(), value))
    return pairs


def _refuse_secrets(settings: Mapping[str, str]) -> None:
    """A command line is there for everybody on the machine to read."""
    for name in settings:
        if name in BROKER_SETTINGS and BROKER_SETTINGS[name].is_sensitive:
            raise click.BadParameter(
                f"{name} is a secret, and others can read a command line; write it into a file"
                f" for --config, or into {environment_name(name)}",
                param_hint="--set",
            )


def _partition(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    if not topic or not partition.isdecimal():
        raise click.BadParameter(
            f"{text!r} is not TOPIC-PARTITION, as in orders-0", param_hint="--accept-loss"
        )
    return TopicPartition(topic, int(partition))


def _with_port(text: str, option: str) -> str:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal():
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint=option)
    return f"{host}:{port}"
