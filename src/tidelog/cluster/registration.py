"""A broker's entry into the cluster: its ephemeral node, whose revision is the broker epoch."""

from __future__ import annotations

from tidelog.cluster import layout
from tidelog.cluster.image import BrokerRegistration, Endpoint
from tidelog.errors import ErrorCode, KafkaError
from tidelog.store.port import Conflict, ConflictReason, ConnectionLoss, Create, Delete, Store


async def register_broker(
    store: Store, broker_id: int, endpoints: tuple[Endpoint, ...], rack: str | None = None
) -> BrokerRegistration:
    """Say that the broker is there, in a new epoch, for as long as the store's session lasts.

    The controller sees it and lets it in; the broker sees that in its image. Calling it again in
    the same session begins a new epoch. KafkaError DUPLICATE_BROKER_REGISTRATION where another
    session holds the id.
    """
    registration = BrokerRegistration(broker_id, -1, rack, endpoints)
    return registration._replace(epoch=await _write_node(store, registration))


async def _write_node(store: Store, registration: BrokerRegistration) -> int:
    """Put the ephemeral node there; the revision that created it."""
    path = layout.broker_path(registration.id)
    previous = await store.read(path)
    if previous is not None:
        if previous.session != store.session:
            raise _duplicate(registration.id)
        # From an earlier life in this session: only a new node has a new epoch.
        await store.multi([Delete(path, previous.version)])
    try:
        await store.multi([Create(path, layout.encode_broker(registration), ephemeral=True)])
    except ConnectionLoss:
        # Done or not: the node itself tells, below.
        pass
    except Conflict as conflict:
        if conflict.reason is ConflictReason.NODE_EXISTS:
            raise _duplicate(registration.id) from conflict
        raise
    node = await store.read(path)
    if node is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"{path} could not be created.")
    if node.session != store.session:
        raise _duplicate(registration.id)
    return node.created


def _duplicate(broker_id: int) -> KafkaError:
    return KafkaError(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"Broker id {broker_id} is in use by another live broker.",
    )
