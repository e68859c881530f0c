"""Updates of the image as bytes: encoded once, however many brokers ask for the same.

After a failover every broker takes the whole image of the new controller, and every change goes to
all of them. The image of a large cluster takes seconds to encode, and some MB: only the last one is
kept, and the last changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from tidelog.cluster import wire
from tidelog.cluster.changes import Update
from tidelog.host.offload import Offload


class EncodedUpdates:
    """What a controller hands out."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._image: tuple[Hashable, asyncio.Future[bytes]] | None = None
        self._changes: tuple[Hashable, asyncio.Future[bytes]] | None = None

    async def encode(self, update: Update, controller_epoch: int) -> bytes:
        """The bytes of an update that comes of the controller of this epoch."""
        if update.image is not None:
            key: Hashable = controller_epoch, update.image.version
            self._image = self._kept(self._image, key, update)
            return await asyncio.shield(self._image[1])
        if not update.batches:
            return wire.encode(update)
        key = controller_epoch, update.batches[0].version, update.batches[-1].version
        self._changes = self._kept(self._changes, key, update)
        return await asyncio.shield(self._changes[1])

    def _kept(
        self,
        kept: tuple[Hashable, asyncio.Future[bytes]] | None,
        key: Hashable,
        update: Update,
    ) -> tuple[Hashable, asyncio.Future[bytes]]:
        """What was encoded for another broker, or what is from now on; a failure is not kept."""
        if kept is not None and kept[0] == key:
            encoded = kept[1]
            if not encoded.done() or (not encoded.cancelled() and encoded.exception() is None):
                return kept
        return key, self._offload.run(wire.encode, update)
