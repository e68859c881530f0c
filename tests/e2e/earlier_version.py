"""A data directory as the version before clusters left it, made of one that today's broker left.

That version knew one broker. Its metadata says version 1: a topic lists its replicas, a partition's
state does not, and no node tells of brokers that were seen, of a key, of settings of groups, of
users, rules and quotas. The offsets topic stores a minimum of one in-sync replica. There is no
`broker-life`, and the marker of a clean stop names no broker epoch.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tidelog.host.disk import SystemDisk
from tidelog.host.offload import ThreadOffload
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.port import Delete, Operation, Set, Stored

OFFSETS_TOPIC = "__consumer_offsets"
_CAME_LATER = (
    "/brokers/seen/", "/brokers/seen", "/cluster/key", "/config/groups", "/security", "/quotas",
)  # fmt: skip


def make_earlier(directory: Path, *, killed: bool = False) -> None:
    """Turn the directory of a stopped broker into one of the earlier version, stopped or killed."""
    asyncio.run(_rewrite_metadata(directory / "metadata.db"))
    (directory / "broker-life").unlink()
    marker = directory / ".kafka_cleanshutdown"
    marker.unlink()
    if not killed:
        marker.write_text('{"version":0,"brokerEpoch":-1}')


async def _rewrite_metadata(path: Path) -> None:
    store = await EmbeddedStore.open(str(path), SystemDisk(), ThreadOffload("store", 1))
    try:
        tree = await store.tree("/")
        await store.multi([*_removals(tree), *_values(tree)])
    finally:
        await store.close()


def _removals(tree: Mapping[str, Stored]) -> Iterator[Operation]:
    # Children first.
    for path in sorted(tree, reverse=True):
        if path.startswith(_CAME_LATER):
            yield Delete(path)


def _values(tree: Mapping[str, Stored]) -> Iterator[Operation]:
    for path, node in tree.items():
        if node.value and not path.startswith(_CAME_LATER):
            value = json.loads(node.value)
            assert value["v"] in (2, 3), f"{path} is of a version that is not known here: {value}"
            value["v"] = 1
            _change(path, value, tree)
            yield Set(path, json.dumps(value, separators=(",", ":")).encode())


def _change(path: str, value: dict[str, Any], tree: Mapping[str, Stored]) -> None:
    match path.split("/")[1:]:
        case ["topics", _, "partitions", _]:
            del value["replicas"]
        case ["topics", name]:
            states = [f"{path}/partitions/{each}" for each in range(value.pop("partitions"))]
            value["replicas"] = [json.loads(tree[each].value)["replicas"] for each in states]
            if name == OFFSETS_TOPIC:
                value["configs"]["min.insync.replicas"] = "1"
