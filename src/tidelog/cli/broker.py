"""`tidelog broker`: one broker for production, from a configuration file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.broker_options import broker_options, build_config, serve
from tidelog.cli.first_user import first_user_options, first_users
from tidelog.supervisor.child import announcement

if TYPE_CHECKING:
    from tidelog.server.broker import Broker


@click.command()
@broker_options
@first_user_options
@click.option("--end-with", "end_with", type=int, hidden=True)
def broker(**options: Any) -> None:
    """Run one broker. --config accepts Kafka's server.properties.

    SIGTERM finishes requests in progress and stops; a second SIGTERM, at least a second later,
    stops at once. Exit codes: 0 stopped by a signal, 1 failed to start or run, 2 bad configuration
    or usage.
    """
    config = build_config(options, {})
    options["first_users"] = first_users(options)

    def announce(started: Broker) -> None:
        click.echo(announcement(config.node_id, started.bootstrap_servers), err=True)

    serve(config, options, announce)
