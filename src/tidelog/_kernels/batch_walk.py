"""Stored or fetched record batches, many in one call: walk their headers, learn what they say.

`walk` goes from header to header through a chunk of bytes and writes one row of `batch_rows` for
each batch, up to the first that cannot be. The rows then tell, without a step of Python for each
batch, which index entries are due (`due_entries`) and which batches decide what is known of the
producers (`keep_for_replay`). Recovery walks a segment this way, chunk after chunk; a follower
checks what it has fetched with one call.

Like `records` this file is plain Python that Cython compiles with the types of its `.pxd`. Both
forms give the same answer to every input, and both parse hostile bytes: every read is checked
against the end of the chunk, every sum against 64 bits. A `ValueError` tells of arrays too short.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

from tidelog._kernels import batch_rows
from tidelog._kernels.buffers import Buffer, Int32Buffer, Int64Buffer, WritableBuffer

# Why a walk stopped. Up to `END` nothing is wrong.
MORE: Final = 0
FULL: Final = 1
END: Final = 2
PAST_END: Final = 3
MAGIC: Final = 4
LENGTH: Final = 5
OFFSET: Final = 6
OFFSET_MAX: Final = 7
LAST_DELTA: Final = 8
EPOCH: Final = 9
EPOCH_MAX: Final = 10
CHECKSUM: Final = 11

FAULT_MESSAGES: Final[dict[int, str]] = {
    3: "the batch reaches past the end",
    4: "the batch has another magic than 2",
    5: "the batch is shorter than a header",
    6: "the offset of the batch is below the one expected",
    7: "the offset of the batch is too high",
    8: "the last offset delta of the batch is negative",
    9: "the leader epoch of the batch is older than that of the batch before it",
    10: "the leader epoch of the batch is newer than that of the leader",
    11: "the batch does not match its checksum",
}

# How many notes `due_entries` reads and brings up to date: the bytes behind the last entry, the
# first timestamp, the largest, its offset, and the largest that has an entry.
NOTES: Final = 5

# As many as `storage.producers` remembers of each producer.
_BATCHES_KEPT = 5

_INT64_MAX = 9223372036854775807
_INT32_MAX = 2147483647
_UINT32_MAX = 0xFFFFFFFF


def _make_tables() -> array[int]:
    """Eight tables of 256 entries: what each of eight bytes adds to a CRC-32C."""
    tables = [0] * 2048
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        tables[byte] = value
    for place in range(256, 2048):
        before = tables[place - 256]
        tables[place] = before >> 8 ^ tables[before & 255]
    return array("I", tables)


_TABLES = _make_tables()


def _crc32c(data: Buffer, position: int, end: int, tables: Int32Buffer) -> int:
    """The CRC-32C of a range that the caller has checked, eight bytes at a time."""
    state = _UINT32_MAX
    while end - position >= 8:
        state ^= (
            data[position]
            | data[position + 1] << 8
            | data[position + 2] << 16
            | data[position + 3] << 24
        )
        state = (
            tables[1792 + (state & 255)]
            ^ tables[1536 + (state >> 8 & 255)]
            ^ tables[1280 + (state >> 16 & 255)]
            ^ tables[1024 + (state >> 24)]
            ^ tables[768 + data[position + 4]]
            ^ tables[512 + data[position + 5]]
            ^ tables[256 + data[position + 6]]
            ^ tables[data[position + 7]]
        )
        position += 8
    while position < end:
        state = tables[(state ^ data[position]) & 255] ^ state >> 8
        position += 1
    return state ^ _UINT32_MAX


def crc32c(data: Buffer) -> int:
    """The CRC-32C of some bytes, by the tables that `walk` uses for small batches."""
    return _crc32c(data, 0, len(data), _TABLES)


def walk(
    chunk: Buffer,
    chunk_start: int,
    position: int,
    end: int,
    first_offset: int,
    offset_max: int,
    leader_epoch: int,
    leader_epoch_max: int,
    checksum: Callable[[Buffer], int] | None,
    rows: Int64Buffer,
) -> tuple[int, int, int, int, int, int]:
    """Write a row for each batch from `position` on; say why that stopped.

    `chunk` holds bytes from `chunk_start` on, and the last batch lies before `end`, which may be
    behind the chunk; positions count from the same zero. No batch begins below `first_offset` or
    the batch before it, nor ends above `offset_max`. With a `checksum` function batches must be
    whole and their bytes as they were written, and leader epochs must rise from `leader_epoch`,
    up to `leader_epoch_max`. Without one only headers are read, so `position` may end up behind
    the chunk.

    The answer: why it stopped; how many rows were written; the position behind their batches; the
    offset that follows and the last leader epoch; how many bytes from that position on the chunk
    must hold for the walk to go on, where it stopped for `MORE`.
    """
    data = chunk
    length = len(data)
    if position < chunk_start or chunk_start < 0 or offset_max < 0:
        raise ValueError("the walk begins before its chunk")
    if offset_max == _INT64_MAX:
        offset_max -= 1
    tables = _TABLES
    capacity = len(rows) // batch_rows.ROW_FIELDS
    count = 0
    needed = 0
    while True:
        if position >= end:
            stop = END if position == end else PAST_END
            break
        if end - position < batch_rows.HEADER_BYTES:
            stop = PAST_END
            break
        if count >= capacity:
            stop = FULL
            break
        place = position - chunk_start
        if length - place < batch_rows.HEADER_BYTES:
            needed = batch_rows.HEADER_BYTES
            stop = MORE
            break
        fields = batch_rows.read(data, place)
        base_offset, size, epoch, magic, stored_crc, _1, last_delta, _2, _3, _4, _5, _6, _7 = fields
        if magic != batch_rows.MAGIC_VALUE:
            stop = MAGIC
            break
        size += batch_rows.LOG_OVERHEAD
        if size < batch_rows.HEADER_BYTES:
            stop = LENGTH
            break
        if size > end - position:
            stop = PAST_END
            break
        if base_offset < first_offset:
            stop = OFFSET
            break
        if last_delta < 0:
            stop = LAST_DELTA
            break
        if base_offset > offset_max - last_delta:
            stop = OFFSET_MAX
            break
        if checksum is not None:
            if epoch < leader_epoch:
                stop = EPOCH
                break
            if epoch > leader_epoch_max:
                stop = EPOCH_MAX
                break
            if size > length - place:
                needed = size
                stop = MORE
                break
            checked = place + batch_rows.CHECKED_POSITION
            if size <= batch_rows.TABLE_BYTES_MAX:
                crc = _crc32c(data, checked, place + size, tables)
            else:
                crc = checksum(chunk[checked : place + size])
            if crc != stored_crc:
                stop = CHECKSUM
                break
        batch_rows.put(rows, count * batch_rows.ROW_FIELDS, fields, position)
        leader_epoch = epoch
        first_offset = base_offset + last_delta + 1
        position += size
        count += 1
    return (stop, count, position, first_offset, leader_epoch, needed)


def due_entries(
    rows: Int64Buffer,
    count: int,
    base_offset: int,
    index_interval_bytes: int,
    notes: Int64Buffer,
    offset_keys: Int32Buffer,
    offset_values: Int32Buffer,
    time_keys: Int64Buffer,
    time_values: Int32Buffer,
) -> tuple[int, int]:
    """Write the index entries that are due in these batches; how many of offsets, of times.

    `Segment.note` for many batches: an entry is due where more bytes than the interval lie behind
    the last one. `notes` says what the batches before have left and is brought up to date. The
    batches lie behind each other without a gap.
    """
    if count < 0 or count > len(rows) // batch_rows.ROW_FIELDS or len(notes) < NOTES:
        raise ValueError("the rows or the notes are too few")
    if count > len(offset_keys) or count > len(offset_values):
        raise ValueError("the offset entries are too few")
    if count > len(time_keys) or count > len(time_values):
        raise ValueError("the time entries are too few")
    if not count:
        return (0, 0)
    # Where the batch begins that the last entry names.
    mark = rows[batch_rows.POSITION] - notes[0]
    first = notes[1]
    largest = notes[2]
    largest_offset = notes[3]
    indexed = notes[4]
    offset_count = 0
    time_count = 0
    row = 0
    while row < count:
        at = row * batch_rows.ROW_FIELDS
        timestamp = (
            rows[at + batch_rows.MAX_TIMESTAMP] if rows[at + batch_rows.RECORD_COUNT] else -1
        )
        if timestamp > largest:
            largest = timestamp
            largest_offset = (
                rows[at + batch_rows.BASE_OFFSET] + rows[at + batch_rows.LAST_OFFSET_DELTA]
            )
        if first < 0:
            first = timestamp
        position = rows[at + batch_rows.POSITION]
        if position - mark > index_interval_bytes:
            mark = position
            relative = (
                rows[at + batch_rows.BASE_OFFSET] + rows[at + batch_rows.LAST_OFFSET_DELTA]
            ) - base_offset
            # An index has no room for more; its entries are sparse anyhow.
            if 0 <= relative <= _INT32_MAX and 0 <= position <= _INT32_MAX:
                offset_keys[offset_count] = relative
                offset_values[offset_count] = position
                offset_count += 1
                relative = largest_offset - base_offset
                if largest > indexed and 0 <= relative <= _INT32_MAX:
                    time_keys[time_count] = largest
                    time_values[time_count] = relative
                    time_count += 1
                    indexed = largest
        row += 1
    notes[0] = position + rows[at + batch_rows.BATCH_LENGTH] + batch_rows.LOG_OVERHEAD - mark
    notes[1] = first
    notes[2] = largest
    notes[3] = largest_offset
    notes[4] = indexed
    return (offset_count, time_count)


def keep_for_replay(
    rows: Int64Buffer, count: int, scratch: Int64Buffer, marks: WritableBuffer
) -> int:
    """Move the rows that decide what is known of producers to the front; how many there are.

    Replaying those alone, in order, gives the same as replaying all: every control batch, the last
    five batches of each producer, and the first of each transaction. The scratch has two numbers
    for each of a power of two of slots; the marks hold a zero for each row. A producer whose slot
    another one takes is counted from the start again, so that too few slots keep rows that are not
    needed, and lose none that are.
    """
    slots = len(scratch) // 2
    if slots < 1 or slots & (slots - 1):
        raise ValueError("the slots of the scratch are not a power of two")
    if count < 0 or count > len(rows) // batch_rows.ROW_FIELDS or count > len(marks):
        raise ValueError("the rows or the marks are too few")
    # Backwards for the last batches: a slot holds a producer and how many of its batches follow.
    slot = 0
    while slot < slots:
        scratch[2 * slot] = -1
        slot += 1
    found = 0
    row = count
    while row > 0:
        row -= 1
        at = row * batch_rows.ROW_FIELDS
        producer = rows[at + batch_rows.PRODUCER_ID]
        if producer >= 0:
            found += 1
            slot = 2 * (producer & (slots - 1))
            if rows[at + batch_rows.ATTRIBUTES] & batch_rows.CONTROL:
                marks[row] = 1
            elif scratch[slot] != producer:
                scratch[slot] = producer
                scratch[slot + 1] = 1
                marks[row] = 1
            elif scratch[slot + 1] < _BATCHES_KEPT:
                scratch[slot + 1] += 1
                marks[row] = 1
    if not found:
        return 0
    # Forwards for the first of a transaction: a slot holds a producer that has one open.
    slot = 0
    while slot < slots:
        scratch[2 * slot] = -1
        slot += 1
    kept = 0
    row = 0
    while row < count:
        at = row * batch_rows.ROW_FIELDS
        producer = rows[at + batch_rows.PRODUCER_ID]
        attributes = rows[at + batch_rows.ATTRIBUTES]
        if producer >= 0 and attributes & (batch_rows.CONTROL | batch_rows.TRANSACTIONAL):
            slot = 2 * (producer & (slots - 1))
            if attributes & batch_rows.CONTROL:
                scratch[slot] = -1
            elif scratch[slot] != producer:
                scratch[slot] = producer
                marks[row] = 1
        if marks[row]:
            if kept < row:
                batch_rows.copy(rows, at, kept * batch_rows.ROW_FIELDS)
            kept += 1
        row += 1
    return kept
