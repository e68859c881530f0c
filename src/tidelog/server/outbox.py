"""Answers on their way out: in order, in pieces, and only as fast as the peer reads.

An answer is a list of parts: buffers, and `Slices` of log segments. They leave in pieces when the
socket has room: a consumer that does not read costs its position in the log and one piece, which
its transport keeps. Small buffers go into the piece with the slices that they stand beside, since
each write costs the peer a turn of its loop. After two pieces others have their turn.
What lies in the page cache is read on the spot; what does not is read on a thread, while the loop
serves others. One scratch buffer per broker takes the pieces that leave at once.

A piece has 256 KiB: each costs two system calls, and larger ones did not cost measurably less
(decision 0001). Pieces have 64 KiB while readers who are behind keep many large ones waiting, and
under TLS, whose layer copies what it is given.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TypeGuard

from tidelog.errors import TidelogError
from tidelog.host.offload import Offload
from tidelog.protocol.primitives import Buffer, Part
from tidelog.storage.slices import FileSlice, Slices

_log = logging.getLogger(__name__)

PIECE_BYTES = 256 * 1024
SMALL_PIECE_BYTES = 64 * 1024
# How much one connection sends before others have their turn: a fraction of a millisecond, and
# each turn of the loop costs some ten microseconds.
TURN_BYTES = 512 * 1024
# What readers who are behind may keep in all, beyond a small piece for each.
EXCESS_BYTES_MAX = 4 * 1024 * 1024
# A buffer up to this is copied into a piece; a larger one is written by itself.
_GATHERED_BYTES_MAX = 4 * 1024
_HELD_BYTES_MAX = 64 * 1024
# Above this the transport asks us to stop; uvloop then tries to send at once instead of queueing.
# A whole piece is above it.
_HIGH_WATER_BYTES = 32 * 1024


class ScratchBuffer:
    """A buffer for one piece, replaced whenever a transport had to keep it."""

    __slots__ = ("_excess_bytes", "view")

    def __init__(self) -> None:
        self._excess_bytes = 0
        self.view = memoryview(bytearray(PIECE_BYTES))

    def keep(self) -> int:
        """A transport keeps the buffer for its reader; what to give back once it was taken."""
        excess_bytes = len(self.view) - SMALL_PIECE_BYTES
        self._excess_bytes += excess_bytes
        is_much = self._excess_bytes + PIECE_BYTES > EXCESS_BYTES_MAX
        self.view = memoryview(bytearray(SMALL_PIECE_BYTES if is_much else PIECE_BYTES))
        return excess_bytes

    def give_back(self, excess_bytes: int) -> None:
        if excess_bytes:
            self._excess_bytes -= excess_bytes
            if len(self.view) < PIECE_BYTES:
                self.view = memoryview(bytearray(PIECE_BYTES))


def _is_gathered(part: Part) -> TypeGuard[bytes]:
    """Whether a buffer goes into a piece with others. Not one whose own life means something."""
    return type(part) is bytes and len(part) <= _GATHERED_BYTES_MAX


def _nothing() -> None:
    """What follows once a closed outbox is drained."""


class Outbox:
    """The parts still to be written to one transport."""

    def __init__(
        self,
        transport: asyncio.Transport,
        offload: Offload,
        scratch: ScratchBuffer,
        on_drained: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._offload = offload
        self._scratch = scratch
        self._on_drained = on_drained
        self._parts: deque[Part] = deque()
        self._slice_index = 0
        self._slice_offset = 0
        self._transport_full = False
        # The next turn of the loop, or a cold read, goes on from here.
        self._later: asyncio.Handle | asyncio.Future[bytes] | None = None
        # Small answers to pipelined requests, held back to leave in one write.
        self._held: list[Buffer] | None = None
        self._held_bytes = 0
        self.bytes_sent = 0
        # The peer has not taken all of a piece; what that piece keeps of the scratch buffers.
        self._is_behind = False
        self._excess_bytes = 0
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)

    @property
    def is_busy(self) -> bool:
        """True while something waits here, or the transport asks for a pause."""
        return self._transport_full or bool(self._parts)

    @property
    def bytes_taken(self) -> int | None:
        """How much the peer has taken so far; None while nothing waits for it."""
        waiting = self._transport.get_write_buffer_size()
        return self.bytes_sent - waiting if waiting else None

    def send(self, parts: list[Part]) -> None:
        """Queue the parts of one answer, and write what can be written."""
        if not self._parts and not self._transport_full and len(parts) == 1:
            part = parts[0]
            if isinstance(part, (bytes, bytearray, memoryview)):
                self.bytes_sent += len(part)
                if self._held is None:
                    self._transport.write(part)
                    return
                self._held.append(part)
                self._held_bytes += len(part)
                if self._held_bytes > _HELD_BYTES_MAX:
                    self._write_held()
                return
        self._write_held()
        self._parts.extend(parts)
        self._pump()

    def hold(self) -> None:
        """Gather small answers until `let_go`, instead of a write for each."""
        if self._held is None:
            self._held = []

    def let_go(self) -> None:
        if self._held is not None:
            self._write_held()
            self._held = None

    def transport_full(self) -> None:
        self._transport_full = True

    def transport_ready(self) -> None:
        self._transport_full = False
        if self._is_behind:
            self._caught_up()
            self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self._pump_on()

    def close(self) -> None:
        """Drop what is left and let go of the segments."""
        self._caught_up()
        if self._later is not None:
            self._later.cancel()
        for part in self._parts:
            if isinstance(part, Slices):
                part.release()
        self._parts.clear()
        # The connection holds this outbox: without the way back, both go at once.
        self._on_drained = _nothing

    def _caught_up(self) -> None:
        """The transport keeps no piece any more."""
        self._is_behind = False
        self._scratch.give_back(self._excess_bytes)
        self._excess_bytes = 0

    def _write_held(self) -> None:
        held = self._held
        if held:
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))
            held.clear()
            self._held_bytes = 0

    def _pump_on(self) -> None:
        self._pump()
        if not self.is_busy:
            self._on_drained()

    def _next_turn(self) -> None:
        self._later = None
        self._pump_on()

    def _pump(self) -> None:
        parts, until = self._parts, self.bytes_sent + TURN_BYTES
        while parts and not self._transport_full and self._later is None:
            if self.bytes_sent >= until:
                self._later = asyncio.get_running_loop().call_soon(self._next_turn)
                return
            part = parts[0]
            if not isinstance(part, Slices) and not _is_gathered(part):
                assert isinstance(part, (bytes, bytearray, memoryview)), type(part)
                parts.popleft()
                self.bytes_sent += len(part)
                self._transport.write(part)
                continue
            scratch = self._scratch.view
            size = SMALL_PIECE_BYTES if self._is_tls else len(scratch)
            # What the transport holds already counts. That is half a piece at most: it is not full.
            room = size - self._transport.get_write_buffer_size()
            filled = self._fill(scratch[: max(room, _HIGH_WATER_BYTES)])
            if filled:
                self._write_piece(scratch[:filled])

    def _fill(self, piece: memoryview) -> int:
        """Put the next parts into a piece; how much of it they fill.

        What must be read from the disk or cannot be read at all has a turn of its own, once that
        which comes before it is written.
        """
        parts, filled, size = self._parts, 0, len(piece)
        while parts and filled < size:
            part = parts[0]
            if not isinstance(part, Slices):
                if not _is_gathered(part):
                    break
                length = len(part)
                if length > size - filled:
                    break
                piece[filled : filled + length] = part
                filled += length
                parts.popleft()
            elif self._slice_index == len(part.slices):
                part.release()
                self._slice_index = 0
                parts.popleft()
            else:
                count = self._read(part.slices[self._slice_index], piece[filled:], filled == 0)
                if not count:
                    break
                filled += count
        return filled

    def _read(self, file_slice: FileSlice, room: memoryview, is_first: bool) -> int:
        """Read what is in memory of a slice; where nothing is, have it read if it comes first."""
        try:
            if self._slice_offset == 0 and file_slice.leads_to_cold():
                raise BlockingIOError
            count = file_slice.read_cached_into(room, self._slice_offset)
            if count:
                self._slice_read(file_slice, count)
                return count
            error: Exception = EOFError("the segment ended early")
        except BlockingIOError:
            if is_first:
                length = min(SMALL_PIECE_BYTES, file_slice.length - self._slice_offset)
                self._read_cold(file_slice, length)
            return 0
        except (OSError, TidelogError) as failure:
            error = failure
        if is_first:
            self._give_up(file_slice, error)
        return 0

    def _write_piece(self, piece: memoryview) -> None:
        # What is small may be queued behind others, and TLS takes a copy: one of our own costs less
        # than another scratch buffer.
        is_copied = len(piece) <= _HIGH_WATER_BYTES or self._is_tls
        self._write(bytes(piece) if is_copied else piece)
        if self._is_behind and not is_copied:
            self._excess_bytes = self._scratch.keep()

    def _write(self, piece: bytes | memoryview) -> None:
        """Write a piece; where the peer does not take all of it, no other is read before it has."""
        self.bytes_sent += len(piece)
        self._transport.write(piece)
        if len(piece) > _HIGH_WATER_BYTES and self._transport.get_write_buffer_size():
            self._is_behind = True
            # The transport pauses us at once, since it holds more than this.
            self._transport.set_write_buffer_limits(high=0)

    def _slice_read(self, file_slice: FileSlice, count: int) -> None:
        self._slice_offset += count
        if self._slice_offset == file_slice.length:
            self._slice_index += 1
            self._slice_offset = 0

    def _read_cold(self, file_slice: FileSlice, length: int) -> None:
        file_slice.segment.log_file.was_cold = True
        future = self._offload.run(file_slice.read, self._slice_offset, length)
        self._later = future

        def done(read: asyncio.Future[bytes]) -> None:
            self._later = None
            if read.cancelled() or self._transport.is_closing():
                return
            error = read.exception()
            if error is not None or not read.result():
                self._give_up(file_slice, error or EOFError("the segment ended early"))
                return
            self._write(read.result())
            self._slice_read(file_slice, len(read.result()))
            self._pump_on()

        future.add_done_callback(done)

    def _give_up(self, file_slice: FileSlice, error: BaseException) -> None:
        """The answer's length is on the wire already: only closing is honest."""
        _log.error("read failed segment=%s error=%s", file_slice.segment.log_file.path, error)
        self.close()
        self._transport.abort()
