"""`tidelog topic`: create, list, describe, delete, add-partitions, replicate, config, trim."""

from __future__ import annotations

from typing import Any

import click

from tidelog.cli.common import (
    asking_options,
    complete_topic,
    connection_options,
    listed,
    open_client,
    parse_assignments,
    print_json,
    print_rows,
    print_table,
    say,
    topic_argument,
)
from tidelog.cli.deleting import confirm, delete_each, yes_option
from tidelog.cli.faults import EXIT_USAGE, CliError
from tidelog.cli.profile import profile_or_settings_option
from tidelog.cli.replicas import replicate
from tidelog.cli.sizes import led_sizes, shown_size
from tidelog.client import admin, replica_admin
from tidelog.client.blocking import Client
from tidelog.client.metadata import TopicMetadata
from tidelog.client.operation import UnknownTopicError
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import ConfigOperation, ConfigResourceType, TopicPartition

_names = click.argument("names", nargs=-1, shell_complete=complete_topic)
# As kafka-topics.sh has it.
_named_by_flag = click.option("--topic", "flagged", multiple=True, hidden=True)


@click.group()
def topic() -> None:
    """Create, inspect, change and delete topics."""


topic.add_command(replicate)


def _all_names(names: tuple[str, ...], flagged: tuple[str, ...]) -> list[str]:
    every = [*names, *flagged]
    if not every:
        raise CliError("no topic is named", "give one or more names", EXIT_USAGE)
    return every


@topic.command()
@_names
@_named_by_flag
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(min=1),
    help="Number of partitions; default: the broker's.",
)
@click.option(
    "-r",
    "--replicas",
    type=click.IntRange(min=1),
    help="Replication factor; default: the broker's.",
)
@click.option("--replication-factor", "replication_factor", type=int, hidden=True)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a topic setting. Repeatable.",
)
@profile_or_settings_option
@click.option("--if-not-exists", is_flag=True, help="Do not fail if a topic exists.")
@click.option("--dry-run", is_flag=True, help="Validate only; create nothing.")
@asking_options
def create(
    names: tuple[str, ...],
    flagged: tuple[str, ...],
    partitions: int | None,
    replicas: int | None,
    replication_factor: int | None,
    settings: tuple[str, ...],
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
    **connection: Any,
) -> None:
    """Create topics.

    \b
    tidelog topic create orders
    tidelog topic create orders payments -p 6 --set retention.ms=86400000
    """
    overrides = parse_assignments([*settings, *configs], "--set")
    made: list[dict[str, object]] = []
    with open_client(**connection) as client:
        for name in _all_names(names, flagged):
            wanted = admin.NewTopic(
                name, partitions or -1, replicas or replication_factor or -1, overrides, dry_run
            )
            try:
                created = client.run(admin.create_topic(client.cluster, wanted))
            except KafkaError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                    raise
                say(f"{name} exists already")
                continue
            made.append(
                {
                    "name": created.name,
                    "id": str(created.topic_id),
                    "partitions": created.partitions,
                    "replicas": created.replication_factor,
                }
            )
    if connection["output"] == "json":
        print_json(made)
        return
    for entry in made:
        verb = "could be created" if dry_run else "created"
        say(f"{entry['name']} {verb}: {_count(entry['partitions'], 'partition')}")


@topic.command("list")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@connection_options
def list_(internal: bool, **connection: Any) -> None:
    """List the topics."""
    with open_client(**connection) as client:
        topics = client.run(admin.list_topics(client.cluster))
    rows = [_summary(entry) for entry in topics if internal or not entry.internal]
    print_rows(rows, ["name", "partitions", "replicas"], connection["output"], "no topics")


def _summary(entry: TopicMetadata) -> dict[str, object]:
    replicas = [len(partition.replicas) for partition in entry.partitions.values()]
    return {
        "name": entry.name,
        "id": str(entry.topic_id),
        "partitions": len(entry.partitions),
        "replicas": max(replicas, default=0),
        "internal": entry.internal,
    }


@topic.command()
@_names
@_named_by_flag
@connection_options
def describe(names: tuple[str, ...], flagged: tuple[str, ...], **connection: Any) -> None:
    """Show partitions, leaders, offsets and non-default settings."""
    with open_client(**connection) as client:
        described = [_describe(client, name) for name in _all_names(names, flagged)]
    if connection["output"] == "json":
        print_json(described)
        return
    for number, entry in enumerate(described):
        if number:
            click.echo()
        click.echo(f"name: {entry['name']}")
        click.echo(f"id: {entry['id']}")
        for name, value in entry["settings"].items():
            click.echo(f"{name}: {value}")
        columns = ["partition", "leader", "epoch", "replicas", "in_sync", "start", "end"]
        if entry["size"] is not None:
            click.echo(f"size: {shown_size(entry['size'])}")
            columns.append("size")
        rows = [{**each, "size": shown_size(each["size"])} for each in entry["partitions"]]
        if any(each["eligible"] for each in entry["partitions"]):
            columns.insert(5, "eligible")
        print_table(rows, columns)


def _describe(client: Client, name: str) -> dict[str, Any]:
    from tidelog.client.offsets import log_bounds

    entry = client.run(admin.describe_topic(client.cluster, name))
    led = [tp for tp in client.cluster.partitions_of([name]) if client.cluster.leader(*tp) >= 0]
    bounds = client.run(log_bounds(client.cluster, led)) if led else {}
    settings = _settings(client, name)
    sizes = led_sizes(client, led)
    eligible = client.run(replica_admin.eligible_leaders(client.cluster, name))
    partitions = []
    for number, state in sorted(entry.partitions.items()):
        start, end = bounds.get(TopicPartition(name, number), (None, None))
        partitions.append(
            {
                "partition": number,
                "leader": state.leader if state.leader >= 0 else None,
                "epoch": state.leader_epoch,
                "replicas": state.replicas,
                "in_sync": state.isr,
                "eligible": eligible.get(number, []),
                "start": start,
                "end": end,
                "size": sizes.get(TopicPartition(name, number)),
            }
        )
    return {
        "name": name,
        "id": str(entry.topic_id),
        "internal": entry.internal,
        "settings": settings,
        "size": sum(sizes.values()) if sizes or not led else None,
        "partitions": partitions,
    }


def _settings(client: Client, name: str) -> dict[str, str | None]:
    """What differs from the defaults; nothing, with a word, where the user may not see it."""
    asked = admin.describe_configs(client.cluster, ConfigResourceType.TOPIC, name)
    try:
        configs = client.run(asked)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        say(f"the settings of {name} are not shown: that takes DescribeConfigs on the topic")
        return {}
    return {config.name: config.value for config in configs if config.source == "topic"}


@topic.command()
@_names
@_named_by_flag
@click.option("--if-exists", is_flag=True, help="Do not fail if a topic does not exist.")
@yes_option
@connection_options
def delete(
    names: tuple[str, ...],
    flagged: tuple[str, ...],
    if_exists: bool,
    yes: bool,
    **connection: Any,
) -> None:
    """Delete topics and all their records."""
    every = _all_names(names, flagged)
    confirm(f"delete {listed(every)} with all records", yes)
    with open_client(**connection) as client:

        def delete_topic(name: str) -> bool:
            try:
                client.run(admin.delete_topic(client.cluster, name))
            except UnknownTopicError:
                if not if_exists:
                    raise
                say(f"{name} does not exist")
                return False
            return True

        delete_each(every, delete_topic, connection["output"])


@topic.command("add-partitions")
@topic_argument
@click.option(
    "-t",
    "--to",
    "--partitions",
    "total",
    type=click.IntRange(min=1),
    required=True,
    help="The new total number of partitions.",
)
@connection_options
def add_partitions(topic: str, total: int, **connection: Any) -> None:
    """Add partitions to a topic.

    Existing records stay where they are, but new records of a key may go to another partition:
    order by key no longer holds between records written before and after.
    """
    with open_client(**connection) as client:
        client.run(admin.add_partitions(client.cluster, topic, total))
    if connection["output"] == "json":
        print_json({"name": topic, "partitions": total})
        return
    say(f"{topic} has {_count(total, 'partition')}; new records of a key may go to another one")


@topic.command()
@topic_argument
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a setting. Repeatable."
)
@click.option("--add-config", "added", multiple=True, hidden=True)
@profile_or_settings_option
@click.option(
    "--delete",
    "deleted",
    multiple=True,
    metavar="NAME",
    help="Reset a setting to its default. Repeatable.",
)
@click.option("--delete-config", "deleted_config", multiple=True, hidden=True)
@click.option("--all", "everything", is_flag=True, help="Include defaults.")
@asking_options
def config(
    topic: str,
    settings: tuple[str, ...],
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
    deleted_config: tuple[str, ...],
    everything: bool,
    **connection: Any,
) -> None:
    """Show or change the settings of a topic."""
    values = parse_assignments([*settings, *configs, *connection.pop("added")], "--set")
    changes: list[tuple[str, ConfigOperation, str | None]] = [
        (name, ConfigOperation.SET, value) for name, value in values.items()
    ]
    changes += [(name, ConfigOperation.DELETE, None) for name in (*deleted, *deleted_config)]
    kind = ConfigResourceType.TOPIC
    with open_client(**connection) as client:
        if changes:
            client.run(admin.alter_configs(client.cluster, kind, topic, changes))
        entries = client.run(admin.describe_configs(client.cluster, kind, topic))
    rows = [
        {"name": entry.name, "value": entry.value, "source": entry.source}
        for entry in entries
        if everything or entry.source == "topic"
    ]
    defaults = f"{topic} has the defaults; --all shows them"
    print_rows(rows, ["name", "value", "source"], connection["output"], defaults)


@topic.command()
@topic_argument
@click.option(
    "--before",
    required=True,
    metavar="OFFSET|end|-N|@TIME",
    help="The first offset to keep; `end` deletes everything.",
)
@click.option("-p", "--partition", "chosen", type=int, multiple=True, help="Only this partition.")
@yes_option
@connection_options
def trim(topic: str, before: str, chosen: tuple[int, ...], yes: bool, **connection: Any) -> None:
    """Delete the oldest records of a topic."""
    from tidelog.cli.positions import parse_start
    from tidelog.client.offsets import log_bounds, resolve_offsets

    with open_client(**connection) as client:
        entry = client.run(admin.describe_topic(client.cluster, topic))
        start = parse_start(before, client.cluster.clock.wall_ms())
        partitions = [TopicPartition(topic, number) for number in chosen or entry.partitions]
        offsets = client.run(resolve_offsets(client.cluster, dict.fromkeys(partitions, start)))
        bounds = client.run(log_bounds(client.cluster, partitions))
        dropped = sum(max(offsets[tp] - start, 0) for tp, (start, _) in bounds.items())
        confirm(f"delete up to {dropped:,} records of {topic}", yes)
        low = client.run(admin.delete_records(client.cluster, offsets))
    rows = [{"partition": tp.partition, "start": low[tp]} for tp in sorted(low)]
    print_rows(rows, ["partition", "start"], connection["output"], f"{topic} has no partitions")


def _count(number: object, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
