"""Writing down how far a data directory's logs have come: one write at a time, off the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.host import Host
from tidelog.model import TopicPartition
from tidelog.storage.data_dir import DataDir


class Checkpoints:
    """The checkpoint that is being written, and the next one that others share."""

    def __init__(
        self,
        data_dir: DataDir,
        host: Host,
        high_watermarks: Callable[[], Mapping[TopicPartition, int]],
    ) -> None:
        self._data_dir = data_dir
        self._host = host
        self._high_watermarks = high_watermarks
        self._running: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None

    async def write(self) -> None:
        """Write recovery points, log starts and high watermarks as they are when this is called.

        One is written at a time; those who ask meanwhile share the next. KafkaError where the
        disk does not take it.
        """
        if self._next is None:
            self._next = asyncio.ensure_future(self._write_after(self._running))
        # One of several who wait may be cancelled: the writing goes on for the others.
        await asyncio.shield(self._next)

    async def _write_after(self, before: asyncio.Future[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        # What changes from here on is for the next one.
        self._running, self._next = self._next, None
        plan = self._data_dir.checkpoint(self._high_watermarks())
        try:
            await self._host.offload.run(plan.run)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"a checkpoint could not be written: {error}"
            ) from error

    async def settle(self) -> None:
        """Return once nothing is being written."""
        for written in (self._running, self._next):
            if written is not None:
                await asyncio.wait([written])
