"""`tidelog group`: list, describe, members, seek, delete."""

from __future__ import annotations

from typing import Any

import click

from tidelog.cli.common import (
    connection_options,
    listed,
    open_client,
    partitions_option,
    print_json,
    print_rows,
    print_table,
    say,
)
from tidelog.cli.deleting import confirm, delete_each, yes_option
from tidelog.cli.faults import EXIT_UNKNOWN_TOPIC, CliError
from tidelog.client.blocking import Client
from tidelog.client.group_admin import (
    Group,
    Lag,
    commit_offsets,
    committed_offsets,
    delete_group,
    describe_group,
    group_lag,
    list_groups,
    require_no_members,
)
from tidelog.client.offsets import log_bounds, resolve_offsets
from tidelog.client.operation import UnknownPartitionError, topic_metadata
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition

_group_argument = click.argument("name", metavar="GROUP")


@click.group()
def group() -> None:
    """Inspect groups, reset their offsets, delete them."""


@group.command("list")
@connection_options
def list_(**connection: Any) -> None:
    """List groups."""
    with open_client(**connection) as client:
        found = client.run(list_groups(client.cluster))
    rows = [
        {
            "name": each.name,
            "type": each.type or None,
            "state": each.state or None,
            "protocol": each.protocol_type or None,
        }
        for each in found
    ]
    columns = ["name", "type", "state", "protocol"]
    print_rows(rows, columns, connection["output"], "no groups")


@group.command()
@_group_argument
@connection_options
def describe(name: str, **connection: Any) -> None:
    """Show committed offsets and lag, in records and in seconds.

    Seconds are the age of the oldest record that the group has not consumed.
    """
    with open_client(**connection) as client:
        found = _require(client, name)
        committed = client.run(committed_offsets(client.cluster, name))
        lags = client.run(group_lag(client.cluster, committed))
    owners = {tp: each.client_id for each in found.members for tp in each.partitions}
    rows = [_lag_row(tp, lags[tp], owners.pop(tp, None)) for tp in sorted(lags)]
    # What is owned and was never committed.
    rows += [_lag_row(tp, None, owners[tp]) for tp in sorted(owners)]
    if connection["output"] == "json":
        print_json({**_summary(found), "partitions": rows})
        return
    for key, value in _summary(found).items():
        click.echo(f"{key}: {'-' if value is None else value}")
    if rows:
        columns = ["topic", "partition", "committed", "end", "lag", "lag_seconds", "client"]
        print_table(rows, columns)


def _summary(found: Group) -> dict[str, object]:
    return {
        "name": found.name,
        "type": found.type,
        "state": found.state,
        "protocol": found.protocol or None,
        "coordinator": found.coordinator,
        "members": len(found.members),
    }


def _lag_row(tp: TopicPartition, lag: Lag | None, owner: str | None) -> dict[str, object]:
    row: dict[str, object] = {"topic": tp.topic, "partition": tp.partition}
    if lag is None:
        return {**row, "committed": None, "end": None, "lag": None, "lag_seconds": None,
                "client": owner}  # fmt: skip
    seconds = None if lag.seconds is None else round(lag.seconds, 1)
    return {
        **row,
        "committed": lag.committed,
        "end": lag.end,
        "lag": lag.records,
        "lag_seconds": seconds,
        "client": owner,
    }


@group.command()
@_group_argument
@connection_options
def members(name: str, **connection: Any) -> None:
    """Show the members of a group and their partitions."""
    with open_client(**connection) as client:
        found = _require(client, name)
    rows = [
        {
            "member": each.member_id,
            "instance": each.instance_id,
            "client": each.client_id,
            "host": each.host,
            "partitions": [str(tp) for tp in sorted(each.partitions)],
        }
        for each in found.members
    ]
    columns = ["member", "instance", "client", "host", "partitions"]
    print_rows(rows, columns, connection["output"], f"{name} has no members")


@group.command()
@_group_argument
@click.option(
    "--to",
    "place",
    required=True,
    metavar="start|end|N|-N|@TIME",
    help="New position: -N for the last N records, @TIME for a date, ms or an age such as @-1h.",
)
@click.option("--topic", "topics", multiple=True, help="Only this topic. Repeatable.")
@partitions_option("Only this partition of each topic; repeatable.")
@click.option("--execute", is_flag=True, help="Apply the change; without this, only preview it.")
@connection_options
def seek(name: str, place: str, topics: tuple[str, ...], execute: bool, **options: Any) -> None:
    """Reset the committed offsets of a group, for all topics it has consumed or those you name.

    \b
    tidelog group seek billing --to start              shows what would change
    tidelog group seek billing --to @-1h --execute     an hour back
    tidelog group seek billing --topic orders -p 2 --to 42 --execute
    """
    from tidelog.cli.positions import parse_start

    chosen: tuple[int, ...] = options["chosen"]
    with open_client(**options) as client:
        found = client.run(describe_group(client.cluster, name))
        if found is None and not topics:
            raise _unknown(name)
        committed = client.run(committed_offsets(client.cluster, name))
        wanted = list(topics) or sorted({tp.topic for tp in committed})
        client.run(topic_metadata(client.cluster, wanted))
        known = list(client.cluster.partitions_of(wanted))
        for topic in wanted:
            for number in chosen:
                if TopicPartition(topic, number) not in known:
                    raise UnknownPartitionError(TopicPartition(topic, number))
        partitions = [tp for tp in known if not chosen or tp.partition in chosen]
        start = parse_start(place, client.cluster.clock.wall_ms())
        bounds = client.run(log_bounds(client.cluster, partitions))
        resolved = client.run(resolve_offsets(client.cluster, dict.fromkeys(partitions, start)))
        targets = {
            tp: min(max(offset, bounds[tp][0]), bounds[tp][1]) for tp, offset in resolved.items()
        }
        if found is not None:
            require_no_members(found)
        if execute:
            client.run(commit_offsets(client.cluster, name, targets))
    rows: list[dict[str, object]] = [
        {"topic": tp.topic, "partition": tp.partition, "from": committed.get(tp), "to": target}
        for tp, target in sorted(targets.items())
    ]
    if options["output"] == "json":
        print_json({"name": name, "executed": execute, "partitions": rows})
        return
    print_table(rows, ["topic", "partition", "from", "to"])
    say(f"{name} moved" if execute else "nothing changed; --execute does it")


@group.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="Do not fail if a group does not exist.")
@yes_option
@connection_options
def delete(names: tuple[str, ...], if_exists: bool, yes: bool, **connection: Any) -> None:
    """Delete groups that have no members, with their committed offsets."""
    confirm(f"delete {listed(names)} with all committed offsets", yes)
    with open_client(**connection) as client:

        def forget(name: str) -> bool:
            try:
                client.run(delete_group(client.cluster, name))
            except KafkaError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                if not if_exists:
                    raise _unknown(name) from error
                say(f"{name} does not exist")
                return False
            return True

        delete_each(names, forget, connection["output"])


def _require(client: Client, name: str) -> Group:
    found = client.run(describe_group(client.cluster, name))
    if found is None:
        raise _unknown(name)
    return found


def _unknown(name: str) -> CliError:
    return CliError(
        f"group '{name}' does not exist", "`tidelog group list` shows the groups",
        EXIT_UNKNOWN_TOPIC,
    )  # fmt: skip
