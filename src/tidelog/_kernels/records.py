"""The records inside an uncompressed record batch v2, looked into: validate and index.

This file is plain Python and runs as it is. Where a compiler is at hand when the package is built,
Cython compiles it with the types that `records.pxd` gives; `tidelog._kernels.COMPILED` tells which
form runs. Both forms give the same answer to every input, and both parse hostile bytes: every read
is checked against the end of its record, every sum against 64 bits, and nothing is allocated here.

One record, all integers zigzag varints of at most 5 bytes (10 for the timestamp delta):

    length | attributes (1 byte, 0) | timestamp delta | offset delta | key length or -1 | key
    | value length or -1 | value | header count | { key length | key | value length or -1 | value }

`index` writes one row of `ROW_FIELDS` int32 values for each record and its timestamp delta into an
int64 column of its own; positions count from the first byte of the payload.
"""

from __future__ import annotations

from typing import Final

from tidelog._kernels.buffers import Buffer, Int32Buffer, Int64Buffer

ROW_FIELDS: Final = 7
OFFSET_DELTA: Final = 0
START: Final = 1
KEY_POSITION: Final = 2
KEY_LENGTH: Final = 3
VALUE_POSITION: Final = 4
VALUE_LENGTH: Final = 5
HEADERS_POSITION: Final = 6

RECORD_BYTES_MIN: Final = 7

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
_INT64_MIN = -9223372036854775808

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


def _varint(payload: Buffer, position: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 32 bits and the position after it, which is -1 if it is bad."""
    value = 0
    shift = 0
    while position < end:
        byte = payload[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 4294967295:
                return (0, -1)
            return ((value >> 1) ^ -(value & 1), position)
        shift += 7
        if shift > 28:
            return (0, -1)
    return (0, -1)


def _varlong(payload: Buffer, position: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits and the position after it, which is -1 if it is bad."""
    value = 0
    shift = 0
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
    if _headers_end(payload, position, end) != end:
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
        if timestamp_delta > 0:
            if base_timestamp > _INT64_MAX - timestamp_delta:
                return (_TIMESTAMP, index, highest, highest_index)
        elif base_timestamp < _INT64_MIN - timestamp_delta:
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
    payload: Buffer, record_count: int, rows: Int32Buffer, timestamp_deltas: Int64Buffer
) -> tuple[int, int]:
    """Write where everything lies: (fault or 0, index of the bad record or the record count).

    Unlike `validate` it accepts gaps between rising offset deltas, which compaction leaves.
    """
    position = 0
    row = 0
    record = 0
    limit = len(payload)
    previous_delta = -1
    if record_count < 0 or len(rows) // 7 < record_count or len(timestamp_deltas) < record_count:
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
        previous_delta = offset_delta
        rows[row] = offset_delta
        rows[row + 1] = start
        rows[row + 2] = key_position
        rows[row + 3] = key_length
        rows[row + 4] = value_position
        rows[row + 5] = value_length
        rows[row + 6] = headers_position
        timestamp_deltas[record] = timestamp_delta
        row += 7
        record += 1
    if position != limit:
        return (_TRAILING, record)
    return (0, record)
