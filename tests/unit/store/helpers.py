"""A store on a real file, opened and closed inside one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tidelog.host.disk import SystemDisk
from tidelog.host.offload import ThreadOffload
from tidelog.store.embedded import EmbeddedStore

FILE = "metadata.db"


async def open_store(directory: Path, *, create: bool = True) -> EmbeddedStore:
    path = str(directory / FILE)
    return await EmbeddedStore.open(path, SystemDisk(), ThreadOffload("store", 1), create=create)


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[EmbeddedStore]:
    store = await open_store(directory)
    try:
        yield store
    finally:
        await store.close()
