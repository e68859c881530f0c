"""`tidelog cluster move`: the metadata of stopped brokers goes to ZooKeeper."""

from __future__ import annotations

import os

import click

from tidelog.cli.broker_options import EXIT_BAD_CONFIGURATION, fail
from tidelog.cli.common import format_option, print_json, say
from tidelog.cli.store_work import config_option, run_on_store
from tidelog.config.store_settings import parse_store
from tidelog.errors import ConfigError


@click.command()
@click.option(
    "--data-dir",
    "directory",
    type=click.Path(),
    required=True,
    metavar="DIR",
    help="The directory of the broker, which is stopped.",
)
@click.option(
    "--to",
    "target",
    required=True,
    metavar="zookeeper://HOST:2181,…/CHROOT",
    help="Where the metadata goes: a chroot that is empty or not there yet.",
)
@config_option
@format_option
def move(directory: str, target: str, files: tuple[str, ...], output: str) -> None:
    """Move a stopped broker's metadata, or that of a local cluster, to ZooKeeper.

    The data stays where it is. Brokers start with --store from then on; the old metadata says so
    and refuses to start. An interrupted move is finished by the same command.
    """
    from tidelog.server.relocation import move_metadata

    try:
        address = parse_store(target)
    except ConfigError as error:
        fail(f"--to {target}: {error}", EXIT_BAD_CONFIGURATION, "see docs/cluster.md")
    assert address is not None
    path = os.path.abspath(directory)
    moved = run_on_store(files, lambda config, host: move_metadata(path, address, config, host))
    if output == "json":
        print_json({"cluster_id": moved.cluster_id, "topics": moved.topics, "to": str(address)})
        return
    say(f"moved cluster {moved.cluster_id} with {moved.topics} topics to {address}")
    say(f"start its brokers with --store {address}")
