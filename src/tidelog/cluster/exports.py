"""The metadata of a cluster as a file, to rebuild a lost store from: `tidelog cluster export`.

    {"format": "tidelog-metadata", "version": 1, "cluster_id": "22 characters",
     "sha256": "of the nodes, without spaces and sorted", "nodes": {"/topics/orders": {...}, ...}}

The nodes are those of the store (`layout`), but for what is ephemeral and the cluster's key: a new
key serves as well. A node without a value is null. The credentials of users are among them, without
which nobody could log in after a restore, so the file is a secret: only its owner can read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

from tidelog.cluster import layout
from tidelog.cluster.image import MetadataImage
from tidelog.errors import StorageError
from tidelog.store.port import NO_SESSION, Store, Stored

_FORMAT: Final = "tidelog-metadata"
_VERSION: Final = 1
# A controller that writes all the time is a controller that can be read from in between.
_TRIES: Final = 20


class Export(NamedTuple):
    """What a store held at one moment: its nodes' values by path, and what they say."""

    nodes: Mapping[str, bytes]
    image: MetadataImage


async def read_export(store: Store) -> Export:
    """What a store holds now, while a controller may write to it; StorageError without a cluster.

    Every write moves the sequence, so what was read between two equal ones is of one moment.
    """
    for _ in range(_TRIES):
        await store.sync()
        before = await store.read(layout.CONTROLLER_SEQUENCE)
        tree = await store.tree("/")
        after = await store.read(layout.CONTROLLER_SEQUENCE)
        if before == after:
            return _export_of(
                {
                    path: node.value
                    for path, node in sorted(tree.items())
                    if node.session == NO_SESSION and path != layout.CLUSTER_KEY
                }
            )
    raise StorageError("the metadata changes faster than it can be read; try again")


def encode_export(export: Export) -> bytes:
    nodes = {path: json.loads(value) if value else None for path, value in export.nodes.items()}
    fields = {
        "format": _FORMAT,
        "version": _VERSION,
        "cluster_id": export.image.cluster_id,
        "sha256": _digest(nodes),
        "nodes": nodes,
    }
    return json.dumps(fields, indent=1).encode() + b"\n"


def decode_export(data: bytes, path: str) -> Export:
    """What a file says; StorageError names it where it is damaged, or not one of ours."""
    try:
        fields = json.loads(data)
        if fields["format"] != _FORMAT:
            raise ValueError(f"its format is {fields['format']!r}")
        if fields["version"] != _VERSION:
            raise StorageError(
                f"{path} has version {fields['version']}, this version of Tidelog reads"
                f" {_VERSION}; use the version that wrote it"
            )
        nodes, digest = fields["nodes"], fields["sha256"]
        if _digest(nodes) != digest:
            raise ValueError("its checksum does not match")
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} is damaged, or not an export of metadata: {error}") from error
    return _export_of({path: _encoded(value) for path, value in sorted(nodes.items())})


def _export_of(nodes: dict[str, bytes]) -> Export:
    if layout.CONTROLLER_EPOCH not in nodes:
        raise StorageError(
            f"there is no cluster in this store: it has no {layout.CONTROLLER_EPOCH}"
        )
    tree = {path: Stored(value, 0, 0, 0, NO_SESSION) for path, value in nodes.items()}
    return Export(nodes, layout.load(tree).image)


def _encoded(value: Any) -> bytes:
    return b"" if value is None else json.dumps(value, separators=(",", ":")).encode()


def _digest(nodes: Mapping[str, Any]) -> str:
    text = json.dumps(nodes, separators=(",", ":"), sort_keys=True)
    return sha256(text.encode()).hexdigest()
