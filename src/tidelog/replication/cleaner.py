"""The log cleaner: compacts the partitions that need it, the dirtiest first, one at a time.

Choosing and swapping happen on the event loop, synchronously; reading keys and rewriting happen on
a thread, on segments that no longer change. What lies in the page cache only is flushed before it
is cleaned, and what was swapped is flushed before it is written down how far a log is clean.

A clean that the world moves on under (the topic deleted, the log cut, the broker stopping) is given
up; one that finds the disk full is tried again at the next turn; a log whose batches cannot be told
apart is left alone until a restart. In every case the log stays as it is and serves on. A batch
that cannot be read is kept as it is, and one line of the broker's log names it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tidelog.errors import KafkaError, PartitionBrokenError
from tidelog.host.host import Host
from tidelog.replication.partition import Partition
from tidelog.storage.data_dir import DataDir
from tidelog.storage.dirt import (
    CleanAbandonedError,
    Dirt,
    UncleanableError,
    measure,
    needs_cleaning,
)
from tidelog.storage.log import Log
from tidelog.storage.segment import DiskFullError, Segment

if TYPE_CHECKING:
    from tidelog.storage.compaction import Clean

_log = logging.getLogger(__name__)

# How many partitions are looked at before others get their turn on the loop.
_LOOK_SLICE = 256
_RANGES_SHOWN = 5
_BROKEN_OFF = (CleanAbandonedError, DiskFullError, KafkaError, OSError, PartitionBrokenError)


@dataclass(slots=True)
class CleanerStats:
    """What the cleaner has done since the start, and what it saw at its last look."""

    cleans: int = 0
    failures: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    max_dirty_ratio: float = 0.0
    last_run_ms: int = 0


class LogCleaner:
    """Cleans the logs of one broker."""

    def __init__(
        self, partitions: Callable[[], Iterable[Partition]], data_dir: DataDir, host: Host
    ) -> None:
        self._partitions = partitions
        self._data_dir = data_dir
        self._host = host
        self._stop = threading.Event()
        self._working: asyncio.Future[Segment | None] | None = None
        self._uncleanable: set[Log] = set()
        # The unreadable batches of each log that were named already.
        self._named: dict[Log, list[tuple[int, int]]] = {}
        self.stats = CleanerStats()

    @property
    def uncleanable(self) -> int:
        """How many logs are left alone because something in them is damaged."""
        return sum(partition.log in self._uncleanable for partition in self._partitions())

    async def run(self, buffer_bytes: int) -> None:
        """Clean until no log needs it; `buffer_bytes` bounds the map of keys."""
        given_up: set[Log] = set()
        while not self._stop.is_set():
            chosen = await self._dirtiest(given_up)
            if chosen is None:
                break
            try:
                with chosen.contained:
                    done = await self._clean(chosen, buffer_bytes)
            except _BROKEN_OFF as error:
                done = False
                if not isinstance(error, CleanAbandonedError):
                    self.stats.failures += 1
                    _log.warning(
                        "clean broken off, will be tried again partition=%s reason=%s",
                        chosen.topic_partition, error,
                    )  # fmt: skip
            if not done:
                given_up.add(chosen.log)
        self.stats.last_run_ms = self._host.clock.wall_ms()

    async def stop(self) -> None:
        """Give up the clean that runs; return when nothing of it does."""
        self._stop.set()
        if self._working is not None:
            await asyncio.wait([self._working])

    async def _dirtiest(self, given_up: set[Log]) -> Partition | None:
        now_ms = self._host.clock.wall_ms()
        found: Partition | None = None
        ratio = highest = -1.0
        present = {partition.log for partition in self._partitions()}
        self._uncleanable &= present
        self._named = {log: ranges for log, ranges in self._named.items() if log in present}
        for number, partition in enumerate(self._partitions()):
            if number % _LOOK_SLICE == _LOOK_SLICE - 1:
                await asyncio.sleep(0)
            log = partition.log
            # What is damaged is mended first: a clean would copy it into a new segment.
            damaged = any(each.damaged for each in log.segments)
            if not log.config.cleanup_compact or log.closed or log.offline or damaged:
                continue
            try:
                with partition.contained:
                    dirt = _rolled_dirt(partition, now_ms)
            except PartitionBrokenError:
                continue
            highest = max(highest, dirt.ratio)
            if log in given_up or log in self._uncleanable or not needs_cleaning(log, dirt):
                continue
            if dirt.ratio > ratio:
                found, ratio = partition, dirt.ratio
        self.stats.max_dirty_ratio = max(highest, 0.0)
        return found

    async def _clean(self, partition: Partition, buffer_bytes: int) -> bool:
        """One clean; False where there was nothing to do, or will not be."""
        dirt = await self._flushed_dirt(partition)
        if dirt is None:
            return False
        # With the first log that needs it.
        from tidelog.storage.compaction import Clean

        started = self._host.clock.monotonic()
        work = Clean(partition.log, dirt, buffer_bytes, self._stop)
        try:
            await self._off_loop(work.read_keys)
            for group in work.groups():
                work.swap(group, await self._off_loop(partial(work.rewrite, group)))
                partition.segments_replaced()
                # Renaming takes a moment: others come before the next group.
                await asyncio.sleep(0)
            work.finish()
        except UncleanableError as error:
            if work.is_stale:
                raise CleanAbandonedError from error
            self._uncleanable.add(partition.log)
            self.stats.failures += 1
            _log.error(
                "log cannot be cleaned partition=%s reason=%s", partition.topic_partition, error
            )
            return False
        except OSError as error:
            if work.is_stale:
                raise CleanAbandonedError from error
            raise
        finally:
            work.release()
        await partition.flush_and_wait()
        await self._host.offload.run(self._data_dir.cleaner_checkpoint().run)
        self._tell(partition, work, self._host.clock.monotonic() - started)
        return True

    async def _flushed_dirt(self, partition: Partition) -> Dirt | None:
        """What can be cleaned, once all that is stable was brought to the disk."""
        log = partition.log
        if log.flushed_offset < partition.last_stable_offset:
            await partition.flush_and_wait()
        if log.closed or log.offline:
            return None
        end = min(partition.last_stable_offset, log.flushed_offset)
        dirt = measure(log, end, self._host.clock.wall_ms())
        return dirt if needs_cleaning(log, dirt) else None

    async def _off_loop(self, work: Callable[[], Segment | None]) -> Segment | None:
        """Await a thread; where the wait is cancelled the thread is told to stop, and waited for.

        What it made meanwhile is discarded then, since nobody is there to swap it in.
        """
        future = self._working = self._host.offload.run(work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._stop.set()
            with suppress(Exception):
                unwanted = await future
                if unwanted is not None:
                    unwanted.discard()
            raise
        finally:
            self._working = None

    def _tell(self, partition: Partition, work: Clean, seconds: float) -> None:
        result, counts, stats = work.result, work.counts, self.stats
        stats.cleans += 1
        stats.bytes_read += result.bytes_read
        stats.bytes_written += result.bytes_written
        _log.info(
            "log cleaned partition=%s first_dirty_offset=%d bytes=%d to=%d segments=%d to=%d"
            " records=%d to=%d seconds=%.2f",
            partition.topic_partition, result.first_dirty_offset, result.bytes_read,
            result.bytes_written, result.segments_before, result.segments_after,
            counts.records_read, counts.records_kept, seconds,
        )  # fmt: skip
        if counts.without_key:
            _log.warning(
                "records without a key were dropped partition=%s count=%d",
                partition.topic_partition, counts.without_key,
            )  # fmt: skip
        unreadable = counts.unreadable
        if unreadable and self._named.get(partition.log) != unreadable:
            self._named[partition.log] = unreadable
            shown = ",".join(f"{first}-{last}" for first, last in unreadable[:_RANGES_SHOWN])
            _log.warning(
                "batches cannot be read and were kept as they are partition=%s count=%d offsets=%s",
                partition.topic_partition, len(unreadable), shown,
            )  # fmt: skip


def _rolled_dirt(partition: Partition, now_ms: int) -> Dirt:
    with suppress(KafkaError):
        # A full disk: what is sealed already can be cleaned all the same.
        partition.log.roll_if_due(now_ms)
    return measure(partition.log, partition.last_stable_offset, now_ms)
