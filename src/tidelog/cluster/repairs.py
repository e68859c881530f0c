"""What a new controller puts right in the store before anything else: pure.

Large work is written in steps, and a controller can end between two of them. What counts is the
number of partitions in the topic's own node: partitions from there on were not added yet or are not
deleted yet, and a topic with none at all was not created yet or is not deleted yet. Nobody has seen
them, or everybody has seen them go, so they are removed.

Stores of the first version keep replicas in the topic's node. They are moved to the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidelog.cluster import layout
from tidelog.store.port import Delete, Operation, Set, Stored


def repairs(tree: Mapping[str, Stored]) -> Iterator[Operation]:
    """What is to be done, in this order; it may be cut into transactions anywhere."""
    beyond = _partitions_of(tree)
    for path, node in tree.items():
        folder, _, name = path.rpartition("/")
        if folder != layout.TOPICS:
            continue
        fields = layout.decode(path, node.value)
        replicas = fields.get("replicas")
        if replicas is not None:
            yield from _with_own_replicas(name, fields, tree)
            continue
        count = fields.get("partitions", 0)
        for partition in sorted(beyond.get(name, ())):
            if partition >= count:
                yield Delete(layout.partition_path(name, partition))
        if count == 0 and "partitions" in fields:
            if f"{path}/partitions" in tree:
                yield Delete(f"{path}/partitions")
            yield Delete(path)


def _partitions_of(tree: Mapping[str, Stored]) -> dict[str, list[int]]:
    """The partitions that have a node, by topic."""
    found: dict[str, list[int]] = {}
    for path in tree:
        folder, _, partition = path.rpartition("/")
        if folder.startswith(f"{layout.TOPICS}/") and folder.endswith("/partitions"):
            name = folder[len(layout.TOPICS) + 1 : -len("/partitions")]
            found.setdefault(name, []).append(int(partition))
    return found


def _with_own_replicas(
    name: str, fields: dict[str, Any], tree: Mapping[str, Stored]
) -> Iterator[Operation]:
    replicas: Sequence[Sequence[int]] = fields["replicas"]
    for partition, each in enumerate(replicas):
        path = layout.partition_path(name, partition)
        state = layout.decode(path, tree[path].value)
        if "replicas" not in state:
            value = layout.encode(**{**state, "v": layout.VALUE_VERSION, "replicas": each})
            yield Set(path, value, tree[path].version)
    value = layout.encode(id=fields["id"], configs=fields["configs"], partitions=len(replicas))
    yield Set(f"{layout.TOPICS}/{name}", value)
