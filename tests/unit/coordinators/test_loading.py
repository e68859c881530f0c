"""Loading group records from a log that is damaged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tidelog.coordinators.loading import read_records
from tidelog.protocol.batches import (
    CONTROL_COMMIT,
    Record,
    encode_batch,
    encode_control_batch,
)


def batch(offset: int, value: bytes) -> bytearray:
    return encode_batch([Record(key=b"k", value=value), Record(key=b"k")], base_offset=offset)


def read(data: bytes) -> tuple[int, list[bytes | None], list[int]]:
    slices: Any = SimpleNamespace(read_all=lambda: data)
    following, stored, damaged = read_records(slices)
    values = [each.record.value for each in stored if each.record is not None]
    return following, values, [each.base_offset for each in damaged]


def test_a_damaged_batch_is_left_out_and_the_others_are_read() -> None:
    middle = batch(2, b"b")
    middle[-1] ^= 1
    data = bytes(batch(0, b"a") + middle + batch(4, b"c"))
    assert read(data) == (6, [b"a", None, b"c", None], [2])


def test_what_a_damaged_batch_says_of_its_end_is_not_believed() -> None:
    last = batch(2, b"b")
    last[23] ^= 0x10  # the highest byte of its last offset delta
    assert read(bytes(batch(0, b"a") + last)) == (3, [b"a", None], [2])


def test_what_is_in_a_transaction_comes_with_its_producer_and_then_its_end() -> None:
    data = encode_batch(
        [Record(key=b"k", value=b"in")], producer_id=7, producer_epoch=1, transactional=True
    )
    end = encode_control_batch(
        CONTROL_COMMIT, producer_id=7, producer_epoch=2, coordinator_epoch=0, timestamp=0
    )
    end[:8] = (1).to_bytes(8)
    slices: Any = SimpleNamespace(read_all=lambda: bytes(data + end + batch(2, b"out")))
    following, stored, damaged = read_records(slices)
    told = [(each.record and each.record.value, each.producer_id, each.ends) for each in stored]
    assert told == [(b"in", 7, None), (None, 7, True), (b"out", -1, None), (None, -1, None)]
    assert (following, damaged) == (4, [])
