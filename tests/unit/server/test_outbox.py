"""Answers on their way out: whole, in order, and only as fast as the peer reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.server.middle import MemoryTransport, turns_of_the_loop
from tidelog.server.outbox import (
    EXCESS_BYTES_MAX,
    PIECE_BYTES,
    SMALL_PIECE_BYTES,
    TURN_BYTES,
    Outbox,
    ScratchBuffer,
)
from tidelog.storage.slices import FileSlice, Slices
from tidelog.testing.virtual_loop import VirtualOffload, virtual_time


class File:
    """A segment's file: its bytes are in memory or not, and reads are counted."""

    def __init__(self, content: bytes, *, is_cold: bool = False) -> None:
        self.content = content
        self.is_cold = is_cold
        self.reads = 0
        self.on_read: Callable[[], None] = lambda: None
        self.readers = 0
        self.truncations = self.truncated_to = 0
        self.damaged = ()
        # As far as the log knows.
        self.size_bytes = 1 << 30
        self.path = "0.log"
        self.log_file = self.disk = self

    def pin(self) -> File:
        return self

    def unpin(self) -> None:
        pass

    def __enter__(self) -> File:
        return self.pin()

    def __exit__(self, *_: object) -> None:
        self.unpin()

    def reader_left(self) -> None:
        self.readers -= 1

    def pread(self, _: object, length: int, position: int) -> bytes:
        self.reads += 1
        return self.content[position : position + length]

    def pread_cached_into(self, _: object, buffer: memoryview, position: int) -> int:
        if self.is_cold:
            raise BlockingIOError
        found = self.content[position : position + len(buffer)]
        self.reads += 1
        self.on_read()
        buffer[: len(found)] = found
        return len(found)


def slices(*files: File, length: int | None = None) -> Slices:
    pieces: list[Any] = [
        FileSlice(file, 0, len(file.content) if length is None else length)  # type: ignore[arg-type]
        for file in files
    ]
    for each in pieces:
        # What is in these files are no batches, which would be looked into.
        each._is_checked = True
    return Slices(pieces, sum(each.length for each in pieces))


def content(size: int, seed: int = 0) -> bytes:
    return bytes((seed + place // 251) % 256 for place in range(size))


class Sending:
    """An outbox, and the transport that it writes to."""

    def __init__(self, scratch: ScratchBuffer | None = None, *, is_tls: bool = False) -> None:
        self.drained = 0
        self.transport = MemoryTransport(self)
        if is_tls:
            self.transport._extra["ssl_object"] = object()
        self.outbox = Outbox(
            self.transport, VirtualOffload(), scratch or ScratchBuffer(), self._drained
        )

    def _drained(self) -> None:
        self.drained += 1

    def pause_writing(self) -> None:
        self.outbox.transport_full()

    def resume_writing(self) -> None:
        self.outbox.transport_ready()

    def connection_lost(self, _: object) -> None:
        self.outbox.close()

    @property
    def received(self) -> bytes:
        return bytes(self.transport.received)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


@virtual_time
async def test_parts_leave_in_their_order_and_segments_are_let_go_of() -> None:
    sending = Sending()
    first, second = File(content(150_000, 1)), File(content(70_000, 2))
    sending.outbox.send([b"head", slices(first, second), b"tail"])
    sending.outbox.send([b"next"])
    assert sending.received == b"head" + first.content + second.content + b"tail" + b"next"
    assert first.readers == second.readers == 0
    assert not sending.outbox.is_busy
    assert sending.outbox.bytes_sent == len(sending.received)


@virtual_time
async def test_a_peer_that_does_not_read_costs_one_piece() -> None:
    sending, file = Sending(), File(content(1_000_000))
    sending.transport.is_reading = False
    sending.outbox.send([b"head", slices(file)])
    await turns_of_the_loop()
    reads = file.reads
    assert sending.outbox.is_busy and sending.transport.get_write_buffer_size() <= PIECE_BYTES
    await asyncio.sleep(3600)
    assert file.reads == reads and file.readers == 1
    assert sending.outbox.bytes_taken == 0
    while sending.outbox.is_busy:
        sending.transport.read()
    sending.transport.read()
    assert sending.received == b"head" + file.content
    assert sending.transport.held_max <= PIECE_BYTES
    assert sending.drained == 1 and file.readers == 0


@virtual_time
async def test_a_peer_that_reads_a_little_at_a_time_gets_everything() -> None:
    sending, file = Sending(), File(content(300_000))
    sending.transport.is_reading = False
    waiting: list[int] = []
    file.on_read = lambda: waiting.append(sending.transport.get_write_buffer_size())
    sending.outbox.send([slices(file), b"tail"])
    steps = 0
    while len(sending.received) < 300_004:
        before = len(sending.received)
        sending.transport.read(1_013)
        assert before < len(sending.received) <= before + 1_013
        steps += 1
    assert sending.received == file.content + b"tail"
    assert len(waiting) == 2 and not any(waiting), "the next piece is read when the last is taken"
    assert steps > 290 and sending.transport.held_max <= PIECE_BYTES + 4


@virtual_time
async def test_a_piece_that_waits_for_its_peer_is_not_overwritten_by_answers_to_others() -> None:
    scratch = ScratchBuffer()
    slow, other = Sending(scratch), Sending(scratch)
    slow.transport.is_reading = False
    first, second = File(content(60_000, 1)), File(content(60_000, 2))
    slow.outbox.send([slices(first)])
    other.outbox.send([slices(second)])
    slow.transport.read()
    assert slow.received == first.content and other.received == second.content


@virtual_time
async def test_cold_data_is_read_off_the_loop_and_what_follows_waits_for_it() -> None:
    sending, cold, warm = Sending(), File(content(200_000), is_cold=True), File(content(9_000, 3))
    sending.outbox.send([b"head", slices(cold)])
    sending.outbox.send([slices(warm), b"tail"])
    assert sending.received == b"head" and cold.reads == 0
    await until(lambda: not sending.outbox.is_busy)
    assert sending.received == b"head" + cold.content + warm.content + b"tail"
    assert cold.reads == 4 and cold.readers == warm.readers == 0
    assert sending.drained == 1


@virtual_time
async def test_a_connection_that_ends_during_a_cold_read_lets_go_of_its_segments() -> None:
    sending, cold, other = Sending(), File(content(200_000), is_cold=True), File(content(10))
    parts = [slices(cold), slices(other)]
    sending.outbox.send([*parts])
    sending.transport.close()
    await asyncio.sleep(1)
    assert cold.readers == other.readers == 0
    assert sending.received == b"" and sending.drained == 0


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_segment_that_ends_early_closes_the_connection(is_cold: bool) -> None:
    @virtual_time
    async def run() -> None:
        sending, file = Sending(), File(content(1_000), is_cold=is_cold)
        sending.outbox.send([slices(file, length=2_000), b"tail"])
        await asyncio.sleep(1)
        assert sending.transport.is_closed and file.readers == 0
        assert sending.received == file.content, "and nothing that would pass for the rest"

    run()


@virtual_time
async def test_a_segment_that_was_cut_under_a_reader_closes_the_connection() -> None:
    sending, file = Sending(), File(content(500_000))
    sending.transport.is_reading = False
    sending.outbox.send([slices(file)])
    file.truncations, file.truncated_to = 1, 1_000
    sending.transport.read()
    assert sending.transport.is_closed
    assert len(sending.received) <= PIECE_BYTES


@virtual_time
async def test_small_answers_that_are_held_leave_in_one_write() -> None:
    sending = Sending()
    sending.outbox.hold()
    for number in range(100):
        sending.outbox.send([b"%03d" % number])
    assert sending.transport.writes == []
    sending.outbox.let_go()
    assert sending.transport.writes == [300]
    assert sending.received == b"".join(b"%03d" % number for number in range(100))


@virtual_time
async def test_what_is_held_has_a_bound_and_leaves_before_what_is_large() -> None:
    sending, file = Sending(), File(content(10))
    sending.outbox.hold()
    for _ in range(5):
        sending.outbox.send([bytes(20_000)])
    assert sending.transport.writes == [80_000]
    sending.outbox.send([b"head", slices(file)])
    sending.outbox.let_go()
    assert sending.received == bytes(100_000) + b"head" + file.content


@virtual_time
async def test_the_small_parts_of_an_answer_leave_with_its_records() -> None:
    sending, first, second = Sending(), File(content(900, 1)), File(content(1_500, 2))
    sending.outbox.send([b"head", slices(first), b"between", slices(second), b"end"])
    assert len(sending.transport.writes) == 1
    assert sending.received == b"head" + first.content + b"between" + second.content + b"end"
    assert first.readers == second.readers == 0 and not sending.outbox.is_busy


@virtual_time
async def test_bytes_that_carry_a_charge_are_written_as_they_are() -> None:
    class Charged(bytes):
        ended = 0

        def __del__(self) -> None:
            Charged.ended += 1

    sending, file = Sending(), File(content(50_000))
    sending.transport.is_reading = False
    sending.outbox.send([slices(file), Charged(b"the last bytes")])
    sending.transport.read(1_000)
    assert Charged.ended == 0, "they are not sent yet"
    while sending.outbox.is_busy:
        sending.transport.read()
    sending.transport.read()
    assert sending.received == file.content + b"the last bytes"


@virtual_time
async def test_a_peer_that_reads_gets_large_pieces() -> None:
    sending, file = Sending(), File(content(1_000_000))
    sending.outbox.send([b"head", slices(file)])
    await until(lambda: not sending.outbox.is_busy)
    assert sending.received == b"head" + file.content
    assert max(sending.transport.writes) == PIECE_BYTES and file.reads == 4


@virtual_time
async def test_under_tls_pieces_are_small_and_keep_no_scratch_buffer() -> None:
    scratch = ScratchBuffer()
    sending, file, view = Sending(scratch, is_tls=True), File(content(300_000)), scratch.view
    sending.transport.is_reading = False
    sending.outbox.send([slices(file)])
    while sending.outbox.is_busy:
        sending.transport.read()
    assert sending.received == file.content
    assert max(sending.transport.writes) == SMALL_PIECE_BYTES and scratch.view is view


@virtual_time
async def test_many_readers_who_are_behind_keep_small_pieces() -> None:
    scratch, file = ScratchBuffer(), File(content(1_000_000))
    readers = [Sending(scratch) for _ in range(100)]
    for reader in readers:
        reader.transport.is_reading = False
        reader.outbox.send([slices(file)])
    held = sum(reader.transport.get_write_buffer_size() for reader in readers)
    assert EXCESS_BYTES_MAX < held <= EXCESS_BYTES_MAX + 100 * SMALL_PIECE_BYTES
    for reader in readers[:50]:
        reader.transport.close()
    await turns_of_the_loop()
    for reader in readers[50:]:
        while reader.outbox.is_busy:
            reader.transport.read()
        assert reader.received == file.content
        assert reader.transport.writes[0] == SMALL_PIECE_BYTES
    last = Sending(scratch)
    last.outbox.send([slices(file)])
    assert max(last.transport.writes) == PIECE_BYTES, "there is room again"


@virtual_time
async def test_a_long_answer_lets_others_have_their_turn() -> None:
    sending, file = Sending(), File(content(TURN_BYTES) * 3 + b"+")
    asyncio.get_running_loop().call_soon(lambda: turns.append(len(sending.received)))
    turns: list[int] = []
    sending.outbox.send([slices(file)])
    sending.outbox.send([b"next"])
    assert sending.outbox.bytes_sent == TURN_BYTES and sending.outbox.is_busy
    await until(lambda: not sending.outbox.is_busy)
    assert turns == [TURN_BYTES]
    assert sending.received == file.content + b"next"
    assert sending.drained == 1 and file.readers == 0


@virtual_time
async def test_a_connection_that_ends_between_two_turns_lets_go_of_its_segments() -> None:
    sending, file = Sending(), File(content(TURN_BYTES) * 2)
    sending.outbox.send([slices(file)])
    sending.transport.close()
    await turns_of_the_loop()
    assert file.readers == 0 and len(sending.received) == TURN_BYTES and sending.drained == 0
