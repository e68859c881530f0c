"""The key of a cluster, from which brokers derive how they authenticate to each other.

It lies in the store and nowhere else: not in the image, which answers are made of, not in a log
line, not in a file of a broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.cluster import layout
from tidelog.errors import StorageError
from tidelog.host.random import Random
from tidelog.security.broker_identity import KEY_BYTES, BrokerIdentity
from tidelog.store.port import Create, Operation, Store


def new_key(random: Random) -> Operation:
    """What gives a store its key."""
    key = random.below(1 << (8 * KEY_BYTES)).to_bytes(KEY_BYTES, "big")
    return Create(layout.CLUSTER_KEY, layout.encode(key=key.hex()))


def missing_key(tree: Mapping[str, Any], random: Random) -> list[Operation]:
    """What gives a key to a store of a version that wrote none."""
    return [] if layout.CLUSTER_KEY in tree else [new_key(random)]


async def read_identity(store: Store) -> BrokerIdentity | None:
    """Who the brokers of this store's cluster are; None while no controller has written the key."""
    node = await store.read(layout.CLUSTER_KEY)
    if node is None:
        return None
    try:
        key = bytes.fromhex(layout.decode(layout.CLUSTER_KEY, node.value)["key"])
    except (KeyError, TypeError, ValueError):
        # Without the cause: it may quote the key.
        key = b""
    if len(key) != KEY_BYTES:
        raise StorageError(f"the metadata at {layout.CLUSTER_KEY} is not understood")
    return BrokerIdentity(key)
