"""Frames out of a byte stream, without a copy and without trusting the sender.

One buffer per connection, reused from frame to frame: bytes are received straight into it and a
frame is handed out as a view of it, valid until the next frame is asked for. A frame that does not
fit makes the buffer want more room, which the owner grants step by step as bytes really arrive,
so that a socket that announces 100 MiB and sends nothing costs nothing.
"""

from __future__ import annotations

import struct

from tidelog.errors import ProtocolError

INITIAL_BYTES = 4 * 1024
_GROWTH_FACTOR = 4
_GROWTH_BYTES_MIN = 64 * 1024
_read_length = struct.Struct(">i").unpack_from


class ReceiveBuffer:
    """A window [start, end) of received bytes in a buffer that grows and shrinks on request."""

    __slots__ = ("_end", "_frame_end", "_start", "frame_bytes_max", "view")

    def __init__(self, frame_bytes_max: int) -> None:
        self.view = memoryview(bytearray(INITIAL_BYTES))
        self.frame_bytes_max = frame_bytes_max
        self._start = 0
        self._end = 0
        # Where the frame handed out last ends: its bytes are given up at the next call.
        self._frame_end = 0

    @property
    def capacity(self) -> int:
        return len(self.view)

    @property
    def unread_bytes(self) -> int:
        """Bytes received that no handed-out frame covers."""
        return self._end - self._frame_end

    @property
    def is_full(self) -> bool:
        return self._end == len(self.view)

    def room(self) -> memoryview:
        """Where the next bytes go; never empty while `is_full` is False."""
        return self.view[self._end :]

    def received(self, count: int) -> None:
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, or None; ProtocolError on a bad length."""
        start = self._start = self._frame_end
        held = self._end - start
        if held < 4:
            if held == 0:
                self._start = self._end = self._frame_end = 0
            elif self.is_full:
                self._compact()
            return None
        (length,) = _read_length(self.view, start)
        if length <= 0 or length > self.frame_bytes_max:
            raise ProtocolError(
                f"frame length {length} is outside 1..{self.frame_bytes_max}"
                " (socket.request.max.bytes)"
            )
        if held < 4 + length:
            if start and start + 4 + length > len(self.view):
                self._compact()
            return None
        self._frame_end = start + 4 + length
        return self.view[start + 4 : self._frame_end]

    def wanted_capacity(self) -> int:
        """The capacity to grow to before more can be received, 0 where there is room.

        Call it after `next_frame` returned None. It grows fourfold at a time, so the memory held
        stays in proportion to what was sent.
        """
        if not self.is_full or self._end - self._start < 4:
            return 0
        length = self.frame_bytes
        step = max(len(self.view) * _GROWTH_FACTOR, _GROWTH_BYTES_MIN)
        return min(4 + length, step)

    @property
    def frame_bytes(self) -> int:
        """The announced length of the frame that is being received; it was checked before."""
        (length,) = _read_length(self.view, self._start)
        return int(length)

    def drop(self) -> None:
        """Let go of the memory: nothing is received any more."""
        self.view = memoryview(b"")

    def resize(self, capacity: int) -> None:
        """Move what is held into a buffer of another size, never below what is held.

        The frame handed out last must have been dealt with: its bytes are given up.
        """
        self._start = self._frame_end
        held = self.view[self._start : self._end]
        fresh = memoryview(bytearray(max(capacity, len(held), INITIAL_BYTES)))
        fresh[: len(held)] = held
        self.view = fresh
        self._frame_end -= self._start
        self._end -= self._start
        self._start = 0

    def _compact(self) -> None:
        held = self._end - self._start
        self.view[:held] = self.view[self._start : self._end]
        self._frame_end -= self._start
        self._start = 0
        self._end = held
