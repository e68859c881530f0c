"""How much of the disk is free, and who may still write.

| free space | clients' topics | internal topics |
|---|---|---|
| at least the low-water mark (`disk.min.free.bytes`) | written | written |
| below it | refused | written |
| below the last 64 MiB, or half of the mark where that is less | refused | refused |

Commits and group changes go on while producers wait: they are small, and consumers that can commit
let retention make room. What is kept at the end is for the metadata, the checkpoints and a start.
Where other programs have taken that as well, `storage/reserve` gives up its file; the room that
this makes is not for clients.

`DiskSpace` is the one place that asks the disk, and `Partition.append` the one that refuses.
"""

from __future__ import annotations

import logging

from tidelog.cluster.names import INTERNAL_TOPICS
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.host import Host
from tidelog.storage.data_dir import DataDir
from tidelog.storage.reserve import RESERVE_BYTES

_log = logging.getLogger(__name__)

LAST_BYTES = 64 * 1024**2
_LOW_WATER_BYTES_MAX = 2 * 1024**3
_LOW_WATER_SHARE = 20


class Room:
    """Whether there is room on the disk for one kind of topics."""

    __slots__ = ("_topics", "_why", "refusal")

    def __init__(self, topics: str, why: str) -> None:
        self._topics = topics
        self._why = why
        # What an append is told; None while there is room.
        self.refusal: KafkaError | None = None

    def judge(self, free_bytes: int, wanted_bytes: int) -> None:
        """Take or refuse appends from now on."""
        if free_bytes >= wanted_bytes:
            if self.refusal is not None:
                _log.warning("disk has room again, taking writes topics=%s free_bytes=%d",
                             self._topics, free_bytes)  # fmt: skip
            self.refusal = None
        else:
            if self.refusal is None:
                _log.warning("disk low, refusing writes topics=%s free_bytes=%d wanted_bytes=%d",
                             self._topics, free_bytes, wanted_bytes)  # fmt: skip
            self.refusal = KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the disk is nearly full: {free_bytes} bytes free, {wanted_bytes} wanted"
                f" ({self._why})",
            )


class DiskSpace:
    """The free space of one data directory's disk, as it was at the last look."""

    def __init__(self, data_dir: DataDir, host: Host) -> None:
        self._path = data_dir.path
        self._reserve = data_dir.reserve
        self._host = host
        self.clients = Room("clients", "disk.min.free.bytes")
        self.internal = Room("internal", "kept for the broker itself")

    def room_for(self, topic: str) -> Room:
        return self.internal if topic in INTERNAL_TOPICS else self.clients

    async def look(self, min_free_bytes: int) -> None:
        """Measure, keep or give up the reserve, and judge; -1: the mark follows the disk's size."""
        offload, reserve = self._host.offload, self._reserve
        free = self._host.disk.free_bytes(self._path)
        if reserve.held and free < RESERVE_BYTES:
            await offload.run(reserve.release_if_full)
        self.judge(min_free_bytes)
        if not reserve.held and free >= max(self._mark(min_free_bytes), 2 * RESERVE_BYTES):
            await offload.run(reserve.make)

    def judge(self, min_free_bytes: int) -> None:
        """Measure and decide who may write, as a start does before anybody can."""
        low_water = self._mark(min_free_bytes)
        last = min(LAST_BYTES, low_water // 2)
        if self._reserve.released:
            low_water = max(low_water, 2 * RESERVE_BYTES)
        free = self._host.disk.free_bytes(self._path)
        self.clients.judge(free, low_water)
        self.internal.judge(free, last)

    def _mark(self, min_free_bytes: int) -> int:
        if min_free_bytes >= 0:
            return min_free_bytes
        share = self._host.disk.total_bytes(self._path) // _LOW_WATER_SHARE
        return min(_LOW_WATER_BYTES_MAX, share)
