"""`tidelog up`: a broker for this machine, or several, with nothing to decide beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.broker_options import broker_options, build_config, serve
from tidelog.cli.first_user import first_user_options, first_users
from tidelog.config.local_defaults import LOCAL_DEFAULTS

if TYPE_CHECKING:
    from tidelog.server.broker import Broker

DEFAULTS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "tidelog-data",
    **LOCAL_DEFAULTS,
}


@click.command()
@broker_options
@first_user_options
@click.option(
    "--brokers",
    metavar="N",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of brokers, each a process with its data in DIR/0, DIR/1, …",
)
@click.option(
    "--replication",
    metavar="N",
    type=click.IntRange(1, 64),
    help="Default replication factor of new topics.  [default: 3, or as many as there are brokers]",
)
@click.option("--restart/--no-restart", default=True, show_default=True,
              help="Whether to restart a broker that dies.")  # fmt: skip
def up(brokers: int, replication: int | None, restart: bool, **options: Any) -> None:
    """Start a broker on 127.0.0.1:9092 with its data in ./tidelog-data.

    Creates topics on first use. Ctrl-C stops it and keeps the data. --brokers 3 starts a cluster of
    three processes on this machine: the first broker uses the port of --listen, the others the next
    free ports. Listener and security settings in a --config file apply to all brokers.
    """
    if brokers > 1:
        from tidelog.cli.up_cluster import up_cluster

        up_cluster(brokers, replication, restart, options)
        return
    config = build_config(options, DEFAULTS)
    options["first_users"] = first_users(options)

    def announce(broker: Broker) -> None:
        click.echo(f"tidelog is up on {broker.bootstrap_servers}", err=True)
        click.echo("try: tidelog produce hello   and: tidelog consume hello -o start", err=True)

    serve(config, options, announce)
