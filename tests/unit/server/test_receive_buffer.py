"""Frames out of a stream, whatever pieces it arrives in."""

from __future__ import annotations

import random
import struct

import pytest

from tidelog.errors import ProtocolError
from tidelog.server.receive_buffer import INITIAL_BYTES, ReceiveBuffer

FRAME_BYTES_MAX = 1 << 20


def feed(buffer: ReceiveBuffer, data: bytes) -> int:
    """Give as much of `data` as there is room for; how much that was."""
    room = buffer.room()
    count = min(len(room), len(data))
    room[:count] = data[:count]
    buffer.received(count)
    return count


def frames_of(buffer: ReceiveBuffer) -> list[bytes]:
    found = []
    while (frame := buffer.next_frame()) is not None:
        found.append(bytes(frame))
    return found


def test_frames_are_the_same_whatever_pieces_they_arrive_in() -> None:
    chance = random.Random(7)
    rounds = 200
    for _ in range(rounds):
        sent = [chance.randbytes(chance.choice((1, 5, 100, 5_000, 70_000))) for _ in range(8)]
        stream = b"".join(struct.pack(">i", len(each)) + each for each in sent)
        buffer = ReceiveBuffer(FRAME_BYTES_MAX)
        received: list[bytes] = []
        position = 0
        while position < len(stream):
            piece = stream[position : position + chance.choice((1, 3, 1_000, 100_000))]
            position += feed(buffer, piece)
            received += frames_of(buffer)
            wanted = buffer.wanted_capacity()
            if wanted:
                buffer.resize(wanted)
        assert received == sent
        assert buffer.unread_bytes == 0


@pytest.mark.parametrize("length", [0, -1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_a_bad_length_is_refused_before_anything_is_allocated(length: int) -> None:
    buffer = ReceiveBuffer(FRAME_BYTES_MAX)
    feed(buffer, struct.pack(">i", length))
    with pytest.raises(ProtocolError, match=str(length)):
        buffer.next_frame()
    assert buffer.capacity == INITIAL_BYTES


def test_memory_grows_with_what_arrived_not_with_what_was_announced() -> None:
    buffer = ReceiveBuffer(100 << 20)
    feed(buffer, struct.pack(">i", 100 << 20))
    assert buffer.next_frame() is None
    assert buffer.wanted_capacity() == 0
    arrived = 4
    while arrived < 1 << 20:
        arrived += feed(buffer, bytes(8192))
        assert buffer.next_frame() is None
        wanted = buffer.wanted_capacity()
        if wanted:
            buffer.resize(wanted)
        assert buffer.capacity <= max(64 * 1024, 4 * arrived)


def test_resizing_down_keeps_what_is_still_unread() -> None:
    buffer = ReceiveBuffer(FRAME_BYTES_MAX)
    buffer.resize(100_000)
    feed(buffer, struct.pack(">i", 50_000) + bytes(50_000) + b"\x00\x00")
    assert len(buffer.next_frame() or b"") == 50_000
    buffer.resize(INITIAL_BYTES)
    assert buffer.capacity == INITIAL_BYTES
    feed(buffer, b"\x00\x01x")
    assert frames_of(buffer) == [b"x"]
