"""The one walker over stored batches: recovery, index rebuilding, replay and searches share it.

It goes from header to header and stops before the first batch that cannot be: too short, past the
end, of another magic, with offsets that do not rise, or, where asked for, with a wrong checksum or
a leader epoch that falls (left there by a write that a truncation had undone). It never looks for
a batch behind one that is bad: bytes behind a hole are not known to be the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from tidelog.host.disk import Disk
from tidelog.protocol.batches import HEADER_BYTES, LOG_OVERHEAD, BatchHeader
from tidelog.protocol.checksum import crc32c

_HEADER = Struct(">qiibIhiqqqhii")
_CRC_START = 21
_MAGIC = 2
_VERIFY_BYTES = 1 << 20
_HEADERS_BYTES = 4096
_SMALLEST_LENGTH = HEADER_BYTES - LOG_OVERHEAD


@dataclass(slots=True)
class Extent:
    """What part of which file to walk, and the lowest offset and epoch its first batch may have."""

    disk: Disk
    fd: int
    start: int
    end: int
    first_offset: int
    leader_epoch: int = -1


def walk(extent: Extent, *, verify: bool) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch up to the first invalid one or the end of the extent."""
    pread = extent.disk.pread
    fd, position, end, expected = extent.fd, extent.start, extent.end, extent.first_offset
    chunk_bytes = _VERIFY_BYTES if verify else _HEADERS_BYTES
    unpack = _HEADER.unpack_from
    chunk = memoryview(b"")
    chunk_start = position
    leader_epoch = extent.leader_epoch
    while position + HEADER_BYTES <= end:
        place = position - chunk_start
        if place + HEADER_BYTES > len(chunk):
            chunk = memoryview(pread(fd, min(chunk_bytes, end - position), position))
            chunk_start, place = position, 0
            if len(chunk) < HEADER_BYTES:
                return
        header = BatchHeader(*unpack(chunk, place))
        size = header.batch_length + LOG_OVERHEAD
        last_delta = header.last_offset_delta
        if (
            header.magic != _MAGIC
            or header.batch_length < _SMALLEST_LENGTH
            or position + size > end
            or header.base_offset < expected
            or last_delta < 0
        ):
            return
        if verify:
            if header.leader_epoch < leader_epoch:
                return
            leader_epoch = header.leader_epoch
            if place + size > len(chunk):
                chunk = memoryview(pread(fd, max(chunk_bytes, size), position))
                chunk_start, place = position, 0
                if len(chunk) < size:
                    return
            if crc32c(chunk[place + _CRC_START : place + size]) != header.crc:
                return
        yield position, header
        position += size
        expected = header.base_offset + last_delta + 1


def header_at(disk: Disk, fd: int, position: int) -> BatchHeader | None:
    """The header that begins at a position, or None where there is none."""
    data = disk.pread(fd, HEADER_BYTES, position)
    if len(data) < HEADER_BYTES:
        return None
    header = BatchHeader(*_HEADER.unpack(data))
    if header.magic != _MAGIC or header.batch_length < _SMALLEST_LENGTH:
        return None
    return header
