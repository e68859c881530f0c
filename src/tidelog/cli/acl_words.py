"""Kafka's vocabulary of access-control lists: options to rules and filters, rules to text."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from tidelog.cli.faults import EXIT_USAGE, CliError
from tidelog.security.acl import (
    ALL,
    ANY,
    WILDCARD,
    AclBinding,
    AclFilter,
    PatternType,
    Permission,
)
from tidelog.security.authorizer import CLUSTER, Operation, ResourceType

F = TypeVar("F", bound=Callable[..., Any])

OPERATION_NAMES: Final[dict[int, str]] = {
    ALL: "All",
    **{each: "".join(word.title() for word in each.name.split("_")) for each in Operation},
}
_OPERATIONS: Final = {name.lower(): code for code, name in OPERATION_NAMES.items()}
RESOURCE_NAMES: Final = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.CLUSTER: "cluster",
    ResourceType.TRANSACTIONAL_ID: "transactional-id",
    ResourceType.DELEGATION_TOKEN: "delegation-token",
    ResourceType.USER: "user-principal",
}
_NAMED: Final = tuple(each for each in RESOURCE_NAMES if each is not ResourceType.CLUSTER)


def resource_options(function: F) -> F:
    """What a rule is about: any number of each."""
    for kind in reversed(_NAMED):
        name = RESOURCE_NAMES[kind]
        function = click.option(
            f"--{name}",
            f"named_{kind.name}",
            metavar="NAME",
            multiple=True,
            help=f"A {name.replace('-', ' ')}, * for all; repeatable.",
        )(function)
    return click.option("--cluster", "on_cluster", is_flag=True, help="The cluster.")(function)


pattern_option = click.option(
    "--pattern",
    "--resource-pattern-type",
    type=click.Choice(["literal", "prefixed"], case_sensitive=False),
    default="literal",
    show_default=True,
    help="Whether a name is one resource, or all that begin with it.",
)


def operation_option(**options: Any) -> Callable[[F], F]:
    return click.option("--operation", type=OperationName(), metavar="OPERATION", **options)


class OperationName(click.ParamType[int]):
    """Read, Write, DescribeConfigs, …; in any case, with or without `-` and `_`."""

    name = "operation"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _OPERATIONS.get(str(value).replace("-", "").replace("_", "").lower())
        if found is None:
            self.fail(f"'{value}' is none of {', '.join(OPERATION_NAMES.values())}", param, ctx)
        return found


def chosen_resources(options: dict[str, Any]) -> list[tuple[ResourceType, str]]:
    """The resources of `resource_options`, which are taken out of the options."""
    chosen: list[tuple[ResourceType, str]] = [
        (kind, name) for kind in _NAMED for name in options.pop(f"named_{kind.name}")
    ]
    if options.pop("on_cluster"):
        chosen.append((ResourceType.CLUSTER, CLUSTER.name))
    return chosen


def principal_of(text: str) -> str:
    """`alice` is `User:alice`."""
    name = text if ":" in text else f"User:{text}"
    if not name.partition(":")[2]:
        raise CliError(f"'{text}' is no principal", "give User:NAME, or User:* for all", EXIT_USAGE)
    return name


def filters_of(options: dict[str, Any]) -> list[AclFilter]:
    """The filters that the options of `list` and `remove` stand for; one without any option."""
    resources: list[tuple[int, str | None]] = [*chosen_resources(options)] or [(ANY, None)]
    principals: list[str | None] = [principal_of(each) for each in options.pop("principals")]
    principals = principals or [None]
    operations = options.pop("operations") or [ANY]
    pattern = PatternType[options.pop("pattern").upper()]
    permission = options.pop("permission")
    return [
        AclFilter(
            kind,
            pattern,
            name,
            principal,
            options["host"],
            operation,
            Permission.ANY if permission is None else Permission[permission.upper()],
        )
        for kind, name in resources
        for principal in principals
        for operation in operations
    ]


def row_of(rule: AclBinding) -> dict[str, object]:
    """A rule as it is printed."""
    return {
        "resource": _word(RESOURCE_NAMES, rule.resource_type),
        "name": rule.resource_name,
        "pattern": "prefixed" if rule.pattern_type == PatternType.PREFIXED else "literal",
        "principal": rule.principal,
        "host": rule.host,
        "operation": _word(OPERATION_NAMES, rule.operation),
        "permission": "deny" if rule.permission == Permission.DENY else "allow",
    }


ROW_COLUMNS: Final = (
    "resource", "name", "pattern", "principal", "host", "operation", "permission",
)  # fmt: skip


def _word(words: Any, code: int) -> str:
    return str(words.get(code, code))


def sentence_of(rule: AclBinding) -> str:
    """A rule in words."""
    verb = "may not" if rule.permission == Permission.DENY else "may"
    who = "everybody" if rule.principal == "User:*" else rule.principal
    what = OPERATION_NAMES.get(rule.operation, str(rule.operation))
    where = "" if rule.host == WILDCARD else f" from {rule.host}"
    return f"{who} {verb} {what} {resource_words(rule)}{where}"


def resource_words(rule: AclBinding) -> str:
    kind = _word(RESOURCE_NAMES, rule.resource_type).replace("-", " ")
    if rule.resource_type == ResourceType.CLUSTER:
        return "the cluster"
    if rule.pattern_type == PatternType.PREFIXED:
        return f"every {kind} that begins with {rule.resource_name}"
    return f"every {kind}" if rule.resource_name == WILDCARD else f"{kind} {rule.resource_name}"


def command_of(rule: AclBinding, verb: str = "add") -> str:
    """The command that adds a rule, or removes it."""
    kind = RESOURCE_NAMES[ResourceType(rule.resource_type)]
    words = ["tidelog", "acl", verb]
    if verb == "add":
        words += ["--deny" if rule.permission == Permission.DENY else "--allow", rule.principal]
    else:
        words += ["--principal", rule.principal]
        words += ["--permission", "deny" if rule.permission == Permission.DENY else "allow"]
    words += ["--operation", OPERATION_NAMES[rule.operation]]
    on_cluster = rule.resource_type == ResourceType.CLUSTER
    words += [f"--{kind}"] if on_cluster else [f"--{kind}", rule.resource_name]
    if rule.pattern_type == PatternType.PREFIXED:
        words += ["--pattern", "prefixed"]
    elif verb == "remove":
        words += ["--pattern", "literal"]
    if rule.host != WILDCARD:
        words += ["--host", rule.host]
    return shlex.join(words)
