"""Damaged frames give a value or `ProtocolError`, quickly and without claiming memory.

What is accepted must be whole: it ends inside the frame, and it can be encoded and read again.
"""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from struct import pack
from time import thread_time
from typing import Any

import pytest

from tests.model.codec_values import message_versions, random_message
from tidelog.errors import ProtocolError
from tidelog.protocol.framing import RequestHeader, decode_request_header
from tidelog.protocol.schema import decode, encode, warm

SEED = 7
MUTATED_FRAMES_MIN = 100_000
MUTATIONS_PER_MESSAGE_VERSION = 600
BASES_PER_MESSAGE_VERSION = 4
DECODE_SECONDS_MAX = 0.050

Mutation = Callable[[bytearray, Random], None]


def flip_bits(frame: bytearray, rng: Random) -> None:
    for _ in range(rng.randint(1, 4)):
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)


def replace_byte(frame: bytearray, rng: Random) -> None:
    frame[rng.randrange(len(frame))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))


def truncate(frame: bytearray, rng: Random) -> None:
    del frame[rng.randrange(len(frame)) :]


def insert_bytes(frame: bytearray, rng: Random) -> None:
    at = rng.randrange(len(frame) + 1)
    frame[at:at] = rng.randbytes(rng.randint(1, 6))


def delete_bytes(frame: bytearray, rng: Random) -> None:
    at = rng.randrange(len(frame))
    del frame[at : at + rng.randint(1, 6)]


def edit_length(frame: bytearray, rng: Random) -> None:
    """Overwrite what may be a length or a count with an extreme one."""
    number = rng.choice((-1, -2, 0, 1, 0x7FFF, -0x8000))
    code = ">h"
    if rng.random() < 0.5:
        number, code = rng.choice((-1, -2, 0, 1, 0x7FFFFFFF, -0x80000000, 0x10000)), ">i"
    written = pack(code, number)
    at = rng.randrange(len(frame))
    frame[at : at + len(written)] = written


def stretch_varint(frame: bytearray, rng: Random) -> None:
    """Give what may be a varint more bytes, of the same or of another value."""
    at = rng.randrange(len(frame))
    tail = rng.choice((b"\x80\x00", b"\x80" * 9 + b"\x00", b"\xff" * 3 + b"\x0f", b"\xff" * 40))
    frame[at : at + 1] = bytes((frame[at] | 0x80,)) + tail


def repeat_slice(frame: bytearray, rng: Random) -> None:
    at = rng.randrange(len(frame))
    piece = frame[at : at + rng.randint(1, 40)]
    frame[at:at] = piece * rng.randint(1, 5)


MUTATIONS: tuple[Mutation, ...] = (
    flip_bits, replace_byte, truncate, insert_bytes, delete_bytes, edit_length, stretch_varint,
    repeat_slice,
)  # fmt: skip


def test_a_damaged_message_gives_a_value_or_a_protocol_error() -> None:
    rng = Random(SEED)
    outcomes: Counter[str] = Counter()
    by_mutation: Counter[str] = Counter()
    for cls, version in message_versions():
        warm(cls, version)
        bases = [
            encode(random_message(cls, version, rng), version)
            for _ in range(BASES_PER_MESSAGE_VERSION)
        ]
        for index in range(MUTATIONS_PER_MESSAGE_VERSION):
            frame = bytearray(bases[index % len(bases)])
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                if frame:
                    mutation = rng.choice(MUTATIONS)
                    mutation(frame, rng)
                    by_mutation[mutation.__name__] += 1
            outcomes[_outcome(cls, version, frame)] += 1
    assert sum(outcomes.values()) >= MUTATED_FRAMES_MIN
    assert outcomes["refused"] > 10_000 and outcomes["accepted"] > 10_000, outcomes
    assert all(by_mutation[each.__name__] > 1_000 for each in MUTATIONS), by_mutation


def _outcome(cls: type[Any], version: int, frame: bytearray) -> str:
    started = thread_time()
    try:
        message, end = decode(cls, version, frame)
    except ProtocolError:
        message, end = None, 0
    if thread_time() - started > DECODE_SECONDS_MAX:
        assert _fastest_decode(cls, version, frame) <= DECODE_SECONDS_MAX, (cls, version, frame)
    if message is None:
        return "refused"
    assert 0 <= end <= len(frame)
    encoded = encode(message, version)
    again, _ = decode(cls, version, encoded)
    assert encode(again, version) == encoded, (cls, version, frame)
    return "accepted"


def _fastest_decode(cls: type[Any], version: int, frame: bytearray) -> float:
    """A garbage collection may fall into one measurement, not into all of three."""
    seconds = []
    for _ in range(3):
        started = thread_time()
        with suppress(ProtocolError):
            decode(cls, version, frame)
        seconds.append(thread_time() - started)
    return min(seconds)


def test_a_damaged_request_header_gives_a_header_or_a_protocol_error() -> None:
    rng = Random(SEED)
    bases = [
        pack(">hhih", key, version, 7, len(client)) + client + tags
        for key, version, tags in ((0, 3, b""), (3, 12, b"\0"), (18, 4, b"\1\0\2ab"), (99, 1, b""))
        for client in (b"", b"client")
    ]
    outcomes: Counter[str] = Counter()
    for index in range(5_000):
        frame = bytearray(bases[index % len(bases)])
        rng.choice(MUTATIONS)(frame, rng)
        try:
            header, end = decode_request_header(frame)
        except ProtocolError:
            outcomes["refused"] += 1
            continue
        assert isinstance(header, RequestHeader)
        assert end <= len(frame)
        outcomes["accepted"] += 1
    assert sum(outcomes.values()) == 5_000
    assert outcomes["refused"] > 500 and outcomes["accepted"] > 500, outcomes


@pytest.mark.parametrize(
    "claim",
    [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x7f", b"\xff" * 64],
    ids=["int32", "varint", "longest varint", "endless varint"],
)
def test_a_claimed_count_or_length_takes_no_memory(claim: bytes) -> None:
    ran = 0
    for cls, version in message_versions():
        warm(cls, version)
        frame = encode(cls(), version)
        for at in range(len(frame) + 1):
            damaged = frame[:at] + claim
            # Of another thread's memory, which is counted too, there is none at the second look.
            assert any(peak_of(cls, version, damaged) < 16_384 for _ in range(2)), (
                cls,
                version,
                at,
            )
            ran += is_refused(cls, version, damaged)
    assert ran > 500


def peak_of(cls: type, version: int, frame: bytes) -> int:
    """The most memory that was in use while a frame was decoded."""
    tracemalloc.start()
    try:
        is_refused(cls, version, frame)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def is_refused(cls: type, version: int, frame: bytes) -> bool:
    try:
        decode(cls, version, frame)
    except ProtocolError:
        return True
    return False
