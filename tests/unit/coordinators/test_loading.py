"""Loading group records from a log that is damaged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tidelog.coordinators.loading import read_records
from tidelog.protocol.batches import Record, encode_batch


def batch(offset: int, value: bytes) -> bytearray:
    return encode_batch([Record(key=b"k", value=value), Record(key=b"k")], base_offset=offset)


def read(data: bytes) -> tuple[int, list[bytes | None], list[int]]:
    slices: Any = SimpleNamespace(read_all=lambda: data)
    following, records, damaged = read_records(slices)
    return following, [record.value for record in records], [each.base_offset for each in damaged]


def test_a_damaged_batch_is_left_out_and_the_others_are_read() -> None:
    middle = batch(2, b"b")
    middle[-1] ^= 1
    data = bytes(batch(0, b"a") + middle + batch(4, b"c"))
    assert read(data) == (6, [b"a", None, b"c", None], [2])


def test_what_a_damaged_batch_says_of_its_end_is_not_believed() -> None:
    last = batch(2, b"b")
    last[23] ^= 0x10  # the highest byte of its last offset delta
    assert read(bytes(batch(0, b"a") + last)) == (3, [b"a", None], [2])
