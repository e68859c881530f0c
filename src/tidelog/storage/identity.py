"""Whose data directory it is: `meta.properties`, in Kafka's format, version 1."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from tidelog.errors import StorageError
from tidelog.host.disk import Disk
from tidelog.storage.checkpoint import format_id, parse_id, read_bytes

META = "meta.properties"


class DirectoryIdentity(NamedTuple):
    """A directory belongs to one node of one cluster; its own id tells it from an emptied one."""

    cluster_id: str
    node_id: int
    directory_id: UUID


def encode_identity(identity: DirectoryIdentity) -> bytes:
    """The content of `meta.properties`."""
    return (
        f"#\ncluster.id={identity.cluster_id}\ndirectory.id={format_id(identity.directory_id)}\n"
        f"node.id={identity.node_id}\nversion=1\n"
    ).encode()


def read_identity(disk: Disk, path: str) -> DirectoryIdentity | None:
    """Whose directory it is; None where nobody has claimed it, StorageError where unreadable."""
    file = f"{path}/{META}"
    data = read_bytes(disk, file)
    if data is None:
        return None
    try:
        lines = [line.strip() for line in data.decode().splitlines()]
        fields = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        if fields["version"] != "1":
            raise ValueError(f"unknown version {fields['version']}")
        return DirectoryIdentity(
            fields["cluster.id"], int(fields["node.id"]), parse_id(fields["directory.id"])
        )
    except (ValueError, KeyError) as error:
        raise StorageError(f"{file} is damaged or of another version: {error}") from error
