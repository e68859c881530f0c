"""`tidelog cluster move`: the stores of a move are opened here, the moving is `cluster/moving`."""

from __future__ import annotations

import os

from tidelog.cluster.moving import Moved, move, read_users
from tidelog.config import BrokerConfig
from tidelog.config.store_settings import UNIX, StoreAddress, check_keeps_secrets
from tidelog.errors import ConfigError, StorageError
from tidelog.host.host import Host
from tidelog.host.offload import ThreadOffload
from tidelog.server.broker import METADATA_FILE
from tidelog.server.stores import connector
from tidelog.store.embedded import EmbeddedStore


async def move_metadata(
    directory: str, address: StoreAddress, config: BrokerConfig, host: Host
) -> Moved:
    """Move what the brokers of a directory, which are stopped, keep there into another store.

    StorageError where one of them runs, and where the other store cannot be reached or used.
    """
    if address.kind == UNIX:
        raise ConfigError("--to names a ZooKeeper: zookeeper://HOST:2181,HOST:2181/CHROOT")
    path = os.path.join(directory, METADATA_FILE)
    if not host.disk.exists(path):
        raise StorageError(
            f"{directory} has no {METADATA_FILE}; name the directory of a broker that kept its own"
            " metadata, or of a local cluster"
        )
    source = await EmbeddedStore.open(path, host.disk, ThreadOffload("store", 1), create=False)
    try:
        users = len(await read_users(source))
        check_keeps_secrets(address, config.get_str("zookeeper.digest"), users)
        target = await connector(address, config, host)()
        try:
            return await move(source, target, str(address))
        finally:
            await target.close()
    finally:
        await source.close()
