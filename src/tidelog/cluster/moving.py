"""Moves the metadata of a cluster whose brokers are stopped into an empty store, crash-safe.

    1. `/moving` in the new store, which names the cluster. No broker founds one there any more.
    2. Every node is copied, but for `/controller/epoch` and what ephemeral nodes there were.
    3. The old store is marked as being moved: no broker starts with it any more.
    4. One transaction writes `/controller/epoch` to the new store and removes `/moving`.
    5. The old store is marked as moved.

Brokers start with the old store before 3, with neither before 4, then with the new one. Each step
may be done twice: an interrupted move is run again.

A broker's epoch is a revision, and the new store's revisions may be lower. So every broker is
written as absent: one that registers then is let in with any epoch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.cluster import layout, security_nodes
from tidelog.cluster.filling import fill
from tidelog.errors import StorageError
from tidelog.store.port import NO_SESSION, Create, Delete, Set, Store, Stored

MOVING_HERE: Final = "/moving"


class Moved(NamedTuple):
    """What was moved."""

    cluster_id: str
    topics: int


class _PassedOn(NamedTuple):
    """A store whose metadata is being moved, or was: in the place of the controller's epoch."""

    state: str
    to: str
    # The value that was there before.
    was: bytes


class _Source(NamedTuple):
    """What the old store holds, and how far it has been moved."""

    nodes: Mapping[str, bytes]
    cluster_id: str
    # The value that lets brokers start.
    epoch: bytes
    passed_on: str | None


async def move(source: Store, target: Store, address: str) -> Moved:
    """Move everything from one store to another, whose address brokers will be given.

    StorageError where there is nothing to move, or the new store is not empty.
    """
    held = await _look_at(source, address)
    topics = sum(path.rpartition("/")[0] == layout.TOPICS for path in held.nodes)
    moved = Moved(held.cluster_id, topics)
    if held.passed_on == layout.MOVED:
        return moved
    if not await _is_complete(target, held, address):
        await fill(target, MOVING_HERE, held.nodes)
        await _mark(source, held, layout.MOVING, address)
        await target.multi([Create(layout.CONTROLLER_EPOCH, held.epoch), Delete(MOVING_HERE)])
    await _mark(source, held, layout.MOVED, address)
    return moved


async def read_users(source: Store) -> set[str]:
    """The users whose credentials a store has, for those who must know where these go."""
    tree = await source.tree("/")
    return {
        layout.decode(path, node.value)["user"]
        for path, node in tree.items()
        if path.rpartition("/")[0] == security_nodes.CREDENTIALS
    }


async def _look_at(source: Store, address: str) -> _Source:
    await source.sync()
    tree = await source.tree("/")
    for path in (layout.CLUSTER_ID, layout.CONTROLLER_EPOCH):
        if path not in tree:
            raise StorageError(f"there is no cluster in this store: it has no {path}")
    node = tree[layout.CONTROLLER_EPOCH]
    mark = _passed_on(node.value)
    epoch = node.value
    if mark is not None:
        if mark.to != address:
            raise StorageError(f"this metadata was to go to {mark.to} before, not to {address}")
        epoch = mark.was
    layout.load({**tree, layout.CONTROLLER_EPOCH: node._replace(value=epoch)})
    cluster_id = layout.decode(layout.CLUSTER_ID, tree[layout.CLUSTER_ID].value)["id"]
    nodes = {
        path: _as_absent(path, each)
        for path, each in sorted(tree.items())
        if each.session == NO_SESSION and path != layout.CONTROLLER_EPOCH
    }
    return _Source(nodes, cluster_id, epoch, mark.state if mark else None)


def _as_absent(path: str, node: Stored) -> bytes:
    if path.rpartition("/")[0] != layout.BROKERS_SEEN:
        return node.value
    fields = layout.decode(path, node.value)
    return json.dumps({**fields, "alive": False}, separators=(",", ":")).encode()


async def _is_complete(target: Store, held: _Source, address: str) -> bool:
    """Whether the new store has all of it from an earlier try; StorageError where it is another's.

    An empty one is claimed.
    """
    await target.sync()
    names = await target.children("/")
    if not names:
        await target.multi([Create(MOVING_HERE, layout.encode(cluster=held.cluster_id))])
        return False
    claim = await target.read(MOVING_HERE)
    if claim is not None:
        owner = layout.decode(MOVING_HERE, claim.value)["cluster"]
    else:
        node = await target.read(layout.CLUSTER_ID)
        owner = None if node is None else layout.decode(layout.CLUSTER_ID, node.value)["id"]
    # Without a mark in the old store its brokers may have gone on since.
    is_ours = owner == held.cluster_id and (claim is not None or held.passed_on is not None)
    if not is_ours:
        what = f"the cluster {owner}" if owner else "other data"
        raise StorageError(f"{address} holds {what}; name a chroot that is empty or not there yet")
    return claim is None


async def _mark(source: Store, held: _Source, state: str, address: str) -> None:
    node = await source.read(layout.CONTROLLER_EPOCH)
    assert node is not None
    mark = _passed_on(node.value)
    if mark is None or mark.state != state:
        value = _encode_passed_on(_PassedOn(state, address, held.epoch))
        await source.multi([Set(layout.CONTROLLER_EPOCH, value, node.version)])


def _passed_on(value: bytes) -> _PassedOn | None:
    """What `/controller/epoch` says of a move; None where it says nothing of one."""
    fields = json.loads(value)
    if fields["v"] not in (layout.MOVING, layout.MOVED):
        return None
    return _PassedOn(fields["v"], fields["to"], fields["was"].encode())


def _encode_passed_on(mark: _PassedOn) -> bytes:
    """In place of a version, so that no version of Tidelog starts with the store."""
    fields = {"v": mark.state, "to": mark.to, "was": mark.was.decode()}
    return json.dumps(fields, separators=(",", ":")).encode()
