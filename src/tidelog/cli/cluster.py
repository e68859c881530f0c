"""`tidelog cluster`: who is there, and where the metadata is kept."""

from __future__ import annotations

from typing import Any

import click

from tidelog.cli.cluster_backup import export, restore
from tidelog.cli.cluster_health import health
from tidelog.cli.cluster_move import move
from tidelog.cli.common import connection_options, open_client, print_json, print_table
from tidelog.cli.replicas import decommission, elect, reassign
from tidelog.cli.sizes import broker_sizes, shown_size
from tidelog.client import admin


@click.group()
def cluster() -> None:
    """Inspect the cluster, reassign replicas, and back up or move its metadata."""


for _command in (health, reassign, elect, decommission, move, export, restore):
    cluster.add_command(_command)


@cluster.command()
@connection_options
def info(bootstrap: str, output: str, timeout_s: float) -> None:
    """Show the cluster id, the brokers and how much each holds."""
    with open_client(bootstrap, timeout_s) as client:
        described = client.run(admin.describe_cluster(client.cluster))
        topics = client.run(admin.list_topics(client.cluster))
        sizes = broker_sizes(client, [broker.id for broker in described.brokers])
    led: dict[int, int] = {}
    for topic in topics:
        for partition in topic.partitions.values():
            led[partition.leader] = led.get(partition.leader, 0) + 1
    brokers: list[dict[str, Any]] = [
        {
            "id": broker.id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "controller": broker.id == described.controller_id,
            "leads": led.get(broker.id, 0),
            "size": sizes.get(broker.id),
            "state": "away" if broker in described.away else "here",
        }
        for broker in sorted((*described.brokers, *described.away), key=lambda each: each.id)
    ]
    summary = {
        "cluster_id": described.cluster_id,
        "controller": described.controller_id,
        "topics": sum(not topic.internal for topic in topics),
        "partitions": sum(len(topic.partitions) for topic in topics if not topic.internal),
        "without_leader": led.get(-1, 0),
    }
    if output == "json":
        print_json({**summary, "brokers": brokers})
        return
    for name, value in summary.items():
        click.echo(f"{name.replace('_', ' ')}: {value}")
    columns = ["id", "host", "port", "rack", "leads", *(["size"] if sizes else [])]
    rows = [{**broker, "size": shown_size(broker["size"])} for broker in brokers]
    print_table(rows, [*columns, "state"] if described.away else columns)
