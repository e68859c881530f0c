"""`tidelog quota`: set, list, remove."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tidelog.cli.common import (
    connection_options,
    open_client,
    parse_assignments,
    print_json,
    print_rows,
    say,
)
from tidelog.cli.faults import EXIT_USAGE, CliError
from tidelog.client.quota_admin import alter_quotas, list_quotas
from tidelog.security.quota_entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
)

F = TypeVar("F", bound=Callable[..., Any])

_KINDS = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
    CONNECTION_CREATION_RATE,
)
_DEFAULT = "<default>"


def _entity_options(function: F) -> F:
    for kind, what in ((IP, "address"), (CLIENT_ID, "client id"), (USER, "user")):
        name = kind.replace("-", "_")
        function = click.option(
            f"--{kind}-default", f"{name}_default", is_flag=True, help=f"Every other {what}."
        )(function)
        function = click.option(f"--{kind}", name, metavar="NAME", help=f"This {what}.")(function)
    return function


def _entity(options: dict[str, Any]) -> QuotaEntity:
    """What the options name; they are taken out."""
    parts: list[tuple[str, str | None]] = []
    for kind in (CLIENT_ID, IP, USER):
        name = kind.replace("-", "_")
        value, is_default = options.pop(name), options.pop(f"{name}_default")
        if value is not None and is_default:
            raise CliError(
                f"--{kind} and --{kind}-default are given together", "give one of them", EXIT_USAGE
            )
        if value is not None or is_default:
            parts.append((kind, value))
    return tuple(parts)


def _required(entity: QuotaEntity) -> QuotaEntity:
    if not entity:
        raise CliError(
            "it is not said whose quota it is",
            "name a --user, a --client-id, both, or an --ip; --user-default stands for all others",
            EXIT_USAGE,
        )
    return entity


@click.group()
def quota() -> None:
    """Manage client quotas."""


@quota.command("set")
@click.argument("quotas", nargs=-1, required=True, metavar="QUOTA=VALUE...")
@_entity_options
@connection_options
def set_(quotas: tuple[str, ...], **options: Any) -> None:
    """Set quotas for a user, a client id, both, or an address.

    \b
    producer_byte_rate        bytes that it may produce in a second
    consumer_byte_rate        bytes that it may fetch in a second
    request_percentage        share of a broker's time; 100 is all of it
    controller_mutation_rate  partitions that it may create and delete in a second
    connection_creation_rate  connections that an address may open in a second

    They hold on each broker.
    """
    entity = _required(_entity(options))
    values = {
        _checked(name): _number(name, text)
        for name, text in parse_assignments(quotas, "quota").items()
    }
    with open_client(**options) as client:
        client.run(alter_quotas(client.cluster, entity, values))
    if options["output"] == "json":
        print_json([_row(entity, name, value) for name, value in values.items()])
        return
    for name, value in values.items():
        say(f"{_shown(entity)}: {name} is {_number_text(value)}")


@quota.command("list")
@_entity_options
@connection_options
def list_(**options: Any) -> None:
    """List all quotas, or those of one user, client id or address."""
    entity = _entity(options)
    with open_client(**options) as client:
        found = client.run(list_quotas(client.cluster, entity))
    rows = [
        _row(each, name, value)
        for each in sorted(found, key=_shown)
        for name, value in sorted(found[each].items())
    ]
    print_rows(rows, [USER, CLIENT_ID, IP, "quota", "value"], options["output"], "no quotas")


@quota.command()
@click.argument("quotas", nargs=-1, metavar="[QUOTA]...")
@_entity_options
@connection_options
def remove(quotas: tuple[str, ...], **options: Any) -> None:
    """Remove quotas of a user, client id or address: the ones you name, or all."""
    entity = _required(_entity(options))
    names = [_checked(name) for name in quotas]
    with open_client(**options) as client:
        if not names:
            found = client.run(list_quotas(client.cluster, entity))
            names = sorted(found.get(entity, ()))
        if names:
            client.run(alter_quotas(client.cluster, entity, dict.fromkeys(names)))
    if options["output"] == "json":
        print_json([_row(entity, name, None) for name in names])
    elif names:
        say(f"{_shown(entity)}: {', '.join(names)} removed")
    else:
        say(f"{_shown(entity)} has no quotas")


def _checked(name: str) -> str:
    if name not in _KINDS:
        raise CliError(f"there is no quota {name}", f"one of {', '.join(_KINDS)}", EXIT_USAGE)
    return name


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CliError(f"{name}={text}: not a number", f"{name}=1048576", EXIT_USAGE) from None


def _row(entity: QuotaEntity, name: str, value: float | None) -> dict[str, object]:
    row: dict[str, object] = {kind: _DEFAULT if own is None else own for kind, own in entity}
    number = int(value) if value is not None and value == int(value) else value
    return {**dict.fromkeys((USER, CLIENT_ID, IP)), **row, "quota": name, "value": number}


def _shown(entity: QuotaEntity) -> str:
    order = (USER, CLIENT_ID, IP)
    parts = sorted(entity, key=lambda part: order.index(part[0]))
    return ", ".join(f"{kind} {_DEFAULT if name is None else name}" for kind, name in parts)


def _number_text(value: float) -> str:
    return str(int(value) if value == int(value) else value)
