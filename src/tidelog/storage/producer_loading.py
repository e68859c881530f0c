"""What a log knows of its producers when it is opened or cut: a snapshot, then a replay behind it.

A snapshot is a shortcut to the state at one offset; what the log holds behind it is replayed. Only
for producers whose batches retention has removed is a snapshot all that there is.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import NamedTuple

from tidelog.errors import StorageError
from tidelog.host.disk import Disk
from tidelog.protocol.batches import BatchHeader
from tidelog.storage.checkpoint import read_bytes
from tidelog.storage.producers import ProducerState, ProducerStates
from tidelog.storage.replay import replay_batch
from tidelog.storage.segment import Segment
from tidelog.storage.snapshot_windows import decode_windows, widen, window_path
from tidelog.storage.snapshots import (
    decode_snapshot,
    snapshot_offsets,
    snapshot_path,
    unlink_snapshot,
)
from tidelog.storage.unlinking import unlink_quietly

logger = logging.getLogger(__name__)

_WIDEN_ENTRIES = 32


class Snapshots(NamedTuple):
    """The snapshots of one log."""

    disk: Disk
    directory: str
    # Where the caller has looked already.
    known: list[int] | None = None

    @property
    def offsets(self) -> list[int]:
        return snapshot_offsets(self.disk, self.directory) if self.known is None else self.known


def reload_producers(
    snapshots: Snapshots,
    segments: list[Segment],
    producers: ProducerStates,
    end_offset: int | None = None,
) -> None:
    """Begin from the newest snapshot that is whole and not above the end, then replay the log."""
    if end_offset is None:
        end_offset = segments[-1].next_offset
    producers.clear(segments[0].base_offset if segments else end_offset)
    disk, directory = snapshots.disk, snapshots.directory
    for offset in reversed(snapshots.offsets):
        path = snapshot_path(directory, offset)
        if offset > end_offset:
            continue
        data = read_bytes(disk, path) or b""
        try:
            states = decode_snapshot(data, path)
        except StorageError as error:
            logger.warning("passing over a producer snapshot error=%s", error)
            unlink_snapshot(disk, directory, offset)
            continue
        is_wide = _put_windows(snapshots, offset, states, data)
        producers.restore(states, offset)
        if not is_wide:
            _widen(segments, producers)
        break
    else:
        if producers.end_offset > 0:
            logger.warning(
                "no producer snapshot, retries of deleted records will be stored again"
                " directory=%s log_start_offset=%d",
                directory,
                producers.end_offset,
            )
    for segment in segments:
        if segment.next_offset > producers.end_offset:
            for position, header in segment.batches_from(segment.find(producers.end_offset)):
                if header.producer_id >= 0:
                    replay_batch(segment, position, header, producers)
    producers.end_offset = end_offset


def _put_windows(
    snapshots: Snapshots, offset: int, states: list[ProducerState], snapshot: bytes
) -> bool:
    """Add the batches that a snapshot does not hold, where a file has them; whether it has."""
    path = window_path(snapshots.directory, offset)
    data = read_bytes(snapshots.disk, path) if states else None
    if data is None:
        return False
    try:
        widen(states, decode_windows(data, snapshot, path))
    except StorageError as error:
        logger.warning("looking for the batches of producers in the log error=%s", error)
        unlink_quietly(snapshots.disk, path)
        return False
    return True


def _widen(segments: list[Segment], producers: ProducerStates) -> None:
    """Find the batches before a producer's last one in the log, where no file has them.

    Without them a retry of a batch in flight at a clean stop would be taken for a gap. Only
    the last stretch before the snapshot is looked at, so that a start stays short.
    """
    place = bisect_left([segment.base_offset for segment in segments], producers.end_offset) - 1
    if place < 0 or not producers.states:
        return
    segment = segments[place]
    found: dict[int, list[BatchHeader]] = {}
    for _, header in segment.batches_from(segment.near_end(_WIDEN_ENTRIES)):
        if header.base_offset >= producers.end_offset:
            break
        if header.producer_id >= 0 and not header.is_control:
            found.setdefault(header.producer_id, []).append(header)
    for producer_id, headers in found.items():
        producers.widen(producer_id, headers)
