"""The last five batches of each producer, `%020d.window`, beside the snapshot that it completes.

Kafka's snapshot holds the last batch of each producer alone, so that after a restart a retry of any
batch before it would be taken for a gap, and its client would give up or store it twice. This file
has the others, as of the same log end. It is a cache: where it is missing, damaged or of another
snapshot, the batches are looked for in the log's last stretch (`producer_loading`).

Big-endian: version (int16), CRC-32C of all that follows it (uint32), CRC-32C of the snapshot
(uint32), number of producers (int32), then of each: producer id (int64), epoch (int16), number of
batches (int16), and of each batch, oldest first: first and last sequence (int32), first and last
offset, timestamp (int64). A producer of which the snapshot says all is left out, and a file without
producers is not written.
"""

from __future__ import annotations

import struct
from struct import Struct

from tidelog.errors import StorageError
from tidelog.protocol.checksum import crc32c
from tidelog.storage.producers import BATCHES_KEPT, ProducerBatch, ProducerState, ProducerStates

SUFFIX = ".window"
_VERSION = 1
_HEAD = Struct(">hI")
_SNAPSHOT = Struct(">Ii")
_PRODUCER = Struct(">qhh")
_BATCH = Struct(">iiqqq")


def window_path(directory: str, end_offset: int) -> str:
    return f"{directory}/{end_offset:020d}{SUFFIX}"


def windows_in(names: list[str]) -> set[int]:
    """The log ends that there are windows for, from the names in a directory."""
    return {
        int(name[:20])
        for name in names
        if len(name) == 20 + len(SUFFIX) and name.endswith(SUFFIX) and name[:20].isdigit()
    }


def encode_windows(producers: ProducerStates, snapshot: bytes) -> bytes:
    """The file's bytes; none where the snapshot says all."""
    several = [state for state in producers.states.values() if len(state.batches) > 1]
    if not several:
        return b""
    parts = [_SNAPSHOT.pack(crc32c(snapshot), len(several))]
    for state in several:
        parts.append(_PRODUCER.pack(state.producer_id, state.epoch, len(state.batches)))
        parts += (
            _BATCH.pack(
                each.first_sequence, each.last_sequence, each.first_offset, each.last_offset,
                each.timestamp,
            )
            for each in state.batches
        )  # fmt: skip
    body = b"".join(parts)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_windows(data: bytes, snapshot: bytes, path: str) -> dict[int, ProducerState]:
    """By producer id, the epoch and batches in a file; StorageError where it does not hold."""
    try:
        version, crc = _HEAD.unpack_from(data)
        body = data[_HEAD.size :]
        belongs_to, count = _SNAPSHOT.unpack_from(body)
        if version != _VERSION or crc32c(body) != crc:
            raise StorageError(f"{path} is damaged: version {version}")
        if belongs_to != crc32c(snapshot):
            raise StorageError(f"{path} belongs to another snapshot")
        found, position = {}, _SNAPSHOT.size
        for _ in range(count):
            producer_id, epoch, batches = _PRODUCER.unpack_from(body, position)
            position += _PRODUCER.size
            state = found[producer_id] = ProducerState(producer_id, epoch)
            for _ in range(batches):
                state.batches.append(ProducerBatch(*_BATCH.unpack_from(body, position)))
                position += _BATCH.size
    except struct.error as error:
        raise StorageError(f"{path} is cut off") from error
    return found


def widen(states: list[ProducerState], windows: dict[int, ProducerState]) -> None:
    """Put back the batches before the last one of each producer, as a snapshot has them."""
    for state in states:
        window = windows.get(state.producer_id)
        if window is None or window.epoch != state.epoch or not state.batches:
            continue
        last, known = state.batches[-1], window.batches[-1]
        if (last.last_sequence, last.last_offset) == (known.last_sequence, known.last_offset):
            state.batches = window.batches[-BATCHES_KEPT:]
