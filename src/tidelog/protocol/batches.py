"""Record batches of format v2: their header, their checksum, and the records inside them.

    offset  bytes                        offset  bytes
         0  8  base offset                   27  8  base timestamp
         8  4  batch length (what follows)   35  8  max timestamp
        12  4  partition leader epoch        43  8  producer id
        16  1  magic, 2                      51  2  producer epoch
        17  4  CRC-32C of all that follows   53  4  base sequence
        21  2  attributes                    57  4  record count
        23  4  last offset delta             61     records, compressed as one if at all

All integers are big-endian. Attributes: bits 0 to 2 codec, 3 timestamp type, 4 transactional,
5 control, 6 the base timestamp is a delete horizon. Base offset and leader epoch lie outside the
CRC, so that a broker stamps them in place.

Bad bytes raise `ProtocolError` here; the codecs raise `KafkaError` as `compression` says. The
message formats v0 and v1 are left out.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Protocol

from tidelog._kernels import COMPILED, batch_rows
from tidelog._kernels import records as kernel
from tidelog.errors import ProtocolError
from tidelog.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Codec,
    TimestampType,
)
from tidelog.protocol import compression
from tidelog.protocol.checksum import crc32c

Buffer = bytes | bytearray | memoryview

HEADER_BYTES: Final = batch_rows.HEADER_BYTES
LOG_OVERHEAD: Final = batch_rows.LOG_OVERHEAD
MAGIC: Final = batch_rows.MAGIC_VALUE
DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024

ATTRIBUTES_CODEC: Final = 0x07
ATTRIBUTES_LOG_APPEND_TIME: Final = 0x08
ATTRIBUTES_TRANSACTIONAL: Final = batch_rows.TRANSACTIONAL
ATTRIBUTES_CONTROL: Final = batch_rows.CONTROL
ATTRIBUTES_DELETE_HORIZON: Final = 0x40

CONTROL_ABORT: Final = 0
CONTROL_COMMIT: Final = 1

_HEADER: Final = batch_rows.HEADER


def _field(number: int) -> struct.Struct:
    """One field of the header."""
    return struct.Struct(">" + _HEADER.format[1 + number])


def _position(number: int) -> int:
    """Where a field of the header begins."""
    return struct.calcsize(_HEADER.format[: 1 + number])


_BASE_OFFSET: Final = _field(batch_rows.BASE_OFFSET)
_BATCH_LENGTH: Final = _field(batch_rows.BATCH_LENGTH)
_LEADER_EPOCH: Final = _field(batch_rows.LEADER_EPOCH)
_CRC: Final = _field(batch_rows.CRC)
_CONTROL_KEY: Final = struct.Struct(">hh")
_CONTROL_VALUE: Final = struct.Struct(">hi")

_BATCH_LENGTH_POSITION: Final = _position(batch_rows.BATCH_LENGTH)
_LEADER_EPOCH_POSITION: Final = _position(batch_rows.LEADER_EPOCH)
MAGIC_POSITION: Final = _position(batch_rows.MAGIC)
CRC_POSITION: Final = _position(batch_rows.CRC)
CHECKED_POSITION: Final = _position(batch_rows.ATTRIBUTES)
# Of the attributes' two bytes all that is used is in the second.
ATTRIBUTES_POSITION: Final = CHECKED_POSITION + 1
_BATCH_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD
_SEQUENCES: Final = 1 << 31
_CODECS: Final = tuple(Codec)
# Uncompiled, the kernel is slower than the loop beside it.
_COLUMNS_PAY_FROM: Final = 8 if COMPILED else sys.maxsize


@dataclass(slots=True)
class BatchHeader:
    """The 61 bytes before the records, in their order."""

    base_offset: int = 0
    batch_length: int = _BATCH_LENGTH_MIN
    leader_epoch: int = NO_LEADER_EPOCH
    magic: int = MAGIC
    crc: int = 0
    attributes: int = 0
    last_offset_delta: int = 0
    first_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    record_count: int = 0

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> Codec:
        try:
            return _CODECS[self.attributes & ATTRIBUTES_CODEC]
        except IndexError:
            codec = self.attributes & ATTRIBUTES_CODEC
            raise ProtocolError(f"A record batch names the unknown codec {codec}") from None

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & ATTRIBUTES_LOG_APPEND_TIME:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & ATTRIBUTES_TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & ATTRIBUTES_CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & ATTRIBUTES_DELETE_HORIZON != 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2^31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES


@dataclass(slots=True)
class Record:
    """One record as a client sees it."""

    offset: int = 0
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


class RecordLike(Protocol):
    """What a batch is encoded from: `Record`, or a client's own class."""

    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, whatever its magic; it must be whole and its length sensible."""
    try:
        header = BatchHeader(*_HEADER.unpack_from(buffer, position))
    except struct.error:
        raise ProtocolError("A record batch is shorter than its header") from None
    if header.batch_length < _BATCH_LENGTH_MIN:
        raise ProtocolError(f"A record batch declares a length of {header.batch_length}")
    return header


def write_header(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Write all 61 bytes as they are, checksum included."""
    _HEADER.pack_into(
        buffer,
        position,
        header.base_offset,
        header.batch_length,
        header.leader_epoch,
        header.magic,
        header.crc,
        header.attributes,
        header.last_offset_delta,
        header.first_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )


def stamp(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Write what the leader decides, in place; both fields lie outside the CRC."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_POSITION, leader_epoch)


def compute_crc(buffer: Buffer, position: int, size: int) -> int:
    """The CRC-32C of the batch of `size` bytes at `position`."""
    result: int = crc32c(memoryview(buffer)[position + CHECKED_POSITION : position + size])
    return result


def check_crc(buffer: Buffer, position: int, size: int) -> bool:
    """True where the stored checksum is that of the bytes."""
    stored: int = _CRC.unpack_from(buffer, position + CRC_POSITION)[0]
    return compute_crc(buffer, position, size) == stored


def seal(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Write the header over what stands there and give both it and the bytes the right checksum."""
    write_header(buffer, position, header)
    header.crc = compute_crc(buffer, position, header.size_bytes)
    _CRC.pack_into(buffer, position + CRC_POSITION, header.crc)


def iterate_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Each whole batch with its position; stops at a partial one, as a fetch may end with."""
    position = 0
    limit = len(buffer)
    while limit - position >= LOG_OVERHEAD:
        (length,) = _BATCH_LENGTH.unpack_from(buffer, position + _BATCH_LENGTH_POSITION)
        if length < _BATCH_LENGTH_MIN:
            raise ProtocolError(f"A record batch declares a length of {length}")
        if length > limit - position - LOG_OVERHEAD:
            return
        yield position, read_header(buffer, position)
        position += length + LOG_OVERHEAD


def inflate(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Buffer:
    """The records of the batch as one uncompressed payload; a view where they are that already."""
    view = memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes]
    codec = header.codec
    if codec is Codec.NONE:
        return view
    return compression.decompress(codec, view, max_bytes)


def build_batch(header: BatchHeader, payload: Buffer, level: int | None = None) -> bytearray:
    """A batch from its header and its uncompressed records; fills in codec framing, length, CRC."""
    codec = header.codec
    stored = payload if codec is Codec.NONE else compression.compress(codec, payload, level)
    header.batch_length = _BATCH_LENGTH_MIN + len(stored)
    batch = bytearray(HEADER_BYTES + len(stored))
    batch[HEADER_BYTES:] = stored
    seal(batch, 0, header)
    return batch


def encode_batch(  # noqa: PLR0913 - one keyword for each field that a caller may set
    records: Sequence[RecordLike],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytearray:
    """A batch of the records, numbered from `base_offset` on whatever their own offsets are.

    >>> batch = encode_batch([Record(timestamp=1, value=b"hello")], codec=Codec.GZIP)
    >>> decode_records(batch)[0].value
    b'hello'
    """
    if not records:
        raise ValueError("a record batch holds at least one record")
    first_timestamp = records[0].timestamp
    header = BatchHeader(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=codec
        | (ATTRIBUTES_LOG_APPEND_TIME if timestamp_type else 0)
        | (ATTRIBUTES_TRANSACTIONAL if transactional else 0)
        | (ATTRIBUTES_CONTROL if control else 0),
        last_offset_delta=len(records) - 1,
        first_timestamp=first_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    if len(records) >= _COLUMNS_PAY_FROM and not any(record.headers for record in records):
        payload = _encode_columns(records, first_timestamp)
    else:
        payload = encode_records(records, range(len(records)), first_timestamp)
    return build_batch(header, payload, level)


def _encode_columns(records: Sequence[RecordLike], base_timestamp: int) -> bytearray:
    """The payload of records without headers, by the kernel: a third of the time from Python."""
    count = len(records)
    timestamps = array("q", [record.timestamp for record in records])
    key = _bytes_column([record.key for record in records])
    value = _bytes_column([record.value for record in records])
    payload = bytearray(kernel.RECORD_OVERHEAD_MAX * count + len(key[1]) + len(value[1]))
    size, _ = kernel.encode(payload, timestamps, base_timestamp, key, value, None, 0, count)
    del payload[size:]
    return payload


def _bytes_column(values: Sequence[bytes | None]) -> tuple[array[int], bytes, bytearray | None]:
    """Offsets, data and validity bits in Arrow's layout."""
    validity = None
    if None in values:
        validity = bytearray(b"\xff") * ((len(values) + 7) // 8)
        for index, value in enumerate(values):
            if value is None:
                validity[index >> 3] &= ~(1 << (index & 7))
    filled = [value or b"" for value in values]
    return array("i", accumulate(map(len, filled), initial=0)), b"".join(filled), validity


def encode_records(
    records: Sequence[RecordLike], offset_deltas: Sequence[int], base_timestamp: int
) -> bytearray:
    """The uncompressed payload of a batch; the deltas may have gaps, as after compaction."""
    payload = bytearray()
    body = bytearray()
    for record, offset_delta in zip(records, offset_deltas, strict=True):
        body.clear()
        body.append(0)
        _append_varint(body, record.timestamp - base_timestamp)
        _append_varint(body, offset_delta)
        _append_bytes(body, record.key)
        _append_bytes(body, record.value)
        _append_varint(body, len(record.headers))
        for key, value in record.headers:
            _append_bytes(body, key.encode())
            _append_bytes(body, value)
        _append_varint(payload, len(body))
        payload += body
    return payload


def _append_varint(output: bytearray, value: int) -> None:
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 127:
        output.append(value & 127 | 128)
        value >>= 7
    output.append(value)


def _append_bytes(output: bytearray, value: Buffer | None) -> None:
    if value is None:
        output.append(1)
        return
    _append_varint(output, len(value))
    output += value


def decode_records(
    buffer: Buffer, position: int = 0, *, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """The records of the one batch at `position`, inflated into at most `max_bytes`."""
    header = read_header(buffer, position)
    if header.magic != MAGIC:
        raise ProtocolError(f"A record batch has magic {header.magic}")
    if header.size_bytes > len(buffer) - position:
        raise ProtocolError("A record batch is cut off")
    payload = bytes(inflate(buffer, position, header, max_bytes))
    rows, timestamps = index_records(payload, header.record_count, header.first_timestamp)
    base_offset = header.base_offset
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    records = []
    numbers = rows.tolist()
    for index, timestamp in enumerate(timestamps.tolist()):
        row = index * kernel.ROW_FIELDS
        offset_delta, _, key_at, key_length, value_at, value_length, headers_at = numbers[
            row : row + kernel.ROW_FIELDS
        ]
        records.append(
            Record(
                base_offset + offset_delta,
                header.max_timestamp if append_time else timestamp,
                None if key_length < 0 else payload[key_at : key_at + key_length],
                None if value_length < 0 else payload[value_at : value_at + value_length],
                decode_headers(payload, headers_at) if payload[headers_at] else [],
            )
        )
    return records


def index_records(
    payload: Buffer, record_count: int, base_timestamp: int
) -> tuple[memoryview, memoryview]:
    """Where the parts of each record lie and its timestamp, as the kernel `index` writes them."""
    if not 0 <= record_count <= len(payload) // kernel.RECORD_BYTES_MIN:
        raise ProtocolError(f"A record batch of {len(payload)} bytes claims {record_count} records")
    rows = memoryview(kernel.reserve(record_count * kernel.ROW_FIELDS * 4)).cast("i")
    timestamps = memoryview(kernel.reserve(record_count * 8)).cast("q")
    fault, record = kernel.index(payload, record_count, base_timestamp, rows, timestamps)
    if fault:
        raise ProtocolError(f"Record {record} of a batch is bad: {kernel.FAULT_MESSAGES[fault]}")
    return rows, timestamps


def decode_headers(payload: bytes, position: int) -> list[tuple[str, bytes | None]]:
    """The headers at `position` of an indexed payload, which is known to be sound."""
    headers: list[tuple[str, bytes | None]] = []
    count, position = _read_varint(payload, position)
    for _ in range(count):
        length, position = _read_varint(payload, position)
        # As Java does: a producer's bad text must not keep a consumer from the records behind it.
        key = payload[position : position + length].decode(errors="replace")
        position += length
        length, position = _read_varint(payload, position)
        if length < 0:
            headers.append((key, None))
        else:
            headers.append((key, payload[position : position + length]))
            position += length
    return headers


def _read_varint(payload: bytes, position: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while True:
        byte = payload[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def encode_control_batch(  # noqa: PLR0913 - each is a field of the marker
    control_type: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The marker that ends a transaction of a producer: `CONTROL_COMMIT` or `CONTROL_ABORT`."""
    marker = Record(
        timestamp=timestamp,
        key=_CONTROL_KEY.pack(0, control_type),
        value=_CONTROL_VALUE.pack(0, coordinator_epoch),
    )
    return encode_batch(
        [marker],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_record_type(record: Record) -> int:
    """The type in the key of a control record: 0 abort, 1 commit, others are not for us."""
    key = record.key
    if key is None or len(key) < _CONTROL_KEY.size:
        raise ProtocolError("A control record has no type")
    control_type: int = _CONTROL_KEY.unpack_from(key)[1]
    return control_type


def control_coordinator_epoch(record: Record) -> int:
    """The epoch of the coordinator that wrote a commit or abort marker."""
    value = record.value
    if value is None or len(value) < _CONTROL_VALUE.size:
        raise ProtocolError("A transaction marker has no coordinator epoch")
    epoch: int = _CONTROL_VALUE.unpack_from(value)[1]
    return epoch
