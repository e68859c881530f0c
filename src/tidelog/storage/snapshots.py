"""Producer-state snapshot files, `%020d.snapshot`, in Kafka's format, version 1, big-endian:

version (int16), CRC-32C of all that follows it (uint32), number of producers (int32), then of each:
producer id (int64), epoch (int16), last sequence (int32), last offset (int64), offset delta of the
last batch (int32), its timestamp (int64), coordinator epoch (int32), first offset of the open
transaction or -1 (int64). The timestamp is the wall time at which the batch was appended, by which
a producer ages; Kafka puts the time of the events there.

A snapshot is named by the log end that it stands for and holds only the last batch of each
producer; `snapshot_windows` has the others. It is a shortcut: one that is damaged is passed over
for an older one and a longer replay. Where retention has removed the batches, the newest one at or
below the log's first segment is more than that: it alone tells of their producers (see
`snapshot_files`).
"""

from __future__ import annotations

from struct import Struct

from tidelog.errors import StorageError
from tidelog.host.disk import Disk
from tidelog.protocol.checksum import crc32c
from tidelog.storage.producers import ProducerBatch, ProducerState, ProducerStates
from tidelog.storage.snapshot_windows import window_path, windows_in
from tidelog.storage.unlinking import unlink_quietly

SUFFIX = ".snapshot"
_VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_SEQUENCES = 2**31


def snapshot_path(directory: str, end_offset: int) -> str:
    return f"{directory}/{end_offset:020d}{SUFFIX}"


def _is_snapshot(name: str) -> bool:
    return len(name) == 20 + len(SUFFIX) and name.endswith(SUFFIX) and name[:20].isdigit()


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """The log ends that a directory has producer snapshots for, rising."""
    return snapshots_in(disk.list_dir(directory))


def snapshots_in(names: list[str]) -> list[int]:
    """As `snapshot_offsets`, from the names in the directory."""
    return sorted(int(name[:20]) for name in names if _is_snapshot(name))


def stray_snapshots(directory: str, bases: list[int], names: list[str]) -> list[str]:
    """All but those that segments begin with, and the newest: each clean stop leaves one.

    With them, what completes a snapshot that is not kept: Kafka may have removed it by itself.
    """
    offsets = snapshots_in(names)
    between = [each for each in offsets[:-1] if each > bases[0] and each not in bases]
    gone = (*below_first_segment(offsets, bases), *between)
    unused = windows_in(names).difference({*offsets}.difference(gone))
    return [
        *(snapshot_path(directory, offset) for offset in gone),
        *(window_path(directory, offset) for offset in sorted(unused)),
    ]


def unlink_snapshot(disk: Disk, directory: str, end_offset: int) -> None:
    """Remove a snapshot and what completes it."""
    unlink_quietly(disk, window_path(directory, end_offset))
    unlink_quietly(disk, snapshot_path(directory, end_offset))


def below_first_segment(offsets: list[int], bases: list[int]) -> list[int]:
    """The snapshots that nobody needs: all below the newest one at or below the first segment.

    That one alone tells of producers whose batches retention has removed.
    """
    return [each for each in offsets if each <= bases[0]][:-1]


def encode_snapshot(producers: ProducerStates) -> bytes:
    """The file's bytes."""
    states = producers.states
    parts = [_COUNT.pack(len(states))]
    for state in states.values():
        last = state.batches[-1] if state.batches else None
        parts.append(
            _ENTRY.pack(
                state.producer_id,
                state.epoch,
                last.last_sequence if last else -1,
                last.last_offset if last else -1,
                last.last_offset - last.first_offset if last else 0,
                state.last_append_ms,
                state.coordinator_epoch,
                state.transaction_first_offset,
            )
        )
    body = b"".join(parts)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, path: str) -> list[ProducerState]:
    """The producers in a file; StorageError where it is damaged in any way."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise StorageError(f"{path} is too short for a producer snapshot")
    version, crc = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    (count,) = _COUNT.unpack_from(body)
    entries = body[_COUNT.size :]
    if version != _VERSION or crc32c(body) != crc or len(entries) != count * _ENTRY.size:
        raise StorageError(f"{path} is damaged: version {version}, {count} producers")
    states = []
    for fields in _ENTRY.iter_unpack(entries):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator, first = (
            fields
        )
        batches = []
        if last_offset >= 0:
            first_sequence = (last_sequence - delta) % _SEQUENCES if last_sequence >= 0 else -1
            batches.append(
                ProducerBatch(
                    first_sequence, last_sequence, last_offset - delta, last_offset, timestamp
                )
            )
        states.append(ProducerState(producer_id, epoch, batches, coordinator, timestamp, first))
    return states
