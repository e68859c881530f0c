"""A reader of what only the disk has: others do not wait for its disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.unit.server.test_outbox import Sending, until
from tests.unit.storage.helpers import World, append, batch
from tidelog.config.topic_config import TopicConfig
from tidelog.server.outbox import Outbox
from tidelog.storage.log import Log
from tidelog.testing.disk import SimulatedDisk
from tidelog.testing.virtual_loop import VirtualOffload, virtual_time

PAGE_BYTES = 4096
BATCHES = 300
FETCH_BYTES = 20_000


class PagedDisk(SimulatedDisk):
    """Knows which pages of logs are in memory, and where it was read for want of one."""

    def __init__(self) -> None:
        super().__init__()
        self.in_memory: set[int] = set()
        self.knows_all = True
        self.is_on_thread = False
        self.waits = {True: 0, False: 0}
        self.probes = 0

    def forget(self) -> None:
        self.in_memory.clear()
        self.knows_all = False

    def _missing(self, fd: int, position: int, length: int) -> set[int]:
        if self.knows_all or not self._opened(fd)[1].endswith(".log"):
            return set()
        last = position + max(length, 1) - 1
        return set(range(position // PAGE_BYTES, last // PAGE_BYTES + 1)) - self.in_memory

    def pread(self, fd: int, length: int, position: int) -> bytes:
        missing = self._missing(fd, position, length)
        if missing:
            self.waits[self.is_on_thread] += 1
            self.in_memory |= missing
        return super().pread(fd, length, position)

    def pread_cached_into(self, fd: int, buffer: memoryview, position: int) -> int:
        self.probes += len(buffer) == 1
        if self._missing(fd, position, 1):
            raise BlockingIOError
        return super().pread_cached_into(fd, buffer, position)


class Offload(VirtualOffload):
    def __init__(self, disk: PagedDisk) -> None:
        super().__init__()
        self._disk = disk

    def run(self, function: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        def on_thread() -> Any:
            self._disk.is_on_thread = True
            try:
                return function(*args)
            finally:
                self._disk.is_on_thread = False

        return super().run(on_thread)


def filled() -> tuple[Log, PagedDisk]:
    disk = PagedDisk()
    log = World(disk, config=TopicConfig(segment_bytes=1 << 30)).open()
    for number in range(BATCHES):
        append(log, batch(size=1_000, fill=number))
    return log, disk


async def read_all(log: Log, disk: PagedDisk) -> bytes:
    """What a reader gets that asks for everything, a little at a time."""
    sending = Sending()
    sending.outbox = Outbox(sending.transport, Offload(disk), sending.outbox._scratch, int)
    end, position, total = log.end_position, 0, 0
    while position < BATCHES:
        slices = log.read(position, FETCH_BYTES, end)
        total += slices.size_bytes
        sending.outbox.send([slices])
        await until(lambda: not sending.outbox.is_busy)
        assert len(sending.received) == total
        # Each batch has one record, and all have the same size.
        position = total * BATCHES // log.segments.active.size_bytes
    return sending.received


@virtual_time
async def test_the_loop_waits_for_the_disk_of_a_reader_only_at_its_first_look() -> None:
    log, disk = filled()
    expected = await read_all(log, disk)
    assert len(expected) == log.segments.active.size_bytes > 15 * FETCH_BYTES
    for _ in range(2):
        disk.forget()
        disk.waits = {True: 0, False: 0}
        assert await read_all(log, disk) == expected
        assert disk.waits[False] <= 2, "where the first fetch ends"
        assert disk.waits[True] > 10


@virtual_time
async def test_what_was_never_found_cold_is_not_asked_about() -> None:
    log, disk = filled()
    await read_all(log, disk)
    assert disk.probes == 0 and disk.waits == {True: 0, False: 0}
