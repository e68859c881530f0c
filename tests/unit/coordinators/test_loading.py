"""Loading group records from a log that is damaged."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.coordinators.loading import read_records
from tidelog.errors import ProtocolError
from tidelog.model import Codec
from tidelog.protocol.batches import (
    CONTROL_COMMIT,
    HEADER_BYTES,
    Record,
    encode_batch,
    encode_control_batch,
    read_header,
    seal,
)


def batch(offset: int, value: bytes) -> bytearray:
    return encode_batch([Record(key=b"k", value=value), Record(key=b"k")], base_offset=offset)


def read(data: bytes) -> tuple[int, list[bytes | None], list[int]]:
    slices: Any = SimpleNamespace(read_all=lambda: data)
    following, stored, damaged = read_records(slices)
    values = [each.value for each in stored if each.ends is None]
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
    told = [(each.value, each.producer_id, each.ends) for each in stored]
    assert told == [(b"in", 7, None), (None, 7, True), (b"out", -1, None), (None, -1, None)]
    assert (following, damaged) == (4, [])


def test_batches_of_any_size_are_read_one_after_the_other() -> None:
    chance, written, data, batches = random.Random(1), [], b"", 0
    while batches < 200:
        records = [
            Record(
                key=chance.choice((None, b"", chance.randbytes(9))),
                value=chance.choice((None, b"", chance.randbytes(chance.randrange(300)))),
                headers=[("h", b"x")] * chance.randrange(2),
            )
            for _ in range(chance.choice((1, 1, 1, 2, 40)))
        ]
        codec = chance.choice((Codec.NONE, Codec.GZIP))
        data += encode_batch(records, base_offset=len(written), codec=codec)
        written += [(each.key, each.value) for each in records]
        batches += 1
    slices: Any = SimpleNamespace(read_all=lambda: data)
    following, stored, damaged = read_records(slices)
    assert [(each.key, each.value) for each in stored] == written
    assert (following, damaged) == (len(written), [])


@pytest.mark.parametrize("count", [-1, 3, 2**31 - 1])
def test_a_batch_that_claims_other_records_than_it_has_is_refused(count: int) -> None:
    lying = batch(0, b"a")
    header = read_header(lying)
    header.record_count = count
    seal(lying, 0, header)
    assert len(lying) > HEADER_BYTES
    with pytest.raises(ProtocolError):
        read(bytes(lying))
