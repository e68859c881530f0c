"""`tidelog acl`: add, list, remove, explain; the options are those of Kafka's `kafka-acls`."""

from __future__ import annotations

from typing import Any

import click

from tidelog.cli.acl_words import (
    ROW_COLUMNS,
    OperationName,
    chosen_resources,
    filters_of,
    operation_option,
    pattern_option,
    principal_of,
    resource_options,
    row_of,
    sentence_of,
)
from tidelog.cli.common import connection_options, open_client, print_json, print_rows, say
from tidelog.cli.faults import EXIT_FAILED, EXIT_USAGE, CliError
from tidelog.client.acl_admin import create_acls, delete_acls, list_acls
from tidelog.security.acl import WILDCARD, AclBinding, PatternType, Permission
from tidelog.security.authorizer import Operation, ResourceType

_host_option = click.option(
    "--host",
    "--allow-host",
    "--deny-host",
    metavar="ADDRESS",
    help="Only from this address; else from anywhere.",
)
_any_pattern_option = click.option(
    "--pattern",
    "--resource-pattern-type",
    type=click.Choice(["any", "match", "literal", "prefixed"], case_sensitive=False),
    default="any",
    show_default=True,
    help="match: every rule that counts for a name.",
)


def _filter_options(function: Any) -> Any:
    for option in (
        click.option("--permission", type=click.Choice(["allow", "deny"]), help="Only those."),
        _host_option,
        _any_pattern_option,
        operation_option(multiple=True, help="Only this operation; repeatable."),
        click.option(
            "--principal", "principals", multiple=True, metavar="USER", help="Only of this one."
        ),
        resource_options,
    ):
        function = option(function)
    return function


@click.group()
def acl() -> None:
    """Manage access-control lists."""


@acl.command()
@click.option(
    "--allow", "--allow-principal", "allowed", multiple=True, metavar="USER", help="Who may."
)
@click.option(
    "--deny", "--deny-principal", "denied", multiple=True, metavar="USER", help="Who may not."
)
@operation_option(multiple=True, help="What: Read, Write, Describe, …, All; repeatable.")
@resource_options
@pattern_option
@click.option("--producer", is_flag=True, help="All that a producer needs: of topics and ids.")
@click.option("--consumer", is_flag=True, help="All that a consumer needs: of topics and groups.")
@_host_option
@connection_options
def add(**options: Any) -> None:
    """Add rules.

    \b
    tidelog acl add --allow alice --operation Read --topic orders
    tidelog acl add --allow alice --consumer --topic orders --group billing
    tidelog acl add --allow bob --producer --topic orders- --pattern prefixed
    tidelog acl add --deny mallory --operation All --topic '*'
    """
    rules = _rules(options)
    with open_client(**options) as client:
        client.run(create_acls(client.cluster, rules))
    if options["output"] == "json":
        print_json([row_of(rule) for rule in rules])
        return
    for rule in rules:
        say(f"added: {sentence_of(rule)}")


def _rules(options: dict[str, Any]) -> list[AclBinding]:
    who = [(principal_of(each), Permission.ALLOW) for each in options.pop("allowed")]
    who += [(principal_of(each), Permission.DENY) for each in options.pop("denied")]
    if not who:
        raise CliError("nobody is named", "give --allow USER or --deny USER", EXIT_USAGE)
    pattern = PatternType[options.pop("pattern").upper()]
    what = _asked(options)
    host = options["host"] or WILDCARD
    return [
        AclBinding(
            kind,
            PatternType.LITERAL if kind is ResourceType.CLUSTER or name == WILDCARD else pattern,
            name,
            principal,
            host,
            operation,
            permission,
        )
        for principal, permission in who
        for kind, name, operation in what
    ]


def _asked(options: dict[str, Any]) -> list[tuple[ResourceType, str, int]]:
    """Which operations on which resources; those of a producer and a consumer as Kafka has them."""
    operations = options.pop("operation")
    is_producer, is_consumer = options.pop("producer"), options.pop("consumer")
    resources = chosen_resources(options)
    if not resources:
        raise CliError("no resource is named", "give --topic, --group, --cluster, …", EXIT_USAGE)
    if not operations and not is_producer and not is_consumer:
        raise CliError(
            "no operation is named", "give --operation, --producer or --consumer", EXIT_USAGE
        )
    asked: dict[tuple[ResourceType, str, int], None] = {}
    for kind, name in resources:
        wanted = list(operations)
        if is_producer and kind is ResourceType.TOPIC:
            wanted += [Operation.WRITE, Operation.DESCRIBE, Operation.CREATE]
        if is_producer and kind is ResourceType.TRANSACTIONAL_ID:
            wanted += [Operation.WRITE, Operation.DESCRIBE]
        if is_consumer and kind is ResourceType.TOPIC:
            wanted += [Operation.READ, Operation.DESCRIBE]
        if is_consumer and kind is ResourceType.GROUP:
            wanted += [Operation.READ]
        if not wanted:
            raise CliError(
                f"neither a producer nor a consumer needs {name}", "give --operation", EXIT_USAGE
            )
        asked |= {(kind, name, each): None for each in wanted}
    return list(asked)


@acl.command("list")
@_filter_options
@connection_options
def list_(**options: Any) -> None:
    """List all rules, or those that match every option.

    \b
    tidelog acl list --topic orders --pattern match    all that count for orders
    tidelog acl list --principal alice
    """
    options["operations"] = options.pop("operation")
    filters = filters_of(options)
    with open_client(**options) as client:
        found = {rule for each in filters for rule in client.run(list_acls(client.cluster, each))}
    rows = [row_of(rule) for rule in sorted(found)]
    print_rows(rows, ROW_COLUMNS, options["output"], "no rules")


@acl.command()
@_filter_options
@click.option("--all", "everything", is_flag=True, help="Every rule there is.")
@connection_options
def remove(everything: bool, **options: Any) -> None:
    """Remove the rules that match every option.

    \b
    tidelog acl remove --principal alice --topic orders
    """
    options["operations"] = options.pop("operation")
    filters = filters_of(options)
    if not everything and all(each == type(each)() for each in filters):
        raise CliError(
            "this would remove every rule",
            "say which: --principal, --topic, …; or --all",
            EXIT_USAGE,
        )
    with open_client(**options) as client:
        gone = client.run(delete_acls(client.cluster, filters))
    if options["output"] == "json":
        print_json([row_of(rule) for rule in gone])
        return
    for rule in gone:
        say(f"removed: {sentence_of(rule)}")
    if not gone:
        say("no rule fits")


@acl.command()
@click.argument("principal", metavar="USER")
@click.argument("operation", type=OperationName(), metavar="OPERATION")
@resource_options
@click.option("--host", metavar="ADDRESS", default="", help="From where; else from anywhere.")
@connection_options
def explain(principal: str, operation: int, **options: Any) -> None:
    """Show which rule allows a user to do something, or which rule is missing.

    \b
    tidelog acl explain alice Read --topic orders
    tidelog acl explain alice Read --group billing --host 10.0.0.7

    Exits with 1 where the user may not.
    """
    from tidelog.cli.acl_explain import Question, explain_all, print_verdict

    resources = chosen_resources(options) or []
    if not resources:
        raise CliError("no resource is named", "give --topic, --group, --cluster, …", EXIT_USAGE)
    host = options.pop("host")
    questions = [
        Question(principal_of(principal), Operation(operation), kind, name, host)
        for kind, name in resources
    ]
    with open_client(**options) as client:
        verdicts = explain_all(client, questions)
    if options["output"] == "json":
        print_json([each.as_json() for each in verdicts])
    else:
        for each in verdicts:
            print_verdict(each)
    if not all(each.allowed for each in verdicts):
        click.get_current_context().exit(EXIT_FAILED)
