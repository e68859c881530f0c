"""One request of a connection and its answer."""

from __future__ import annotations

import asyncio

from tidelog.protocol.primitives import Part


class Exchange:
    """A request whose answer is not there yet, or waits for an earlier one."""

    __slots__ = ("future", "overlaps", "parts")

    def __init__(self) -> None:
        self.parts: list[Part] | None = None
        self.future: asyncio.Future[object] | None = None
        self.overlaps = False
