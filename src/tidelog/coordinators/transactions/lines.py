"""What waits for each other broker: one request at a time to each, with all that waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Lines(Generic[T]):
    """`send` gets the broker and at most `at_once` of what waits; it answers for its failures."""

    def __init__(
        self, name: str, at_once: int, send: Callable[[int, list[T]], Awaitable[None]]
    ) -> None:
        self._name = name
        self._at_once = at_once
        self._send = send
        self._waiting: dict[int, dict[T, None]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def put(self, broker_id: int, item: T) -> None:
        self._waiting.setdefault(broker_id, {})[item] = None
        if broker_id not in self._tasks:
            name = f"{self._name}-{broker_id}"
            self._tasks[broker_id] = asyncio.create_task(self._run(broker_id), name=name)

    async def _run(self, broker_id: int) -> None:
        waiting = self._waiting[broker_id]
        try:
            while waiting:
                some = [*waiting][: self._at_once]
                for item in some:
                    del waiting[item]
                try:
                    await self._send(broker_id, some)
                except Exception:
                    _log.exception("%s not sent to broker %d", self._name, broker_id)
        finally:
            del self._waiting[broker_id], self._tasks[broker_id]

    async def close(self) -> list[T]:
        """Send no more; what was still waiting."""
        left = [item for waiting in self._waiting.values() for item in waiting]
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return left
