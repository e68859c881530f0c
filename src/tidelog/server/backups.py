"""`tidelog cluster export` and `restore`: stores and directories are opened here.

An export is read from the store itself, as another session beside the brokers': ZooKeeper's, or the
one that the parent of a local cluster serves on its socket. A store in a file is read while nobody
uses it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

from tidelog.cluster.exports import Export, decode_export, encode_export, read_export
from tidelog.cluster.rebuilding import Report, check_brokers, rebuild
from tidelog.cluster.restoring import restore
from tidelog.config import BrokerConfig
from tidelog.config.store_settings import UNIX, StoreAddress, check_keeps_secrets
from tidelog.config.topic_config import topic_config
from tidelog.errors import ConfigError, StorageError
from tidelog.host.disk import Disk
from tidelog.host.host import Host
from tidelog.host.offload import ThreadOffload
from tidelog.server.broker import METADATA_FILE
from tidelog.server.configured import descriptor_shares
from tidelog.server.stores import connector
from tidelog.storage.checkpoint import read_bytes, write_durably
from tidelog.storage.file_cache import FileCache
from tidelog.storage.local_cluster import READY, SOCKET_FILE, read_local_cluster
from tidelog.storage.log_context import LogContext
from tidelog.storage.survey import Surveyed, identity_of, survey
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.port import Store, StoreUnreachable

# What SQLite and the store keep beside the file: of no use without it, and in the way of a new one.
_BESIDE_METADATA: Final = ("-wal", "-shm", ".revision")
_PUT_ASIDE: Final = ".lost"

# A store is named by its address, or by the directory that it lies in.
Place = StoreAddress | str


async def export_metadata(place: Place, file: str, config: BrokerConfig, host: Host) -> Export:
    """Write what a store holds to a file; StorageError where the store cannot be read."""
    async with _opened(place, config, host) as store:
        export = await read_export(store)
    await host.offload.run(write_durably, host.disk, file, encode_export(export))
    return export


class Restoration(NamedTuple):
    """What to restore a store from, and where it is."""

    file: str
    directories: Sequence[str]
    to: Place
    # Brokers whose directories are not there.
    without: Collection[int] = ()


async def restore_metadata(asked: Restoration, config: BrokerConfig, host: Host) -> Report:
    """Rebuild a lost store from an export and the directories of the brokers, which are stopped.

    StorageError where they do not belong together, a broker runs, or the store is not empty.
    """
    _, directories, place, without = asked
    export = await host.offload.run(_read, asked.file, host.disk)
    if isinstance(place, StoreAddress):
        users = {user for user, _ in export.image.scram_credentials}
        check_keeps_secrets(place, config.get_str("zookeeper.digest"), len(users))
    context = _context(config, host)
    disk = host.disk
    paths = _broker_directories(disk, directories)
    owners = {path: identity_of(context, path) for path in paths}
    check_brokers(
        export, {path: (each.cluster_id, each.node_id) for path, each in owners.items()}, without
    )
    if isinstance(place, str):
        _check_embedded_place(disk, place, paths)
    async with AsyncExitStack() as stack:
        # Locked before anything is read: no broker starts while the store is written.
        surveyed: list[Surveyed] = []
        for path in paths:
            look = partial(survey, path, context, topic_config(config, {}))
            surveyed.append(await host.offload.run(look))
            stack.push_async_callback(host.offload.run, surveyed[-1].close)
        rebuilt = rebuild(export, surveyed, without)
        async with _opened(place, config, host, create=True) as store:
            await restore(store, rebuilt)
    return rebuilt.report


def _read(file: str, disk: Disk) -> Export:
    data = read_bytes(disk, file)
    if data is None:
        raise StorageError(f"there is no file {file}; tidelog cluster export writes one")
    return decode_export(data, file)


def _context(config: BrokerConfig, host: Host) -> LogContext:
    """What logs need that are opened and closed again."""
    return LogContext(
        host.disk,
        host.clock,
        FileCache(host.disk, descriptor_shares(config).open_files),
        host.random,
        run_later=lambda seconds, work: None,
        on_offline=lambda path, error: None,
    )


def _broker_directories(disk: Disk, directories: Sequence[str]) -> list[str]:
    """The directory of each broker; that of a local cluster stands for those in it."""
    paths: dict[str, None] = {}
    for each in directories:
        path = os.path.abspath(each)
        local = read_local_cluster(disk, path)
        brokers = [path] if local is None else [f"{path}/{k}" for k in range(local.brokers)]
        paths.update(dict.fromkeys(brokers))
    return list(paths)


def _check_embedded_place(disk: Disk, directory: str, paths: Sequence[str]) -> None:
    """StorageError where no broker would look for its metadata in the directory."""
    local = read_local_cluster(disk, directory)
    if local is not None:
        if local.state != READY:
            raise StorageError(f"{directory} is half prepared; start it once with tidelog up")
    elif list(paths) != [directory]:
        raise StorageError(
            f"{directory} is neither the directory of a local cluster nor that of the one broker"
            " that was named; several brokers need --to zookeeper://…, or the directory of tidelog"
            " up --brokers"
        )


@asynccontextmanager
async def _opened(
    place: Place, config: BrokerConfig, host: Host, *, create: bool = False
) -> AsyncIterator[Store]:
    """A session with a store; a file that is missing is made with `create`."""
    if isinstance(place, StoreAddress):
        store: Store = await connector(place, config, host)()
    elif create or not host.disk.exists(socket := f"{place}/{SOCKET_FILE}"):
        store = await _open_file(place, host, create)
    else:
        store = await _connect(socket, config, host, place)
    try:
        yield store
    finally:
        await store.close()


async def _connect(socket: str, config: BrokerConfig, host: Host, directory: str) -> Store:
    """The store that a running local cluster serves; a socket may be left of a killed one."""
    try:
        return await connector(StoreAddress(UNIX, socket), config, host)()
    except StoreUnreachable:
        return await _open_file(directory, host, create=False)


async def _open_file(directory: str, host: Host, create: bool) -> Store:
    path = os.path.join(directory, METADATA_FILE)
    if not host.disk.exists(path):
        if not create:
            raise StorageError(f"{directory} has no {METADATA_FILE}")
        _put_aside(host.disk, path)
    return await EmbeddedStore.open(path, host.disk, ThreadOffload("store", 1), create=create)


def _put_aside(disk: Disk, path: str) -> None:
    for suffix in _BESIDE_METADATA:
        if disk.exists(path + suffix):
            disk.rename(path + suffix, path + suffix + _PUT_ASIDE)


def place_of(text: str, address: StoreAddress | None) -> Place:
    """What was named: an address, or a directory where it is none."""
    if address is None:
        return os.path.abspath(text)
    if address.kind == UNIX:
        raise ConfigError("name the directory of the local cluster, not its socket")
    return address
