"""The one walker over stored batches: recovery, index rebuilding, replay and searches share it.

It goes from header to header and stops before the first batch that cannot be: too short, past the
end, of another magic, with offsets that do not rise or do not fit a segment, or, where asked for,
with a wrong checksum or a leader epoch that falls (left there by a write that a truncation had
undone). It never looks for a batch behind one that is bad: bytes behind a hole are not known to be
the log. A kernel does the walking, a chunk of the file at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from tidelog._kernels import batch_walk as kernel
from tidelog._kernels.batch_rows import (
    BASE_OFFSET,
    BATCH_LENGTH,
    HEADER_FIELDS,
    LAST_OFFSET_DELTA,
    LOG_OVERHEAD,
    POSITION,
    ROW_FIELDS,
)
from tidelog.errors import ProtocolError
from tidelog.host.disk import Disk
from tidelog.protocol.batches import HEADER_BYTES, MAGIC, BatchHeader, read_header
from tidelog.protocol.checksum import crc32c

LARGEST_RELATIVE_OFFSET = 2**31 - 1
_LARGEST_LEADER_EPOCH = 2**31 - 1
_CHUNK_BYTES_MAX = 1 << 20
_CHUNK_BYTES_MIN = 4096
# A search needs a few headers as a rule, everybody else all of them.
_ROWS_MIN = 8
_ROWS_MAX = 8192
_ROW_BYTES = 8 * ROW_FIELDS


@dataclass(slots=True)
class Extent:
    """What part of which file to walk, and the lowest offset and epoch its first batch may have."""

    disk: Disk
    fd: int
    start: int
    end: int
    first_offset: int
    leader_epoch: int = -1


@dataclass(slots=True)
class Stretch:
    """Valid batches that follow each other: a row of numbers for each, as `batch_rows` has it.

    The rows are good until the next stretch is asked for.
    """

    rows: array[int]
    count: int
    # Where the batches end, the offset that follows them, and the leader epoch of the last.
    end: int
    next_offset: int
    leader_epoch: int
    # Why the batch that follows is not valid; empty where none was found to be so.
    fault: str


def stretches(extent: Extent, *, verify: bool) -> Iterator[Stretch]:
    """All batches up to the first invalid one or the end of the extent, many at a time."""
    for rows, count, end, next_offset, leader_epoch, stop in _walk(extent, verify=verify):
        fault = kernel.FAULT_MESSAGES.get(stop, "")
        yield Stretch(rows, count, end, next_offset, leader_epoch, fault)


def walk(extent: Extent) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch up to the first invalid one or the end of the extent."""
    for rows, count, *_ in _walk(extent, verify=False):
        for at in range(0, count * ROW_FIELDS, ROW_FIELDS):
            yield rows[at + POSITION], BatchHeader(*rows[at : at + HEADER_FIELDS])


def find(extent: Extent, offset: int) -> int | None:
    """Where the first batch begins whose last offset is at least `offset`."""
    for rows, count, _, next_offset, *_ in _walk(extent, verify=False):
        if next_offset > offset:
            for at in range(0, count * ROW_FIELDS, ROW_FIELDS):
                if rows[at + BASE_OFFSET] + rows[at + LAST_OFFSET_DELTA] >= offset:
                    return rows[at + POSITION]
    return None


def find_boundary(extent: Extent, start: int, end: int) -> tuple[int, int]:
    """The last batch boundary up to `end`, or the first behind `start`; the offset that follows.

    The boundary is where the extent begins if no valid batch lies there.
    """
    boundary, next_offset = extent.start, -1
    for rows, count, position, following, *_ in _walk(extent, verify=False):
        if position > end:
            for at in range(0, count * ROW_FIELDS, ROW_FIELDS):
                begin = rows[at + POSITION]
                if begin > start and begin + rows[at + BATCH_LENGTH] + LOG_OVERHEAD > end:
                    return begin, rows[at + BASE_OFFSET]
        boundary, next_offset = position, following
    return boundary, next_offset


def _walk(extent: Extent, *, verify: bool) -> Iterator[tuple[array[int], int, int, int, int, int]]:
    """What a `Stretch` holds, with the kernel's reason to stop; searches need it without names."""
    disk, fd, position, end = extent.disk, extent.fd, extent.start, extent.end
    next_offset, leader_epoch = extent.first_offset, extent.leader_epoch
    offset_max = next_offset + LARGEST_RELATIVE_OFFSET
    checksum = crc32c if verify else None
    chunk_bytes = _CHUNK_BYTES_MAX if verify else _CHUNK_BYTES_MIN
    rows_max = min((end - position) // HEADER_BYTES, _ROWS_MAX if verify else _ROWS_MIN)
    rows = array("q", bytes(_ROW_BYTES * rows_max))
    chunk, chunk_start, needed = memoryview(b""), position, HEADER_BYTES
    stop = kernel.MORE
    while stop <= kernel.FULL and position < end:
        if stop == kernel.MORE:
            length = min(max(chunk_bytes, needed), end - position)
            chunk, chunk_start = memoryview(disk.pread(fd, length, position)), position
            if len(chunk) < length:
                # The file is shorter than it was said to be.
                end = chunk_start + len(chunk)
        elif rows_max < _ROWS_MAX:
            rows_max *= 8
            rows = array("q", bytes(_ROW_BYTES * rows_max))
        stop, count, position, next_offset, leader_epoch, needed = kernel.walk(
            chunk, chunk_start, position, end, next_offset, offset_max,
            leader_epoch, _LARGEST_LEADER_EPOCH, checksum, rows,
        )  # fmt: skip
        if stop == kernel.MORE and not verify:
            # Batches that lie in the chunk are read ahead of; those that do not are leapt over.
            within = position <= chunk_start + len(chunk)
            chunk_bytes = min(2 * chunk_bytes, _CHUNK_BYTES_MAX) if within else _CHUNK_BYTES_MIN
        yield rows, count, position, next_offset, leader_epoch, stop


def header_at(disk: Disk, fd: int, position: int) -> BatchHeader | None:
    """The header that begins at a position, or None where there is none."""
    try:
        header = read_header(disk.pread(fd, HEADER_BYTES, position))
    except ProtocolError:
        return None
    return header if header.magic == MAGIC else None
