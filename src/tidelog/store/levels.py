"""Reading a tree whose nodes are asked for one by one: level by level, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

_READS_IN_FLIGHT: Final = 256

# Reads a node; the paths of its children.
Look = Callable[[str], Awaitable[Sequence[str]]]


async def walk(path: str, look: Look) -> None:
    """Have every node at and below a path looked at."""
    level: Sequence[str] = [path]
    while level:
        level = await _look_at(level, look)


async def _look_at(paths: Sequence[str], look: Look) -> list[str]:
    """Look at some nodes; the paths of their children."""
    below: list[str] = []
    left = iter(paths)

    async def read_some() -> None:
        for at in left:
            below.extend(await look(at))

    count = min(len(paths), _READS_IN_FLIGHT)
    readers = [asyncio.ensure_future(read_some()) for _ in range(count)]
    try:
        await asyncio.gather(*readers)
    finally:
        for reader in readers:
            reader.cancel()
    return below
