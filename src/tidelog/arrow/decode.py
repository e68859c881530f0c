"""Fetched record batches to Arrow record batches, column by column, through the kernels.

A decoder is made for one Arrow schema whose columns are among `columns.COLUMNS`; only those are
filled. Control batches are not shown, and of aborted transactions nothing is where the chunk names
them (a read_committed fetch). Records outside the range asked for are cut off, gaps between offsets
are kept. One Arrow record batch holds records of one partition and about `BATCH_BYTES` at most, or
one stored batch where that is larger.

Nothing here trusts the bytes: a batch that does not inflate or parse is an `UnreadableBatchError`
that names its offsets, and inflating is bounded by `max_decompressed_bytes`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tidelog._kernels import records as kernel
from tidelog.arrow.columns import COLUMNS, HEADER
from tidelog.client.faults import UnreadableBatchError
from tidelog.client.fetcher import Chunk, visible_batches
from tidelog.errors import KafkaError, ProtocolError
from tidelog.model import TimestampType
from tidelog.protocol.batches import BatchHeader, index_records, inflate

BATCH_BYTES = 16 << 20


@dataclass(slots=True)
class _Piece:
    """The wanted records of one stored batch, indexed but not gathered yet."""

    header: BatchHeader
    payload: memoryview
    rows: memoryview
    timestamps: memoryview
    count: int
    # Bytes of keys and values, number of headers, bytes of their keys and values.
    sizes: tuple[int, int, int, int, int]


@dataclass(slots=True)
class _Group:
    """Pieces that become one Arrow record batch."""

    pieces: list[_Piece] = field(default_factory=list)
    payload_bytes: int = 0
    count: int = 0

    def add(self, piece: _Piece) -> None:
        self.pieces.append(piece)
        self.payload_bytes += len(piece.payload)
        self.count += piece.count


class Decoder:
    """Makes Arrow record batches of one schema; see the module's docstring."""

    def __init__(self, schema: pa.Schema, max_decompressed_bytes: int = 256 << 20) -> None:
        for column in schema:
            expected = COLUMNS.get(column.name)
            if expected is None:
                raise ValueError(
                    f"a record has no column '{column.name}'; it has {', '.join(COLUMNS)}"
                )
            if not column.type.equals(expected):
                raise ValueError(f"column '{column.name}' is {expected}, not {column.type}")
        self.schema = schema
        self._max_decompressed_bytes = max_decompressed_bytes
        # Of each column that repeats one value: the last such value, and the longest column of it.
        self._repeated: dict[str, tuple[object, pa.Array]] = {}

    def decode(self, chunk: Chunk, end: int) -> Iterator[pa.RecordBatch]:
        """The chunk's records from where it was fetched up to offset `end`."""
        group = _Group()
        limit = self._max_decompressed_bytes
        for position, header in visible_batches(chunk, limit):
            if header.base_offset >= end:
                break
            try:
                payload = memoryview(inflate(chunk.records, position, header, limit))
                piece = _index(header, payload, chunk, end)
            except (KafkaError, ProtocolError) as error:
                raise UnreadableBatchError(chunk.partition, header, error) from error
            if not piece.count:
                continue
            if group.count and group.payload_bytes + len(payload) > BATCH_BYTES:
                yield self._gather(group, chunk)
                group = _Group()
            group.add(piece)
        if group.count:
            yield self._gather(group, chunk)

    def _gather(self, group: _Group, chunk: Chunk) -> pa.RecordBatch:
        arrays = [self._column(name, group, chunk) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, group: _Group, chunk: Chunk) -> pa.Array:
        count = group.count
        if name == "key":
            return _bytes_column(group, kernel.KEY_POSITION, sum(p.sizes[0] for p in group.pieces))
        if name == "value":
            size = sum(piece.sizes[1] for piece in group.pieces)
            return _bytes_column(group, kernel.VALUE_POSITION, size)
        if name == "topic":
            return self._repeat(name, chunk.partition.topic, count)
        if name == "partition":
            return self._repeat(name, chunk.partition.partition, count)
        if name == "offset":
            return _offset_column(group)
        if name == "timestamp":
            return _timestamp_column(group)
        if name == "timestampType":
            return self._timestamp_type_column(name, group)
        return _headers_column(group)

    def _repeat(self, name: str, value: object, count: int) -> pa.Array:
        """`value` `count` times; the columns of a task share what they can."""
        known, column = self._repeated.get(name, (None, None))
        if column is None or known != value or len(column) < count:
            column = pa.repeat(pa.scalar(value, COLUMNS[name]), count)
            self._repeated[name] = (value, column)
        return column.slice(0, count)

    def _timestamp_type_column(self, name: str, group: _Group) -> pa.Array:
        kinds = {int(piece.header.timestamp_type) for piece in group.pieces}
        if len(kinds) == 1:
            return self._repeat(name, kinds.pop(), group.count)
        return pa.concat_arrays(
            pa.repeat(pa.scalar(int(piece.header.timestamp_type), COLUMNS[name]), piece.count)
            for piece in group.pieces
        )


def _index(header: BatchHeader, payload: memoryview, chunk: Chunk, end: int) -> _Piece:
    count = header.record_count
    rows, timestamps = index_records(payload, count, header.first_timestamp)
    base, fields = header.base_offset, kernel.ROW_FIELDS
    first, last = 0, count
    if base < chunk.fetch_offset:
        first = bisect_left(range(count), chunk.fetch_offset - base, key=lambda i: rows[i * fields])
    if header.last_offset >= end:
        last = bisect_left(range(count), end - base, key=lambda i: rows[i * fields])
    last = max(first, last)
    wanted = rows[first * fields : last * fields]
    sizes = kernel.measure(payload, wanted, last - first)
    return _Piece(header, payload, wanted, timestamps[first:last], last - first, sizes)


def _int64_column(count: int) -> memoryview:
    return memoryview(kernel.reserve(8 * count)).cast("q")


def _offsets(count: int) -> memoryview:
    return memoryview(bytearray(4 * (count + 1))).cast("i")


def _bits(count: int) -> bytearray:
    return bytearray((count + 7) // 8)


def _bytes_column(group: _Group, position_field: int, size: int) -> pa.Array:
    offsets, data, validity = _offsets(group.count), kernel.reserve(size), _bits(group.count)
    row = nulls = 0
    for piece in group.pieces:
        nulls += kernel.gather_bytes(
            piece.payload, piece.rows, piece.count, position_field, row, offsets, data, validity
        )
        row += piece.count
    return _binary_array(pa.binary(), offsets, data, validity if nulls else None)


def _binary_array(
    kind: pa.DataType, offsets: memoryview, data: bytearray, validity: bytearray | None
) -> pa.Array:
    buffers = [
        None if validity is None else pa.py_buffer(validity),
        pa.py_buffer(offsets),
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def _offset_column(group: _Group) -> pa.Array:
    output = _int64_column(group.count)
    row = 0
    for piece in group.pieces:
        kernel.gather_offsets(piece.rows, piece.count, piece.header.base_offset, row, output)
        row += piece.count
    return pa.Array.from_buffers(pa.int64(), group.count, [None, pa.py_buffer(output)])


def _timestamp_column(group: _Group) -> pa.Array:
    output = _int64_column(group.count)
    row = 0
    for piece in group.pieces:
        # A compacted batch keeps deltas against a base that may not be a timestamp any more; the
        # kernel has added them up. The broker's own time is in the header alone.
        if piece.header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            stamp = memoryview(piece.header.max_timestamp.to_bytes(8, "little", signed=True))
            output[row : row + piece.count] = memoryview(bytes(stamp) * piece.count).cast("q")
        else:
            output[row : row + piece.count] = piece.timestamps
        row += piece.count
    stored = pa.Array.from_buffers(pa.int64(), group.count, [None, pa.py_buffer(output)])
    microseconds = pc.multiply(stored, 1000)
    return pa.Array.from_buffers(
        COLUMNS["timestamp"], group.count, [None, microseconds.buffers()[1]]
    )


def _headers_column(group: _Group) -> pa.Array:
    count = sum(piece.sizes[2] for piece in group.pieces)
    lists = _offsets(group.count)
    key_offsets, value_offsets = _offsets(count), _offsets(count)
    key_data = bytearray(sum(piece.sizes[3] for piece in group.pieces))
    value_data = bytearray(sum(piece.sizes[4] for piece in group.pieces))
    validity = _bits(count)
    row = nulls = 0
    for piece in group.pieces:
        nulls += kernel.gather_headers(
            piece.payload, piece.rows, piece.count, row, lists,
            key_offsets, key_data, value_offsets, value_data, validity,
        )  # fmt: skip
        row += piece.count
    entries = pa.StructArray.from_arrays(
        [
            _text(_binary_array(pa.binary(), key_offsets, key_data, None)),
            _binary_array(pa.binary(), value_offsets, value_data, validity if nulls else None),
        ],
        fields=list(HEADER),
    )
    kind = pa.list_(HEADER)
    plain = pa.Array.from_buffers(
        kind, group.count, [None, pa.py_buffer(lists)], children=[entries]
    )
    # A record without headers has none, as with the connector, rather than an empty list.
    present = pc.not_equal(pc.list_value_length(plain), 0)
    return pa.Array.from_buffers(
        kind, group.count, [present.buffers()[1], pa.py_buffer(lists)], children=[entries]
    )


def _text(names: pa.Array) -> pa.Array:
    """The keys of headers as strings; what is no UTF-8 is shown as Java shows it."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.as_py().decode(errors="replace") for name in names], pa.string())
