"""The newest offset of each key in a stretch of a log, in bounded memory.

Keys of up to 15 bytes stand for themselves, longer ones for a digest of 16 bytes, so that two keys
are taken for one with a chance below any disk's error rate. The map is split into small ones: a
large dictionary that grows would hold the interpreter, and so the event loop, for long.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from tidelog._kernels import records as kernel

# Measured: 145 to 150 for key, offset and their share of the tables; the rest is for growth.
ENTRY_BYTES = 192
_SHARDS = 256
# High bits: a dictionary goes by the low ones, which must differ within a shard.
_SHARD_SHIFT = 40
_SHARD_MASK = _SHARDS - 1
_RAW_KEY_BYTES = 15
_DIGEST_BYTES = 16
# Records between two chances for others to run.
_STRETCH = 512


class OffsetMap:
    """Key to newest offset; `breathe` is called after every few records."""

    __slots__ = ("_breathe", "_shards", "entries_max", "next_offset")

    def __init__(self, buffer_bytes: int, breathe: Callable[[], None]) -> None:
        self.entries_max = max(buffer_bytes // ENTRY_BYTES, 1)
        # The end of what was put in: records from here on are not judged by this map.
        self.next_offset = -1
        self._breathe = breathe
        self._shards: list[dict[bytes, int]] = [{} for _ in range(_SHARDS)]

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def put(self, payload: bytes, rows: memoryview, base_offset: int) -> None:
        """Note the records of one batch, as the kernel has indexed them."""
        shards = self._shards
        fields = kernel.ROW_FIELDS
        for start in range(0, len(rows), _STRETCH * fields):
            part = rows[start : start + _STRETCH * fields].tolist()
            for delta, position, length in zip(
                part[kernel.OFFSET_DELTA :: fields],
                part[kernel.KEY_POSITION :: fields],
                part[kernel.KEY_LENGTH :: fields],
                strict=True,
            ):
                if length < 0:
                    continue
                key = payload[position : position + length]
                if length > _RAW_KEY_BYTES:
                    key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
                shards[hash(key) >> _SHARD_SHIFT & _SHARD_MASK][key] = base_offset + delta
            self._breathe()

    def newest(self, payload: bytes, rows: memoryview) -> list[int]:
        """For each record the newest offset of its key; -1 where the key is not here."""
        shards = self._shards
        fields = kernel.ROW_FIELDS
        found: list[int] = []
        for start in range(0, len(rows), _STRETCH * fields):
            part = rows[start : start + _STRETCH * fields].tolist()
            for position, length in zip(
                part[kernel.KEY_POSITION :: fields], part[kernel.KEY_LENGTH :: fields], strict=True
            ):
                key = payload[position : position + max(length, 0)]
                if length > _RAW_KEY_BYTES:
                    key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
                found.append(shards[hash(key) >> _SHARD_SHIFT & _SHARD_MASK].get(key, -1))
            self._breathe()
        return found
