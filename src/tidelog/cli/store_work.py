"""What the commands share that work on a metadata store without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from tidelog.cli.broker_options import load_config

if TYPE_CHECKING:
    from tidelog.config import BrokerConfig
    from tidelog.host.host import Host

T = TypeVar("T")

config_option = click.option(
    "--config",
    "files",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="Settings of ZooKeeper: zookeeper.digest, zookeeper.ssl.…. Repeatable.",
)


def run_on_store(files: tuple[str, ...], work: Callable[[BrokerConfig, Host], Awaitable[T]]) -> T:
    from tidelog.host.host import system_host

    config = load_config(files, {}, {})
    host = system_host("store")

    async def run() -> T:
        return await work(config, host)

    try:
        return asyncio.run(run())
    finally:
        host.offload.close()
