"""`tidelog up --brokers N`: what the brokers are started with, and the process that keeps them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from typing import Any

import click

from tidelog.cli.broker_options import (
    EXIT_CANNOT_START,
    assignments,
    build_config,
    fail,
    load_config,
)
from tidelog.cli.first_user import first_user_arguments
from tidelog.cli.up import DEFAULTS
from tidelog.config import BrokerConfig
from tidelog.errors import ConfigError, TidelogError
from tidelog.host.signals import stop_signals
from tidelog.server.logs import set_up_logging
from tidelog.supervisor.child import BrokerEnded
from tidelog.supervisor.cluster import (
    BROKER_LISTENER,
    ClientListener,
    ClusterPlan,
    LocalCluster,
)

REPLICATION_MAX = 3


def up_cluster(
    brokers: int, replication: int | None, restart: bool, options: Mapping[str, Any]
) -> None:
    """Run the brokers until a signal asks them to stop."""
    if options["node_id"] is not None:
        raise click.BadParameter("brokers are numbered from 0 here", param_hint="--node-id")
    factor = min(REPLICATION_MAX, brokers) if replication is None else replication
    if factor > brokers:
        raise click.BadParameter(
            f"{factor} replicas need as many brokers, and --brokers is {brokers}",
            param_hint="--replication",
        )
    set_up_logging(options["log_level"])
    try:
        plan = _plan(brokers, factor, restart, options)
        asyncio.run(_run(plan))
    except (TidelogError, OSError) as error:
        hint = "tidelog doctor looks for the usual causes"
        if isinstance(error, BrokerEnded):
            hint = "the lines above, marked with the broker's number, say more"
        fail(str(error), EXIT_CANNOT_START, hint)


def _plan(brokers: int, factor: int, restart: bool, options: Mapping[str, Any]) -> ClusterPlan:
    config = build_config(options, DEFAULTS)
    if len(config.listeners.opened) != 1:
        raise ConfigError("with --brokers, name one listener; the brokers add one of their own")
    listener = config.listeners.opened[0]
    if listener.name == BROKER_LISTENER:
        raise ConfigError(
            f"with --brokers, {BROKER_LISTENER} is the brokers' own listener; rename yours"
        )
    return ClusterPlan(
        config.data_dirs[0],
        free_ports(listener.host, listener.port, brokers),
        host=listener.host,
        clients=ClientListener(listener.name, listener.protocol),
        advertised=config.listeners.advertised.get(listener.name),
        metrics=config.metrics_listener,
        arguments=_arguments(options, factor),
        store=str(config.store) if config.store is not None else None,
        restart=restart,
        sink=lambda node_id, line: click.echo(f"[{node_id}] {line}", err=True),
    )


def _arguments(options: Mapping[str, Any], factor: int) -> list[str]:
    """What every broker is started with: the caller's own, over the defaults of `up`."""
    overrides = dict(assignments(options["assignments"]))
    given: BrokerConfig = load_config(options["files"], overrides, {})
    defaults = {
        **DEFAULTS,
        "default.replication.factor": str(factor),
        "offsets.topic.replication.factor": str(factor),
    }
    arguments = ["--log-level", options["log_level"]]
    for file in options["files"]:
        arguments += ["--config", os.path.abspath(file)]
    for name, value in defaults.items():
        if not given.is_set(name):
            arguments += ["--set", f"{name}={value}"]
    for name, value in overrides.items():
        arguments += ["--set", f"{name}={value}"]
    for partition in options["accept_loss"]:
        arguments += ["--accept-loss", partition]
    arguments += first_user_arguments(options)
    return arguments


def free_ports(host: str, first: int, count: int) -> list[int]:
    """The port asked for and the next ones that nobody uses; OSError where that one is taken."""
    if first == 0:
        return [0] * count
    ports = [first]
    _try_port(host, first)
    port = first + 1
    while len(ports) < count:
        if port > 65535:
            raise OSError(f"fewer than {count} ports are free from {first} on")
        try:
            _try_port(host, port)
            ports.append(port)
        except OSError:
            pass
        port += 1
    return ports


def _try_port(host: str, port: int) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {reason}") from error


async def _run(plan: ClusterPlan) -> None:
    cluster = LocalCluster(plan)
    asked = stop_signals()
    starting = asyncio.ensure_future(cluster.start())
    signalled = asyncio.ensure_future(asked.wait())
    await asyncio.wait([starting, signalled], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
        return
    starting.result()
    click.echo(f"tidelog is up on {cluster.bootstrap_servers}", err=True)
    click.echo("try: tidelog produce hello   and: tidelog consume hello -o start", err=True)
    failed = asyncio.ensure_future(cluster.wait_failed())
    await asyncio.wait([failed, signalled], return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    has_failed = not failed.cancel()
    await cluster.stop()
    if has_failed:
        failed.result()
