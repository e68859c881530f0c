"""Writes what was rebuilt of a lost store into an empty one, crash-safe.

    1. `/restoring` in the store, which names the cluster. No broker founds one there any more.
    2. Every node, but for `/controller/epoch`, without which no broker starts.
    3. One transaction writes that one and takes `/restoring` away.

A command that was interrupted is run again: it finds its claim and makes the nodes what they must
be by then. A store that holds anything else is refused.
"""

from __future__ import annotations

from typing import Final

from tidelog.cluster import layout
from tidelog.cluster.filling import fill
from tidelog.cluster.rebuilding import Rebuilt
from tidelog.errors import StorageError
from tidelog.store.port import Create, Delete, Store

RESTORING_HERE: Final = "/restoring"


async def check_empty(target: Store, cluster_id: str) -> None:
    """StorageError where the store holds more than an interrupted restore of this cluster."""
    await target.sync()
    if not await target.children("/"):
        return
    claim = await target.read(RESTORING_HERE)
    if claim is not None:
        owner = layout.decode(RESTORING_HERE, claim.value)["cluster"]
        if owner == cluster_id:
            return
        what = f"an unfinished restore of cluster {owner}"
    else:
        node = await target.read(layout.CLUSTER_ID)
        what = "other data"
        if node is not None:
            what = f"cluster {layout.decode(layout.CLUSTER_ID, node.value)['id']}"
    raise StorageError(
        f"the store holds {what}, and only an empty one can be restored: name another one, or start"
        " the brokers with it as it is"
    )


async def restore(target: Store, rebuilt: Rebuilt) -> None:
    """Have the store hold the cluster; StorageError where it is not empty."""
    cluster_id = rebuilt.report.cluster_id
    await check_empty(target, cluster_id)
    if await target.read(RESTORING_HERE) is None:
        await target.multi([Create(RESTORING_HERE, layout.encode(cluster=cluster_id))])
    await fill(target, RESTORING_HERE, rebuilt.nodes)
    await target.multi(
        [Create(layout.CONTROLLER_EPOCH, rebuilt.controller_epoch), Delete(RESTORING_HERE)]
    )
