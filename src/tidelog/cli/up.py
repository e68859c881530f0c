"""`tidelog up`: a broker for this machine, with nothing to decide beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.broker_options import broker_options, build_config, serve

if TYPE_CHECKING:
    from tidelog.server.broker import Broker

_DEFAULTS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "tidelog-data",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}


@click.command()
@broker_options
def up(**options: Any) -> None:
    """Start a broker on 127.0.0.1:9092 with its data in ./tidelog-data.

    Topics are created when they are first used. Ctrl-C stops it; the data stays.
    """
    config = build_config(options, _DEFAULTS)

    def announce(broker: Broker) -> None:
        click.echo(f"tidelog is up on {broker.bootstrap_servers}", err=True)
        click.echo("try: tidelog produce hello   and: tidelog consume hello -o start", err=True)

    serve(config, options, announce)
