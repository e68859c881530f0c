"""The directory of `tidelog up --brokers N`: the shared store in it, a directory for each broker.

A directory in which one broker ran alone becomes broker 0's: all its files but the metadata are
renamed into `DIR/0`, and its metadata is the store that the brokers share. A crash at any moment
leaves a directory with which the next start goes on: the marker is there before the first rename,
and says so until the last one is durable.
"""

from __future__ import annotations

import os
from typing import Final

from tidelog.errors import StorageError
from tidelog.host.disk import Disk
from tidelog.storage.data_dir import LOCK, make_durably
from tidelog.storage.identity import META, read_identity
from tidelog.storage.local_cluster import (
    ADOPTING,
    FOUNDING,
    MARKER,
    READY,
    SOCKET_FILE,
    LocalCluster,
    read_local_cluster,
    write_local_cluster,
)

METADATA_FILE: Final = "metadata.db"


class ClusterDirectory:
    """The directory, locked from `open` to `close`."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._lock_fd = -1
        self._brokers = 0
        self.is_new = False

    @property
    def metadata_path(self) -> str:
        return f"{self.path}/{METADATA_FILE}"

    def broker_path(self, node_id: int) -> str:
        return f"{self.path}/{node_id}"

    def open(self, brokers: int) -> None:
        """Make the directory one of so many brokers; StorageError where it cannot be. Blocks."""
        disk = self._disk
        make_durably(disk, self.path)
        self._lock()
        try:
            found = read_local_cluster(disk, self.path)
            if found is None:
                found = self._look(brokers)
                write_local_cluster(disk, self.path, found)
            self._brokers = max(brokers, found.brokers)
            if brokers < found.brokers:
                raise StorageError(
                    f"{self.path} holds {found.brokers} brokers; start them all with"
                    f" --brokers {found.brokers}: what {found.brokers - brokers} of them hold would"
                    " be missing"
                )
            if found.state == ADOPTING:
                self._adopt()
            self.is_new = found.state == FOUNDING
            if not self.is_new and found != LocalCluster(self._brokers, READY):
                self.confirm()
        except BaseException:
            self.close()
            raise

    def confirm(self) -> None:
        """The shared store exists: from now on it must. Blocks."""
        write_local_cluster(self._disk, self.path, LocalCluster(self._brokers, READY))

    def close(self) -> None:
        if self._lock_fd >= 0:
            self._disk.close(self._lock_fd)
            self._lock_fd = -1

    def _lock(self) -> None:
        try:
            self._lock_fd = self._disk.lock(f"{self.path}/{LOCK}")
        except BlockingIOError:
            raise StorageError(f"{self.path} is in use by another process; stop that one") from None

    def _look(self, brokers: int) -> LocalCluster:
        """What has to be done to a directory that is no cluster's yet."""
        disk, path = self._disk, self.path
        identity = read_identity(disk, path)
        has_metadata = disk.exists(self.metadata_path)
        if identity is None and not has_metadata:
            return LocalCluster(brokers, FOUNDING)
        if identity is None:
            # A broker that was killed in its first moments, before it held anything.
            return LocalCluster(brokers, READY)
        if not has_metadata:
            raise StorageError(
                f"{path} is the directory of broker {identity.node_id} of a cluster whose metadata"
                " is elsewhere; give --data-dir another directory"
            )
        if identity.node_id != 0:
            raise StorageError(
                f"{path} is the directory of broker {identity.node_id}; only broker 0's can become"
                " a local cluster's"
            )
        if disk.exists(self.broker_path(0)):
            raise StorageError(f"{self.broker_path(0)} is in the way; move it out of {path}")
        return LocalCluster(brokers, ADOPTING)

    def _adopt(self) -> None:
        """Move what one broker left into the directory of broker 0, or go on with it."""
        disk, target = self._disk, self.broker_path(0)
        disk.make_dir(target)
        disk.sync_dir(self.path)
        moved = [name for name in sorted(disk.list_dir(self.path)) if not self._stays(name)]
        # Whose directory it is goes last: with it, everything is there.
        for name in sorted(moved, key=lambda name: name == META):
            disk.rename(f"{self.path}/{name}", f"{target}/{name}")
        disk.sync_dir(target)
        disk.sync_dir(self.path)

    def _stays(self, name: str) -> bool:
        if name in (LOCK, MARKER, SOCKET_FILE, os.path.basename(self.broker_path(0))):
            return True
        return name.startswith((METADATA_FILE, f"{MARKER}."))
