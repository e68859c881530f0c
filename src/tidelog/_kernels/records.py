"""The records inside an uncompressed record batch v2: validate, index, gather, deal and encode.

This file is plain Python and runs as it is. Where a compiler is at hand when the package is built,
Cython compiles it with the types that `records.pxd` gives; `tidelog._kernels.COMPILED` tells which
form runs. Both forms give the same answer to every input, and both parse hostile bytes: every read
is checked against the end of its record, every sum against 64 bits, and nothing is allocated here
except by `reserve`, for who fills it himself.

One record, all integers zigzag varints of at most 5 bytes (10 for the timestamp delta):

    length | attributes (1 byte, 0) | timestamp delta | offset delta | key length or -1 | key
    | value length or -1 | value | header count | { key length | key | value length or -1 | value }

`index` writes one row of `ROW_FIELDS` int32 values for each record, and its timestamp into an int64
column of its own; positions count from the first byte of the payload. The gather functions append
those rows to columns in Arrow's layout (int32 offsets, data, validity bits), batch after batch into
the same buffers; `encode` makes a payload from such columns, and `fill` goes on with one. Columns
above 2 GiB are left out: the caller begins new ones. `choose_partitions` and `group_rows` deal the
rows of columns to partitions before that. Network bytes never raise here; a `ValueError` tells of
arrays too short.
"""

from __future__ import annotations

from typing import Final

from tidelog._kernels import memory
from tidelog._kernels.buffers import (
    Buffer,
    BytesColumn,
    HeadersColumn,
    Int32Buffer,
    Int64Buffer,
    IntegerColumn,
    RecordColumns,
    WritableBuffer,
)

ROW_FIELDS: Final = 7
OFFSET_DELTA: Final = 0
START: Final = 1
KEY_POSITION: Final = 2
KEY_LENGTH: Final = 3
VALUE_POSITION: Final = 4
VALUE_LENGTH: Final = 5
HEADERS_POSITION: Final = 6

RECORD_BYTES_MIN: Final = 7
RECORD_OVERHEAD_MAX: Final = 36
HEADER_OVERHEAD_MAX: Final = 10

_LENGTH = 1
_ATTRIBUTES = 2
_TIMESTAMP = 3
_OFFSET = 4
_KEY = 5
_VALUE = 6
_HEADERS = 7
_TRAILING = 8
_KEY_MISSING = 9
_TIMESTAMP_RANGE = 10
_INT64_MAX = 9223372036854775807
_INT64_MIN = -_INT64_MAX - 1
# Literals beyond 31 bits would be Python's integers in compiled code, and slow.
_UINT32_MAX = 0xFFFFFFFF
_MURMUR2_SEED = 0x9747B28C

KEY_MISSING: Final = 9
TIMESTAMP_RANGE: Final = 10

FAULT_MESSAGES: Final[dict[int, str]] = {
    1: "the record's length reaches outside the batch",
    2: "the record's attributes are not zero",
    3: "the record's timestamp delta cannot be read",
    4: "the record's offset delta is not the next one",
    5: "the record's key reaches outside the record",
    6: "the record's value reaches outside the record",
    7: "the record's headers do not fill the rest of the record",
    8: "bytes follow the last record of the batch",
    9: "the record has no key, which a compacted topic needs",
    10: "the record's timestamp is out of range",
}


def reserve(size: int) -> bytearray:
    """Bytes of which every one will be overwritten; clearing them first would be wasted."""
    if size < 0:
        raise ValueError("a size is not negative")
    return memory.reserve(size)


def _varint(payload: Buffer, position: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 32 bits and the position after it, which is -1 if it is bad."""
    if position >= end:
        return (0, -1)
    value = payload[position]
    position += 1
    if value < 128:
        return ((value >> 1) ^ -(value & 1), position)
    value &= 127
    shift = 7
    while position < end:
        byte = payload[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 32:
                return (0, -1)
            return ((value >> 1) ^ -(value & 1), position)
        shift += 7
        if shift > 28:
            return (0, -1)
    return (0, -1)


def _varlong(payload: Buffer, position: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits and the position after it, which is -1 if it is bad."""
    if position >= end:
        return (0, -1)
    value = payload[position]
    position += 1
    if value < 128:
        return ((value >> 1) ^ -(value & 1), position)
    value &= 127
    shift = 7
    while position < end:
        byte = payload[position]
        position += 1
        if shift == 63 and byte > 1:
            return (0, -1)
        value |= (byte & 127) << shift
        if byte < 128:
            return ((value >> 1) ^ -(value & 1), position)
        shift += 7
    return (0, -1)


def _headers_end(payload: Buffer, position: int, end: int) -> int:
    """The position after the headers that begin at `position`, or -1."""
    count, position = _varint(payload, position, end)
    if position < 0 or count < 0 or count > (end - position) // 2:
        return -1
    while count > 0:
        length, position = _varint(payload, position, end)
        if position < 0 or length < 0 or length > end - position:
            return -1
        position += length
        length, position = _varint(payload, position, end)
        if position < 0 or length < -1 or length > end - position:
            return -1
        if length > 0:
            position += length
        count -= 1
    return position


def _record(
    payload: Buffer, position: int, limit: int
) -> tuple[int, int, int, int, int, int, int, int]:
    """The record at `position`: its end (or minus the fault), deltas, and where its parts lie."""
    length, position = _varint(payload, position, limit)
    if position < 0 or length < 1 or length > limit - position:
        return (-_LENGTH, 0, 0, 0, 0, 0, 0, 0)
    end = position + length
    if payload[position] != 0:
        return (-_ATTRIBUTES, 0, 0, 0, 0, 0, 0, 0)
    timestamp_delta, position = _varlong(payload, position + 1, end)
    if position < 0:
        return (-_TIMESTAMP, 0, 0, 0, 0, 0, 0, 0)
    offset_delta, position = _varint(payload, position, end)
    if position < 0 or offset_delta < 0:
        return (-_OFFSET, 0, 0, 0, 0, 0, 0, 0)
    key_length, key_position = _varint(payload, position, end)
    if key_position < 0 or key_length < -1 or key_length > end - key_position:
        return (-_KEY, 0, 0, 0, 0, 0, 0, 0)
    position = key_position
    if key_length > 0:
        position += key_length
    value_length, value_position = _varint(payload, position, end)
    if value_position < 0 or value_length < -1 or value_length > end - value_position:
        return (-_VALUE, 0, 0, 0, 0, 0, 0, 0)
    position = value_position
    if value_length > 0:
        position += value_length
    # Most records end with a header count of zero.
    if (position != end - 1 or payload[position] != 0) and _headers_end(
        payload, position, end
    ) != end:
        return (-_HEADERS, 0, 0, 0, 0, 0, 0, 0)
    return (
        end,
        offset_delta,
        timestamp_delta,
        key_position,
        key_length,
        value_position,
        value_length,
        position,
    )


def _timestamp_fits(base_timestamp: int, timestamp_delta: int) -> bool:
    """Whether their sum is an int64."""
    if timestamp_delta > 0:
        return base_timestamp <= _INT64_MAX - timestamp_delta
    return base_timestamp >= _INT64_MIN - timestamp_delta


def validate(
    payload: Buffer,
    record_count: int,
    base_timestamp: int,
    timestamp_min: int,
    timestamp_max: int,
    require_keys: bool,
) -> tuple[int, int, int, int]:
    """Walk a produced payload: (fault or 0, index of the bad record, max timestamp, its index).

    Offset deltas must be 0, 1, 2 and so on, and the last record must end where the payload ends.
    A timestamp of -1 stands for none and is in every range. After a fault the maximum is that of
    the records before it.
    """
    position = 0
    index = 0
    limit = len(payload)
    highest = -1
    highest_index = 0
    while index < record_count:
        (
            position,
            offset_delta,
            timestamp_delta,
            _key_position,
            key_length,
            _value_position,
            _value_length,
            _headers_position,
        ) = _record(payload, position, limit)
        if position < 0:
            return (-position, index, highest, highest_index)
        if offset_delta != index:
            return (_OFFSET, index, highest, highest_index)
        if not _timestamp_fits(base_timestamp, timestamp_delta):
            return (_TIMESTAMP, index, highest, highest_index)
        timestamp = base_timestamp + timestamp_delta
        if require_keys and key_length < 0:
            return (_KEY_MISSING, index, highest, highest_index)
        if timestamp != -1 and (timestamp < timestamp_min or timestamp > timestamp_max):
            return (_TIMESTAMP_RANGE, index, highest, highest_index)
        if timestamp > highest:
            highest = timestamp
            highest_index = index
        index += 1
    if position != limit:
        return (_TRAILING, index, highest, highest_index)
    return (0, index, highest, highest_index)


def index(
    payload: Buffer,
    record_count: int,
    base_timestamp: int,
    rows: Int32Buffer,
    timestamps: Int64Buffer,
) -> tuple[int, int]:
    """Write where everything lies: (fault or 0, index of the bad record or the record count).

    Unlike `validate` it accepts gaps between rising offset deltas, which compaction leaves.
    """
    position = 0
    row = 0
    record = 0
    limit = len(payload)
    previous_delta = -1
    if record_count < 0 or len(rows) // 7 < record_count or len(timestamps) < record_count:
        raise ValueError("the arrays are too short for the records")
    while record < record_count:
        start = position
        (
            position,
            offset_delta,
            timestamp_delta,
            key_position,
            key_length,
            value_position,
            value_length,
            headers_position,
        ) = _record(payload, position, limit)
        if position < 0:
            return (-position, record)
        if offset_delta <= previous_delta:
            return (_OFFSET, record)
        if not _timestamp_fits(base_timestamp, timestamp_delta):
            return (_TIMESTAMP, record)
        previous_delta = offset_delta
        rows[row] = offset_delta
        rows[row + 1] = start
        rows[row + 2] = key_position
        rows[row + 3] = key_length
        rows[row + 4] = value_position
        rows[row + 5] = value_length
        rows[row + 6] = headers_position
        timestamps[record] = base_timestamp + timestamp_delta
        row += 7
        record += 1
    if position != limit:
        return (_TRAILING, record)
    return (0, record)


def measure(
    payload: Buffer, rows: Int32Buffer, record_count: int
) -> tuple[int, int, int, int, int]:
    """What gathering needs: bytes of keys, of values, headers, bytes of their keys and values."""
    key_bytes = 0
    value_bytes = 0
    header_count = 0
    header_key_bytes = 0
    header_value_bytes = 0
    limit = len(payload)
    row = 0
    record = 0
    if record_count < 0 or len(rows) // 7 < record_count:
        raise ValueError("the rows are too few for the records")
    while record < record_count:
        if rows[row + 3] > 0:
            key_bytes += rows[row + 3]
        if rows[row + 5] > 0:
            value_bytes += rows[row + 5]
        position = rows[row + 6]
        if position < 0:
            raise ValueError("a row points outside the payload")
        count, position = _varint(payload, position, limit)
        while position >= 0 and count > 0:
            header_count += 1
            length, position = _varint(payload, position, limit)
            if position < 0 or length < 0 or length > limit - position:
                raise ValueError("a row points outside the payload")
            header_key_bytes += length
            length, position = _varint(payload, position + length, limit)
            if position < 0 or length > limit - position:
                raise ValueError("a row points outside the payload")
            if length > 0:
                header_value_bytes += length
                position += length
            count -= 1
        row += 7
        record += 1
    return (key_bytes, value_bytes, header_count, header_key_bytes, header_value_bytes)


def gather_offsets(
    rows: Int32Buffer, record_count: int, base_offset: int, row_start: int, output: Int64Buffer
) -> None:
    """Append the offsets of the records to an int64 column."""
    if record_count < 0 or len(rows) // 7 < record_count:
        raise ValueError("the rows are too few for the records")
    if row_start < 0 or row_start > len(output) or record_count > len(output) - row_start:
        raise ValueError("the column is too short for the records")
    if base_offset < 0 or base_offset > _INT64_MAX - 2147483647:
        raise ValueError("the base offset is out of range")
    record = 0
    while record < record_count:
        output[row_start + record] = base_offset + rows[record * 7]
        record += 1


def gather_bytes(
    payload: Buffer,
    rows: Int32Buffer,
    record_count: int,
    field: int,
    row_start: int,
    offsets: Int32Buffer,
    data: WritableBuffer,
    validity: WritableBuffer,
) -> int:
    """Append the keys or the values to a column: the nulls among them.

    `field` is KEY_POSITION or VALUE_POSITION. The bytes go after `offsets[row_start]`, and the
    validity bits must be zero beforehand.
    """
    limit = len(payload)
    capacity = min(len(data), 2147483647)
    if record_count < 0 or len(rows) // 7 < record_count or (field != 2 and field != 4):
        raise ValueError("the rows are too few for the records, or the field is not one")
    if row_start < 0 or row_start >= len(offsets) or record_count >= len(offsets) - row_start:
        raise ValueError("the offsets are too few for the records")
    if len(validity) < (row_start + record_count + 7) // 8:
        raise ValueError("the validity bits are too few for the records")
    end = offsets[row_start]
    if end < 0 or end > capacity:
        raise ValueError("the column begins outside its data")
    nulls = 0
    out = row_start
    row = field
    record = 0
    while record < record_count:
        position = rows[row]
        length = rows[row + 1]
        if length < 0:
            nulls += 1
        else:
            if position < 0 or length > limit - position or length > capacity - end:
                raise ValueError("the data is too short for the records")
            memory.copy_bytes(payload, position, data, end, length)
            end += length
            validity[out >> 3] |= 1 << (out & 7)
        out += 1
        offsets[out] = end
        row += 7
        record += 1
    return nulls


def gather_headers(
    payload: Buffer,
    rows: Int32Buffer,
    record_count: int,
    row_start: int,
    list_offsets: Int32Buffer,
    key_offsets: Int32Buffer,
    key_data: WritableBuffer,
    value_offsets: Int32Buffer,
    value_data: WritableBuffer,
    value_validity: WritableBuffer,
) -> int:
    """Append the headers as a list of (key, value) per record: the nulls among the values."""
    limit = len(payload)
    header_max = min(len(key_offsets), len(value_offsets), len(value_validity) * 8 + 1) - 1
    key_capacity = min(len(key_data), 2147483647)
    value_capacity = min(len(value_data), 2147483647)
    if record_count < 0 or len(rows) // 7 < record_count:
        raise ValueError("the rows are too few for the records")
    if row_start < 0 or row_start >= len(list_offsets):
        raise ValueError("the offsets are too few for the records")
    if record_count >= len(list_offsets) - row_start:
        raise ValueError("the offsets are too few for the records")
    header = list_offsets[row_start]
    if header < 0 or header > header_max:
        raise ValueError("the headers begin outside their columns")
    key_end = key_offsets[header]
    value_end = value_offsets[header]
    if key_end < 0 or key_end > key_capacity or value_end < 0 or value_end > value_capacity:
        raise ValueError("the headers begin outside their data")
    nulls = 0
    record = 0
    while record < record_count:
        position = rows[record * 7 + 6]
        if position < 0:
            raise ValueError("a row points outside the payload")
        count, position = _varint(payload, position, limit)
        while position >= 0 and count > 0:
            length, position = _varint(payload, position, limit)
            if header >= header_max or position < 0 or length < 0:
                raise ValueError("the columns are too short for the headers")
            if length > limit - position or length > key_capacity - key_end:
                raise ValueError("the columns are too short for the headers")
            memory.copy_bytes(payload, position, key_data, key_end, length)
            key_end += length
            length, position = _varint(payload, position + length, limit)
            if position < 0 or length > limit - position or length > value_capacity - value_end:
                raise ValueError("the columns are too short for the headers")
            if length < 0:
                nulls += 1
            else:
                memory.copy_bytes(payload, position, value_data, value_end, length)
                position += length
                value_end += length
                value_validity[header >> 3] |= 1 << (header & 7)
            header += 1
            key_offsets[header] = key_end
            value_offsets[header] = value_end
            count -= 1
        record += 1
        list_offsets[row_start + record] = header
    return nulls


def _zigzag(value: int) -> int:
    """The unsigned number that a signed one is written as."""
    if value < 0:
        bits = -(value + 1)
        return bits * 2 + 1
    bits = value
    return bits * 2


def _varint_bytes(bits: int) -> int:
    """How many bytes a varint takes."""
    size = 1
    while bits > 127:
        bits >>= 7
        size += 1
    return size


def _put(output: WritableBuffer, position: int, bits: int) -> int:
    """Write a varint where there is room for it; the position after it."""
    while bits > 127:
        output[position] = (bits & 127) | 128
        position += 1
        bits >>= 7
    output[position] = bits
    return position + 1


def _slice_length(
    offsets: Int32Buffer, validity: Buffer | None, index: int, data_bytes: int
) -> int:
    """The length of one value of a column: -1 for null, -2 where the offsets are nonsense."""
    if validity is not None and not (validity[index >> 3] >> (index & 7)) & 1:
        return -1
    start = offsets[index]
    end = offsets[index + 1]
    if start < 0 or end < start or end > data_bytes:
        return -2
    return end - start


def _column_fits(
    offsets: Int32Buffer, validity: Buffer | None, row_start: int, row_count: int
) -> bool:
    """Whether a column has those rows."""
    if row_start < 0 or row_count < 0 or row_start >= len(offsets):
        return False
    if row_count >= len(offsets) - row_start:
        return False
    return validity is None or len(validity) >= (row_start + row_count + 7) // 8


def _headers_bytes(
    header: int,
    header_end: int,
    name_offsets: Int32Buffer,
    name_validity: Buffer | None,
    name_bytes: int,
    item_offsets: Int32Buffer,
    item_validity: Buffer | None,
    item_bytes: int,
) -> int:
    """What the headers of one record take behind their count, or -1 where they are nonsense."""
    if header < 0 or header_end < header:
        return -1
    if not _column_fits(name_offsets, name_validity, header, header_end - header):
        return -1
    if not _column_fits(item_offsets, item_validity, header, header_end - header):
        return -1
    total = 0
    while header < header_end:
        length = _slice_length(name_offsets, name_validity, header, name_bytes)
        if length < 0:
            return -1
        total += _varint_bytes(_zigzag(length)) + length
        length = _slice_length(item_offsets, item_validity, header, item_bytes)
        if length < -1:
            return -1
        total += _varint_bytes(_zigzag(length))
        if length > 0:
            total += length
        header += 1
    return total


def _put_column(
    output: WritableBuffer,
    position: int,
    offsets: Int32Buffer,
    data: Buffer,
    index: int,
    length: int,
) -> int:
    """Write the length of one value of a column and its bytes; the position after them."""
    position = _put(output, position, _zigzag(length))
    if length > 0:
        memory.copy_bytes(data, offsets[index], output, position, length)
        position += length
    return position


def _timestamp_delta_fits(timestamp: int, base_timestamp: int) -> bool:
    """Whether their difference is an int64."""
    if base_timestamp > 0:
        return timestamp >= _INT64_MIN + base_timestamp
    return timestamp <= _INT64_MAX + base_timestamp


def _body_bytes(
    timestamp_bits: int, record: int, key_length: int, value_length: int, header_count: int
) -> int:
    """What one record takes behind its length, but for its headers."""
    total = 1 + _varint_bytes(timestamp_bits) + _varint_bytes(_zigzag(record))
    total += _varint_bytes(_zigzag(key_length)) + _varint_bytes(_zigzag(value_length))
    total += _varint_bytes(_zigzag(header_count))
    if key_length > 0:
        total += key_length
    if value_length > 0:
        total += value_length
    return total


def encode(
    output: WritableBuffer,
    timestamps: Int64Buffer,
    base_timestamp: int,
    key: BytesColumn,
    value: BytesColumn,
    headers: HeadersColumn | None,
    row_start: int,
    record_count: int,
) -> tuple[int, int]:
    """Write a payload from columns, deltas from 0: (its size, the highest timestamp).

    An output of `RECORD_OVERHEAD_MAX` for each record and `HEADER_OVERHEAD_MAX` for each header
    beside their bytes is always enough.
    """
    columns = (key, value, headers)
    taken, position, highest = fill(
        output, 0, 0, timestamps, base_timestamp, columns, None, row_start, record_count
    )
    if taken < record_count:
        raise ValueError("the output is too short for the records")
    return (position, highest)


def fill(
    output: WritableBuffer,
    position: int,
    first_delta: int,
    timestamps: Int64Buffer,
    base_timestamp: int,
    columns: RecordColumns,
    rows: Int32Buffer | None,
    row_start: int,
    row_count: int,
) -> tuple[int, int, int]:
    """Append rows to a payload while they fit: (rows taken, its size, their highest timestamp).

    `position` is the payload's size so far and `first_delta` its records. With `rows` the row
    numbers are read there, from `row_start` on; so rows sorted by partition are never moved.
    """
    key, value, headers = columns
    key_offsets, key_data, key_validity = key
    value_offsets, value_data, value_validity = value
    has_headers = headers is not None
    if headers is not None:
        list_offsets, names, items = headers
        name_offsets, name_data, name_validity = names
        item_offsets, item_data, item_validity = items
    limit = min(len(timestamps), len(key_offsets) - 1, len(value_offsets) - 1)
    if key_validity is not None:
        limit = min(limit, len(key_validity) * 8)
    if value_validity is not None:
        limit = min(limit, len(value_validity) * 8)
    if headers is not None:
        limit = min(limit, len(list_offsets) - 1)
    selected = rows is not None
    available = len(rows) if rows is not None else limit
    if not 0 <= row_start <= available or not 0 <= row_count <= available - row_start:
        raise ValueError("the columns are too short for the records")
    if position < 0 or position > len(output) or not 0 <= first_delta <= 2147483647 - row_count:
        raise ValueError("the records begin outside the output")
    highest = _INT64_MIN
    header = header_end = headers_bytes = taken = 0
    while taken < row_count:
        at = row_start + taken
        if selected:
            at = rows[at]  # type: ignore[index]
            if at < 0 or at >= limit:
                raise ValueError("a row number is outside the columns")
        timestamp = timestamps[at]
        if not _timestamp_delta_fits(timestamp, base_timestamp):
            raise ValueError("a timestamp is too far from the base timestamp")
        timestamp_bits = _zigzag(timestamp - base_timestamp)
        key_length = _slice_length(key_offsets, key_validity, at, len(key_data))
        value_length = _slice_length(value_offsets, value_validity, at, len(value_data))
        if has_headers:
            header = list_offsets[at]
            header_end = list_offsets[at + 1]
            headers_bytes = _headers_bytes(
                header, header_end, name_offsets, name_validity, len(name_data),
                item_offsets, item_validity, len(item_data),
            )  # fmt: skip
        if key_length < -1 or value_length < -1 or headers_bytes < 0:
            raise ValueError("the offsets of a column reach outside its data")
        body = headers_bytes + _body_bytes(
            timestamp_bits, first_delta + taken, key_length, value_length, header_end - header
        )
        if body > 2147483647 or body + _varint_bytes(_zigzag(body)) > len(output) - position:
            break
        highest = max(highest, timestamp)
        position = _put(output, position, _zigzag(body))
        output[position] = 0
        position = _put(output, position + 1, timestamp_bits)
        position = _put(output, position, _zigzag(first_delta + taken))
        position = _put_column(output, position, key_offsets, key_data, at, key_length)
        position = _put_column(output, position, value_offsets, value_data, at, value_length)
        position = _put(output, position, _zigzag(header_end - header))
        while header < header_end:
            length = _slice_length(name_offsets, name_validity, header, len(name_data))
            position = _put_column(output, position, name_offsets, name_data, header, length)
            length = _slice_length(item_offsets, item_validity, header, len(item_data))
            position = _put_column(output, position, item_offsets, item_data, header, length)
            header += 1
        taken += 1
    return (taken, position, highest)


def _murmur2(data: Buffer, position: int, length: int) -> int:
    """The hash of a range that the caller has checked."""
    state = (_MURMUR2_SEED ^ length) & _UINT32_MAX
    end = position + (length & ~3)
    while position < end:
        word = data[position + 3]
        word = word << 8 | data[position + 2]
        word = word << 8 | data[position + 1]
        word = word << 8 | data[position]
        word = (word * 0x5BD1E995) & _UINT32_MAX
        word ^= word >> 24
        state = ((state * 0x5BD1E995) ^ (word * 0x5BD1E995)) & _UINT32_MAX
        position += 4
    word = 0
    end += length & 3
    while end > position:
        end -= 1
        word = word << 8 | data[end]
    if length & 3:
        state = ((state ^ word) * 0x5BD1E995) & _UINT32_MAX
    state = ((state ^ (state >> 13)) * 0x5BD1E995) & _UINT32_MAX
    return state ^ (state >> 15)


def murmur2(data: Buffer) -> int:
    """The 32-bit murmur2 of Kafka's clients, as an unsigned integer."""
    return _murmur2(data, 0, len(data))


def choose_partitions(
    key: BytesColumn | None,
    given: IntegerColumn | None,
    row_count: int,
    partition_count: int,
    output: Int32Buffer,
) -> int:
    """Write each row's partition: the one given, else by its key, else -1 for any.

    The answer is the first row whose given partition does not exist, or -1.
    """
    if partition_count < 1 or row_count < 0 or row_count > len(output):
        raise ValueError("the output is too short for the rows")
    has_keys = key is not None
    if key is not None:
        offsets, data, validity = key
        if not _column_fits(offsets, validity, 0, row_count):
            raise ValueError("the key column is too short for the rows")
    has_given = given is not None
    if given is not None:
        numbers, given_validity = given
        if row_count > len(numbers) or (
            given_validity is not None and len(given_validity) < (row_count + 7) // 8
        ):
            raise ValueError("the partition column is too short for the rows")
    row = 0
    while row < row_count:
        if has_given and (given_validity is None or (given_validity[row >> 3] >> (row & 7)) & 1):
            number = numbers[row]
            if number < 0 or number >= partition_count:
                return row
            output[row] = number
        else:
            output[row] = -1
            if has_keys:
                length = _slice_length(offsets, validity, row, len(data))
                if length < -1:
                    raise ValueError("the offsets of the key column reach outside its data")
                if length >= 0:
                    hashed = _murmur2(data, offsets[row], length) & 0x7FFFFFFF
                    output[row] = hashed % partition_count
        row += 1
    return -1


def group_rows(
    partitions: Int32Buffer,
    row_count: int,
    partition_count: int,
    ends: Int32Buffer,
    rows: Int32Buffer,
) -> None:
    """Sort row numbers by partition, -1 first, keeping their order within each.

    Those of partition p are `rows[ends[p] : ends[p + 1]]`, those of -1 `rows[: ends[0]]`.
    """
    if row_count < 0 or row_count > len(partitions) or row_count > len(rows):
        raise ValueError("the rows are too few")
    if partition_count < 0 or partition_count > len(ends) - 2 or row_count > 2147483647:
        raise ValueError("the ends are too few for the partitions")
    group = 0
    while group < partition_count + 2:
        ends[group] = 0
        group += 1
    row = 0
    while row < row_count:
        group = partitions[row] + 1
        if group < 0 or group > partition_count:
            raise ValueError("a partition is outside the topic")
        ends[group + 1] += 1
        row += 1
    group = 0
    while group <= partition_count:
        ends[group + 1] += ends[group]
        group += 1
    row = 0
    while row < row_count:
        group = partitions[row] + 1
        rows[ends[group]] = row
        ends[group] += 1
        row += 1
