"""The producer snapshots of one log over time.

Promises: once retention has removed a producer's last batch, a snapshot at or below the log's first
segment tells of that producer, whatever was lost before and however the process ends. So that one
is written again where it is missing or damaged, it is replaced rather than written over, and the
one that it takes over from is unlinked after a delay in which the newer one is synced. Each has
beside it, where there is more to say, the windows of its producers (`snapshot_windows`).
"""

from __future__ import annotations

import logging

from tidelog.errors import StorageError
from tidelog.storage.checkpoint import read_bytes, replace_file, write_plainly
from tidelog.storage.flush import FlushState
from tidelog.storage.log_context import LogContext
from tidelog.storage.producers import ProducerStates
from tidelog.storage.snapshot_windows import encode_windows, window_path
from tidelog.storage.snapshots import (
    below_first_segment,
    decode_snapshot,
    encode_snapshot,
    snapshot_offsets,
    snapshot_path,
    unlink_snapshot,
)

logger = logging.getLogger(__name__)


class SnapshotFiles:
    """Writes and drops them; calls raise OSError."""

    __slots__ = ("_context", "_directory", "_flush")

    def __init__(self, context: LogContext, directory: str, flush: FlushState) -> None:
        self._context = context
        self._directory = directory
        self._flush = flush

    def write(self, offset: int, producers: ProducerStates) -> None:
        """Put the producers as of `offset` into a file, which the next flush syncs."""
        assert producers.end_offset == offset, f"{producers.end_offset}, not {offset}"
        data = encode_snapshot(producers)
        windows = encode_windows(producers, data)
        if windows:
            # First: without its windows a snapshot would hide an older one that has them.
            self._put(window_path(self._directory, offset), windows)
        self._put(snapshot_path(self._directory, offset), data)
        self._flush.directory_changed()

    def _put(self, path: str, data: bytes) -> None:
        disk = self._context.disk
        there = read_bytes(disk, path)
        if there is None:
            write_plainly(disk, path, data)
        elif there != data:
            replace_file(disk, path, data)
        self._flush.wrote_once(self._context.files.file(path))

    def keep(self, offset: int, producers: ProducerStates) -> None:
        """See that producers whose batches all lie below `offset` are known without these."""
        path = snapshot_path(self._directory, offset)
        try:
            decode_snapshot(read_bytes(self._context.disk, path) or b"", path)
        except StorageError as error:
            logger.warning("writing a lost producer snapshot again error=%s", error)
            self.write(offset, producers.idle_since(offset))

    def below(self, bases: list[int]) -> list[int]:
        """Those that nobody needs any more once these are the segments' bases."""
        offsets = snapshot_offsets(self._context.disk, self._directory)
        return below_first_segment(offsets, bases)

    def drop_later(self, offsets: list[int], delay_ms: int) -> None:
        """Unlink them after a delay, in which what takes their place is synced."""

        def unlink_all() -> None:
            for offset in offsets:
                unlink_snapshot(self._context.disk, self._directory, offset)

        if offsets:
            self._context.run_later(delay_ms / 1000, unlink_all)

    def drop_above(self, end_offset: int) -> None:
        """Unlink those that stand for more than a log which was cut."""
        disk = self._context.disk
        for offset in snapshot_offsets(disk, self._directory):
            if offset > end_offset:
                unlink_snapshot(disk, self._directory, offset)
        self._flush.directory_changed()
