"""The last changes that a controller made, for brokers that follow it."""

from __future__ import annotations

import asyncio
from collections import deque

from tidelog.cluster.changes import ChangeBatch, Update
from tidelog.cluster.image import MetadataImage


class ChangeHistory:
    """Whole transactions, up to the size of all; who is further behind takes a whole image."""

    def __init__(self, start: int, size_max: int) -> None:
        self._start = start
        self._size_max = size_max
        self._batches: deque[ChangeBatch] = deque()
        self._size = 0
        self._changed = asyncio.Event()
        # The whole image that somebody was given last.
        self._handed: MetadataImage | None = None

    def add(self, batch: ChangeBatch) -> None:
        self._batches.append(batch)
        self._size += batch.size
        while self._size > self._size_max:
            dropped = self._batches.popleft()
            self._size -= dropped.size
            self._start = dropped.version
        self.wake()

    def wake(self) -> None:
        """Have everybody look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next change; False where the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def whole(self, version: int, image: MetadataImage) -> Update:
        """The image, or an earlier one, not before `version`, from which the changes lead on.

        Under a new controller all brokers ask at about the same time, while much changes: they are
        given the same image, so that it is encoded once.
        """
        handed = self._handed
        if handed is None or handed.version < max(version, self._start):
            handed = self._handed = image
        return Update(image=handed)

    def after(self, version: int, image: MetadataImage) -> Update:
        """What leads from `version` to the image."""
        if version < self._start:
            return Update(image=image)
        return Update(batches=tuple(each for each in self._batches if each.version > version))
