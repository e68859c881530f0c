"""Producer ids out of durable blocks: no id is given twice, whatever crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tidelog.cluster.commands import ProducerIdBlock
from tidelog.errors import ErrorCode, KafkaError


class ProducerIdMissingError(KafkaError):
    """A new producer id is needed and there is none at hand: fetch some, and ask again."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer id is at hand")


class ProducerIds:
    """Hands out the ids of the current block and fetches the next one when it is spent."""

    def __init__(self, allocate_block: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate_block = allocate_block
        self._next = 0
        self._end = 0
        # Several producers may find the block spent at once: one of them asks for the next.
        self._allocating = asyncio.Lock()

    def take(self) -> int | None:
        """The next id, or None where the block is spent."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    async def refill(self) -> None:
        """Have ids at hand; KafkaError where none could be had."""
        async with self._allocating:
            if self._next == self._end:
                block = await self._allocate_block()
                self._next, self._end = block.first, block.first + block.size

    async def take_from_new_block(self) -> int:
        """The next id, after a new block became durable; KafkaError where none could be had."""
        async with self._allocating:
            taken = self.take()
            if taken is None:
                block = await self._allocate_block()
                self._next, self._end = block.first + 1, block.first + block.size
                taken = block.first
            return taken
