"""Fetched chunks made by hand, with every kind of record in them."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.client.fetcher import Chunk
from tidelog.model import Codec, TopicPartition
from tidelog.protocol.batches import Record, encode_batch

PARTITION = TopicPartition("orders", 3)

RECORDS = [
    Record(0, 1_700_000_000_000, b"k0", b"v0", []),
    Record(1, 1_700_000_000_001, None, b"v1", [("trace", b"a"), ("empty", None)]),
    Record(2, 1_700_000_000_005, b"", None, []),
    Record(3, 1_700_000_000_003, b"k3", b"", [("trace", b"")]),
]


def batch(records: Sequence[Record], base_offset: int, codec: Codec = Codec.NONE) -> bytes:
    return bytes(encode_batch(records, codec=codec, base_offset=base_offset, leader_epoch=0))


def chunk(data: bytes, *, fetched_at: int = 0, aborted: Sequence[tuple[int, int]] = ()) -> Chunk:
    return Chunk(PARTITION, fetched_at, 1 << 40, memoryview(data), list(aborted))
