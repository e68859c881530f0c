"""`tidelog cluster export` and `restore`: the metadata in a file, and a lost store made again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from tidelog.cli.broker_options import EXIT_BAD_CONFIGURATION, fail
from tidelog.cli.common import format_option, print_json, say
from tidelog.cli.store_work import config_option, run_on_store
from tidelog.config.store_settings import parse_store
from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from tidelog.server.backups import Place


@click.command()
@click.argument("file", type=click.Path())
@click.option(
    "--from",
    "source",
    required=True,
    metavar="STORE",
    help="zookeeper://HOST:2181,…/CHROOT, or the data directory of a local cluster or a broker.",
)
@config_option
@format_option
def export(file: str, source: str, files: tuple[str, ...], output: str) -> None:
    """Save the cluster's metadata to FILE, to restore a lost metadata store.

    Topics, their ids and settings, replicas, producer ids, but no records. The brokers may run;
    a broker by itself, which keeps its metadata in its data directory, must be stopped.
    """
    from tidelog.server.backups import export_metadata

    place, path = _place("--from", source), os.path.abspath(file)
    done = run_on_store(files, lambda config, host: export_metadata(place, path, config, host))
    image = done.image
    if output == "json":
        topics = len(image.topics)
        print_json({"cluster_id": image.cluster_id, "topics": topics, "file": file})
        return
    say(f"saved the metadata of cluster {image.cluster_id} with {len(image.topics)} topics")


@click.command()
@click.argument("file", type=click.Path())
@click.option(
    "--data-dir",
    "directories",
    type=click.Path(),
    multiple=True,
    required=True,
    metavar="DIR",
    help="The data directory of a broker, or of a local cluster. Repeatable: name all brokers.",
)
@click.option(
    "--to",
    "target",
    required=True,
    metavar="STORE",
    help="An empty zookeeper://HOST:2181,…/CHROOT, or the data directory that lost its metadata.",
)
@click.option(
    "--without",
    type=int,
    multiple=True,
    metavar="BROKER",
    help="A broker whose data directory is lost, or that has left the cluster. Repeatable.",
)
@config_option
@format_option
def restore(
    file: str, directories: tuple[str, ...], target: str, without: tuple[int, ...],
    files: tuple[str, ...], output: str,
) -> None:  # fmt: skip
    """Rebuild a lost metadata store from FILE and the data directories of stopped brokers.

    The export may be old: what the directories hold counts. A command that was interrupted is run
    again. No records are changed or deleted.
    """
    from tidelog.server.backups import Restoration, restore_metadata

    asked = Restoration(os.path.abspath(file), directories, _place("--to", target), without)
    report = run_on_store(files, lambda config, host: restore_metadata(asked, config, host))
    if output == "json":
        names = ("cluster_id", "topics", "partitions", "found", "gone", "offline", "left_alone")
        print_json({**{name: getattr(report, name) for name in names}, "to": target})
        return
    for name in report.found:
        say(f"found: topic {name}, created after the export; its settings are the default ones")
    for name in report.gone:
        say(f"gone: topic {name} is in the export, but in no directory; it is left out")
    for path, why in report.left_alone.items():
        say(f"left alone: {path}: {why}; a broker that starts puts it aside and keeps it for days")
    for partition, why in report.offline.items():
        say(f"offline: {partition}: {why}")
    counts = f"{report.topics} topics and {report.partitions} partitions"
    say(f"restored cluster {report.cluster_id} with {counts}; start its brokers")


def _place(option: str, text: str) -> Place:
    from tidelog.server.backups import place_of

    is_address = text.startswith(("zookeeper:", "unix:"))
    try:
        return place_of(text, parse_store(text) if is_address else None)
    except ConfigError as error:
        fail(f"{option} {text}: {error}", EXIT_BAD_CONFIGURATION, "see docs/cluster.md")
