"""A broker's entry into the cluster: its ephemeral node, whose revision is the broker epoch.

The node belongs to a session. One that an earlier session of the same broker left behind goes when
that session expires, and is waited for: nobody deletes a node of another session, since the broker
behind it may be alive.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from tidelog.cluster import layout
from tidelog.cluster.image import BrokerRegistration
from tidelog.errors import ErrorCode, KafkaError
from tidelog.store.port import (
    Conflict,
    ConflictReason,
    ConnectionLoss,
    Create,
    Delete,
    Store,
    Stored,
)

_log = logging.getLogger(__name__)

# A session expires some time after its last sign of life, not at once.
_MARGIN_S: Final = 2.0


async def wait_for_id(store: Store, broker_id: int, session_timeout_s: float) -> None:
    """Return once no other session holds the broker's id.

    KafkaError DUPLICATE_BROKER_REGISTRATION, which names the holder, where that outlives a session.
    """
    path = layout.broker_path(broker_id)
    changed = asyncio.Event()
    cancel = store.watch(path, lambda event: changed.set())
    patience_s = session_timeout_s + _MARGIN_S
    try:
        holder = await _holder(store, path)
        while holder is not None:
            _log.warning(
                "broker id %d is held by %s; waiting up to %.0f s for its session to end",
                broker_id, _address(path, holder), patience_s,
            )  # fmt: skip
            changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await changed.wait()
            # Asked again in any case: out of touch, nobody is told.
            known, holder = holder, await _holder(store, path)
            if holder is not None and holder.created == known.created and not changed.is_set():
                raise _duplicate(broker_id, holder)
    finally:
        cancel()


async def _holder(store: Store, path: str) -> Stored | None:
    """The node of the broker, where it is another session's."""
    await store.sync()
    node = await store.read(path)
    return None if node is None or node.session == store.session else node


async def register_broker(store: Store, entry: BrokerRegistration) -> BrokerRegistration:
    """Say that the broker is there, in a new epoch, for as long as the store's session lasts.

    The controller sees it and lets it in; the broker sees that in its image. Calling it again in
    the same session begins a new epoch. KafkaError DUPLICATE_BROKER_REGISTRATION where another
    session holds the id.
    """
    path = layout.broker_path(entry.id)
    await store.sync()
    previous = await store.read(path)
    if previous is not None:
        if previous.session != store.session:
            raise _duplicate(entry.id, previous)
        # From an earlier life in this session: only a new node has a new epoch.
        await store.multi([Delete(path, previous.version)])
    try:
        await store.multi([Create(path, layout.encode_broker(entry), ephemeral=True)])
    except ConnectionLoss:
        # Done or not: the node itself tells, below.
        pass
    except Conflict as conflict:
        if conflict.reason is ConflictReason.NODE_EXISTS:
            raise _duplicate(entry.id, await store.read(path)) from conflict
        raise
    await store.sync()
    node = await store.read(path)
    if node is None:
        raise ConnectionLoss(f"{path} was not created")
    if node.session != store.session:
        raise _duplicate(entry.id, node)
    return entry._replace(epoch=node.created)


def _address(path: str, node: Stored) -> str:
    endpoints = layout.decode(path, node.value).get("endpoints") or [["", "an unknown address", ""]]
    return ":".join(str(each) for each in endpoints[0][1:])


def _duplicate(broker_id: int, holder: Stored | None) -> KafkaError:
    by = "" if holder is None else f" at {_address(layout.broker_path(broker_id), holder)}"
    return KafkaError(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"Broker id {broker_id} is in use by another live broker{by}. Stop that broker, or give"
        " this one a node.id of its own.",
    )
