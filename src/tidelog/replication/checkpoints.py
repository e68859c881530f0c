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
        # Who is told when the next one is written.
        self._told: list[Callable[[], None]] = []

    async def write(self) -> None:
        """Write recovery points, log starts and high watermarks as they are when this is called.

        One is written at a time; those who ask meanwhile share the next. KafkaError where the
        disk does not take it.
        """
        # One of several who wait may be cancelled: the writing goes on for the others.
        await asyncio.shield(self._begin())

    def write_soon(self, then: Callable[[], None]) -> None:
        """As `write`, for those who do not wait: `then` is called once it is written, by the next
        one that the disk takes."""
        self._told.append(then)
        self._begin().add_done_callback(_look_at)

    def _begin(self) -> asyncio.Future[None]:
        if self._next is None:
            self._next = asyncio.ensure_future(self._write_after(self._running))
        return self._next

    async def _write_after(self, before: asyncio.Future[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        # What changes from here on is for the next one.
        self._running, self._next = self._next, None
        told, self._told = self._told, []
        plan = self._data_dir.checkpoint(self._high_watermarks())
        try:
            await self._host.offload.run(plan.run)
        except OSError as error:
            self._told[:0] = told
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"a checkpoint could not be written: {error}"
            ) from error
        for then in told:
            then()

    async def settle(self) -> None:
        """Return once nothing is being written."""
        for written in (self._running, self._next):
            if written is not None:
                await asyncio.wait([written])


def _look_at(written: asyncio.Future[None]) -> None:
    """Where it failed, the one that is written now and then is the next to be tried."""
    if not written.cancelled():
        written.exception()
