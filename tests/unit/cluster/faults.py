"""A store that fails on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.unit.cluster.helpers import join, start_controller
from tests.unit.store.helpers import open_store
from tidelog.cluster.controller import Controller
from tidelog.store.embedded import EmbeddedStore
from tidelog.store.port import (
    Cancel,
    Operation,
    SessionCallback,
    SessionState,
    Stored,
    StoreError,
    WatchCallback,
)


class FaultyStore:
    """A store that counts its transactions and spoils those that it is told to spoil."""

    def __init__(self, inner: EmbeddedStore) -> None:
        self.inner = inner
        self.transactions = 0
        self.spoil: Callable[[Sequence[Operation]], StoreError | None] = lambda operations: None
        # Whether the spoilt transaction is done nevertheless.
        self.done_anyway = False
        self.gate: asyncio.Event | None = None

    @property
    def session(self) -> int:
        return self.inner.session

    @property
    def session_state(self) -> SessionState:
        return self.inner.session_state

    @property
    def silent_s(self) -> float:
        return self.inner.silent_s

    async def sync(self) -> None:
        await self.inner.sync()

    async def read(self, path: str) -> Stored | None:
        return await self.inner.read(path)

    async def children(self, path: str) -> list[str]:
        return await self.inner.children(path)

    async def tree(self, path: str) -> Mapping[str, Stored]:
        return await self.inner.tree(path)

    async def multi(self, operations: Sequence[Operation]) -> int:
        self.transactions += 1
        if self.gate is not None:
            await self.gate.wait()
        error = self.spoil(operations)
        if error is not None:
            if self.done_anyway:
                await self.inner.multi(operations)
            raise error
        return await self.inner.multi(operations)

    def watch(self, path: str, callback: WatchCallback) -> Cancel:
        return self.inner.watch(path, callback)

    def watch_session(self, callback: SessionCallback) -> Cancel:
        return self.inner.watch_session(callback)

    async def close(self) -> None:
        await self.inner.close()


def once(error: StoreError) -> Callable[[Sequence[Operation]], StoreError | None]:
    errors = [error]
    return lambda operations: errors.pop() if errors else None


async def faulty(directory: Path) -> tuple[FaultyStore, Controller]:
    store = FaultyStore(await open_store(directory))
    controller = await start_controller(store)
    await join(store, controller, 0)
    store.transactions = 0
    return store, controller
