"""What a read of the log gives back: pieces of segment files, not their bytes.

A slice holds its segment, so that deletion waits for it, until `release`. Bytes are read when the
socket has room for them. A slice whose bytes were cut off by a truncation refuses to be read
rather than hand out what was written there afterwards.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from threading import get_ident

from tidelog.errors import StorageError
from tidelog.storage.damage import Checked, check, end_before_damage, mark, refuse
from tidelog.storage.segment import Segment

_log = logging.getLogger(__name__)

# How far the disk is ahead of a reader that catches up, and a look-up beyond what it asks for.
_AHEAD_BYTES = 4 * 1024 * 1024
_LOOK_UP_BYTES = 4096
_AT_ONCE_BYTES = 256 * 1024


class FileSlice:
    """A run of whole batches in one segment."""

    __slots__ = ("_is_checked", "_truncations", "length", "position", "segment")

    def __init__(self, segment: Segment, position: int, length: int) -> None:
        self.segment = segment
        self.position = position
        self.length = length
        assert 0 <= position < position + length <= segment.size_bytes, (
            f"{length} bytes at {position} are not in {segment.log_file.path}"
        )
        self._truncations = segment.truncations
        self._is_checked = False

    def read(self, offset_in_slice: int, length: int) -> bytes:
        """Read bytes of the slice, from the disk if need be; may run off the event loop.

        All of the slice is checked first: what comes from the disk may be damaged there. And what
        a reader will ask for next is read into memory.
        """
        self._check(offset_in_slice)
        if not self._is_checked:
            self._check_batches()
            self._read_ahead()
        return self.read_as_it_is(offset_in_slice, length)

    def read_as_it_is(self, offset_in_slice: int, length: int) -> bytes:
        """As `read`, for who holds the batches to their checksums and can do without some."""
        self._check(offset_in_slice)
        segment = self.segment
        length = min(length, self.length - offset_in_slice)
        with segment.log_file as fd:
            data = segment.disk.pread(fd, length, self.position + offset_in_slice)
        # A cut may have come while this ran on a thread.
        self._check(offset_in_slice)
        return data

    def read_cached_into(self, buffer: memoryview, offset_in_slice: int) -> int:
        """Read what is in memory already; BlockingIOError where that is nothing."""
        self._check(offset_in_slice)
        left = self.length - offset_in_slice
        if len(buffer) > left:
            buffer = buffer[:left]
        segment = self.segment
        # Cheaper than `with`, for each piece that is sent.
        fd = segment.log_file.pin()
        try:
            return segment.disk.pread_cached_into(fd, buffer, self.position + offset_in_slice)
        finally:
            segment.log_file.unpin()

    def leads_to_cold(self) -> bool:
        """Whether a reader that goes on behind this slice would have the event loop wait.

        Where batches begin is looked up on the loop, at the far end of what a reader asks for.
        That is looked at in files alone of which a reader has found something cold.
        """
        segment = self.segment
        if self._is_checked or not segment.log_file.was_cold:
            return False
        far_end = self.position + 2 * self.length
        if far_end >= segment.size_bytes:
            return False
        with segment.log_file as fd:
            try:
                segment.disk.pread_cached_into(fd, memoryview(bytearray(1)), far_end)
            except BlockingIOError:
                return True
        return False

    def _read_ahead(self) -> None:
        """Have the kernel read as much again and more, and wait for where the next look-up is.

        A disk that fails there is for the reader to see, once it asks.
        """
        segment, start = self.segment, self.position + self.length
        end = min(start + self.length + _LOOK_UP_BYTES, segment.size_bytes)
        with suppress(OSError), segment.log_file as fd:
            segment.disk.read_ahead(fd, start, end - start + _AHEAD_BYTES)
            for position in range(max(start, end - _AHEAD_BYTES), end, _AT_ONCE_BYTES):
                segment.disk.pread(fd, min(_AT_ONCE_BYTES, end - position), position)

    def _check_batches(self) -> None:
        segment = self.segment
        begin = Checked(self.position, segment.base_offset)
        damage = check(segment, begin, self.position + self.length, self.length).damage
        # A cut that came meanwhile is no damage.
        self._check(0)
        if damage is not None:
            mark(segment, damage)
            refuse(segment, damage.start)
        self._is_checked = True

    def _check(self, offset_in_slice: int) -> None:
        segment = self.segment
        if segment.damaged:
            end = self.position + self.length
            whole = end_before_damage(segment, self.position, end)
            if whole < end:
                refuse(segment, whole)
        if (
            segment.truncations != self._truncations
            and self.position + self.length > segment.truncated_to
        ):
            raise StorageError(f"{segment.log_file.path} was truncated under a reader")
        assert 0 <= offset_in_slice <= self.length


class Slices:
    """A part of a response: consecutive slices, released once when they were sent or dropped.

    Those that nobody released are released when they are collected: an answer can be dropped in
    many places, and a segment that is held for ever never gives its disk space back.
    """

    __slots__ = ("_released", "_thread", "size_bytes", "slices")

    def __init__(self, slices: list[FileSlice], size_bytes: int) -> None:
        if _dropped:
            _release_dropped()
        self.slices = slices
        self.size_bytes = size_bytes
        self._released = False
        self._thread = get_ident()
        for piece in slices:
            piece.segment.readers += 1

    def release(self) -> None:
        """Let go of the segments; a second call does nothing."""
        if self._released:
            return
        self._released = True
        for piece in self.slices:
            piece.segment.reader_left()

    def __del__(self) -> None:
        if self._released:
            return
        if self._thread == get_ident():
            self._release_quietly()
        else:
            # The collector may run on any thread, but segments belong to one.
            _dropped.append(self)

    def _release_quietly(self) -> None:
        try:
            self.release()
        except Exception:
            _log.exception("cannot let go of the segments of a dropped answer")

    def read_all(self) -> bytes:
        """Every byte as it is, for replays, which check it, and for tests."""
        return b"".join(piece.read_as_it_is(0, piece.length) for piece in self.slices)


# Collected on another thread than their own, which releases them at its next read.
_dropped: deque[Slices] = deque()


def _release_dropped() -> None:
    thread = get_ident()
    for _ in range(len(_dropped)):
        each = _dropped.popleft()
        if each._thread == thread:
            each._release_quietly()
        else:
            _dropped.append(each)
