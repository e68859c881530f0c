"""The directory of a local cluster: `DIR/0`, `DIR/1`, … and `local-cluster.json`, which says so.

    {"v":1,"brokers":3,"state":"ready"}

The state is `founding` until the shared store exists, `adopting` while the files of a broker that
was alone here are being moved into `DIR/0`, and `ready` from then on. A broker by itself refuses
such a directory: its data is no longer where it would look.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from tidelog.errors import StorageError
from tidelog.host.disk import Disk
from tidelog.storage.checkpoint import read_bytes, write_durably

MARKER: Final = "local-cluster.json"
# On which the parent serves the shared store, where the name is not too long for a socket.
SOCKET_FILE: Final = "store.sock"
FOUNDING: Final = "founding"
ADOPTING: Final = "adopting"
READY: Final = "ready"
_VERSION: Final = 1


class LocalCluster(NamedTuple):
    """How many brokers the directory holds, and how far it is prepared."""

    brokers: int
    state: str


def read_local_cluster(disk: Disk, directory: str) -> LocalCluster | None:
    """What the directory says of itself; None where it is no local cluster's."""
    path = f"{directory}/{MARKER}"
    data = read_bytes(disk, path)
    if data is None:
        return None
    try:
        fields = json.loads(data)
        if fields["v"] != _VERSION:
            raise ValueError(f"unknown version {fields['v']}")
        return LocalCluster(int(fields["brokers"]), str(fields["state"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} is damaged or of another version: {error}") from error


def write_local_cluster(disk: Disk, directory: str, cluster: LocalCluster) -> None:
    fields = {"v": _VERSION, **cluster._asdict()}
    write_durably(disk, f"{directory}/{MARKER}", json.dumps(fields).encode() + b"\n")


def refuse_local_cluster(disk: Disk, directory: str) -> None:
    """StorageError where the directory holds brokers and is not one broker's own."""
    found = read_local_cluster(disk, directory)
    if found is not None:
        raise StorageError(
            f"{directory} holds the {found.brokers} brokers of a local cluster;"
            f" start them with tidelog up --brokers {found.brokers} --data-dir {directory}"
        )
