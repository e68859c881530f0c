"""Arrow rows of one topic, dealt to its partitions and packed into record batches.

Promises: a row with a partition goes there, one with a key where Java's default partitioner puts
it, one with neither to a partition that is kept until its batch is full; rows of a partition keep
their order; nothing is done in Python for a single row unless it is larger than a batch. The kernel
reads Arrow's own buffers and writes the payload; rows are sorted by number and never moved.

A column may be string or binary, large or not. What cannot be written raises `RowError`, which
names the column. Compression and the batch header come later, when the batch is sent.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from tidelog._kernels import records as kernel
from tidelog._kernels.buffers import (
    BytesColumn,
    HeadersColumn,
    Int64Buffer,
    IntegerColumn,
    RecordColumns,
)
from tidelog.client.batching import EncodedRecords
from tidelog.client.partitioner import StickyPartitioner
from tidelog.errors import TidelogError
from tidelog.host.random import Random
from tidelog.model import NO_TIMESTAMP
from tidelog.protocol.batches import HEADER_BYTES

_INT64_MIN = -(1 << 63)


class RowError(TidelogError):
    """A row that cannot be a record."""


@dataclass(slots=True)
class Rows:
    """The columns of some rows as the kernels take them."""

    count: int
    timestamps: Int64Buffer
    columns: RecordColumns
    partition: IntegerColumn | None


def rows_of(batch: pa.RecordBatch, now_ms: int) -> Rows:
    """Find the columns of a batch by their names; a row without a timestamp gets `now_ms`."""

    def column(name: str) -> pa.Array | None:
        index = batch.schema.get_field_index(name)
        return None if index < 0 else batch.column(index)

    key, value, headers = column("key"), column("value"), column("headers")
    partition, timestamp = column("partition"), column("timestamp")
    if value is None:
        raise RowError("column 'value' is missing")
    return Rows(
        batch.num_rows,
        array("q", [now_ms]) * batch.num_rows
        if timestamp is None
        else _timestamps(timestamp, now_ms),
        (
            _all_null(batch.num_rows) if key is None else _bytes_column(key),
            _bytes_column(value),
            None if headers is None else _headers_column(headers),
        ),
        None if partition is None else _integer_column(partition),
    )


def _all_null(count: int) -> BytesColumn:
    return array("i", bytes(4 * (count + 1))), b"", bytes((count + 7) // 8)


def _view(buffer: pa.Buffer | None, code: Literal["B", "i", "q"]) -> memoryview:
    """The items of a buffer; an empty column may come without one."""
    return memoryview(b"" if buffer is None else buffer).cast("B").cast(code)


def _aligned(column: pa.Array) -> pa.Array:
    """The column with its buffers beginning at its first row; only a slice is copied."""
    return pa.concat_arrays([column]) if column.offset else column


def _bytes_column(column: pa.Array) -> BytesColumn:
    column = _aligned(column)
    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        column = column.cast(pa.binary())
    validity, offsets, data = column.buffers()
    return (
        _view(offsets, "i")[: len(column) + 1],
        _view(data, "B"),
        _view(validity, "B") if column.null_count else None,
    )


def _integer_column(column: pa.Array) -> IntegerColumn:
    column = _aligned(column)
    validity, numbers = column.buffers()
    return (
        _view(numbers, "i")[: len(column)],
        _view(validity, "B") if column.null_count else None,
    )


def _timestamps(column: pa.Array, now_ms: int) -> Int64Buffer:
    milliseconds = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    early = pc.less(column.cast(pa.int64()), 0)
    # A record without a time is read with this one, and shall be written as it was.
    if pc.any(pc.and_(early, pc.not_equal(milliseconds, NO_TIMESTAMP))).as_py():
        raise RowError("column 'timestamp' holds a time before 1970, which a record cannot have")
    filled = _aligned(pc.fill_null(milliseconds, now_ms))
    return _view(filled.buffers()[1], "q")[: len(filled)]


def _headers_column(column: pa.Array) -> HeadersColumn:
    lengths = pc.fill_null(column.value_lengths(), 0)
    ends = array("i", [0])
    ends.frombytes(pc.cumulative_sum(lengths).cast(pa.int32()).buffers()[1])
    # Null lists have no entries then, whatever lies behind them.
    keys, values = column.flatten().flatten()
    if keys.null_count:
        raise RowError("column 'headers' holds a header without a key")
    return ends[: len(column) + 1], _bytes_column(keys), _bytes_column(values)


class _OpenBatch:
    """A payload that rows are appended to."""

    __slots__ = ("first_timestamp", "max_timestamp", "output", "position", "record_count")

    def __init__(self, buffer: bytearray) -> None:
        self.output = buffer
        self.position = HEADER_BYTES
        self.record_count = 0
        self.first_timestamp = 0
        self.max_timestamp = _INT64_MIN

    def take(self, rows: Rows, order: array[int], start: int, count: int) -> int:
        """Append rows until the buffer is full; how many."""
        if self.record_count == 0:
            self.first_timestamp = rows.timestamps[order[start]]
        taken, self.position, highest = kernel.fill(
            self.output, self.position, self.record_count, rows.timestamps, self.first_timestamp,
            rows.columns, order, start, count,
        )  # fmt: skip
        self.record_count += taken
        self.max_timestamp = max(self.max_timestamp, highest)
        return taken

    def close(self) -> EncodedRecords:
        return EncodedRecords(
            self.output,
            self.position,
            self.record_count,
            self.first_timestamp,
            self.max_timestamp,
        )


class TopicEncoder:
    """Packs the rows of one topic; what is full comes out of `add`, the rest out of `finish`."""

    def __init__(self, partition_count: int, batch_bytes: int, random: Random) -> None:
        self.batch_bytes = batch_bytes
        self._partition_count = partition_count
        self._open: dict[int, _OpenBatch] = {}
        self._ends = array("i", bytes(4 * (partition_count + 2)))
        # It moves on with every choice, and a choice is made for every batch.
        self._sticky = StickyPartitioner(random, 1)
        self._kept = -1

    def add(self, rows: Rows, available: Sequence[int]) -> Iterator[tuple[int, EncodedRecords]]:
        """The batches that these rows fill; `available` partitions take what may go anywhere."""
        count = rows.count
        partitions = array("i", bytes(4 * count))
        unknown = kernel.choose_partitions(
            rows.columns[0], rows.partition, count, self._partition_count, partitions
        )
        if unknown >= 0:
            assert rows.partition is not None
            raise RowError(
                f"column 'partition' holds {rows.partition[0][unknown]}, and the topic's partitions"
                f" are 0 to {self._partition_count - 1}"
            )
        order = array("i", bytes(4 * count))
        ends = self._ends
        kernel.group_rows(partitions, count, self._partition_count, ends, order)
        assert ends[self._partition_count] == count, "every row has a partition, or may go anywhere"
        for number in range(self._partition_count):
            if ends[number] < ends[number + 1]:
                yield from self._put(number, rows, order, ends[number], ends[number + 1])
        yield from self._put_anywhere(rows, order, ends[0], available)

    @property
    def open_bytes(self) -> int:
        """The memory of the batches that are not full."""
        return len(self._open) * self.batch_bytes

    def finish(self) -> Iterator[tuple[int, EncodedRecords]]:
        """The batches that no row has filled."""
        unfinished, self._open = self._open, {}
        for number, batch in unfinished.items():
            yield number, batch.close()

    def _put(
        self, number: int, rows: Rows, order: array[int], start: int, end: int
    ) -> Iterator[tuple[int, EncodedRecords]]:
        while start < end:
            start = yield from self._pack(number, rows, order, start, end)

    def _put_anywhere(
        self, rows: Rows, order: array[int], end: int, available: Sequence[int]
    ) -> Iterator[tuple[int, EncodedRecords]]:
        start = 0
        while start < end:
            if self._kept < 0:
                self._kept = self._sticky.choose(available, 1)
            start = yield from self._pack(self._kept, rows, order, start, end)
            if start < end:
                self._kept = -1

    def _pack(
        self, number: int, rows: Rows, order: array[int], start: int, end: int
    ) -> Generator[tuple[int, EncodedRecords], None, int]:
        """Go on until a batch is full or the rows are at their end: the next row's place."""
        batch = self._open.get(number)
        if batch is None:
            batch = self._open[number] = _OpenBatch(
                kernel.reserve(max(self.batch_bytes, HEADER_BYTES))
            )
        start += batch.take(rows, order, start, end - start)
        if start < end:
            del self._open[number]
            if batch.record_count:
                yield number, batch.close()
            else:
                yield number, _alone(rows, order, start)
                start += 1
        return start


def _alone(rows: Rows, order: array[int], start: int) -> EncodedRecords:
    """A row that is larger than a batch, in one of its own."""
    row = order[start]
    size = HEADER_BYTES + kernel.RECORD_OVERHEAD_MAX
    for offsets, _, _ in rows.columns[:2]:
        size += offsets[row + 1] - offsets[row]
    headers = rows.columns[2]
    if headers is not None:
        lists, *parts = headers
        first, last = lists[row], lists[row + 1]
        size += kernel.HEADER_OVERHEAD_MAX * (last - first)
        for offsets, _, _ in parts:
            size += offsets[last] - offsets[first]
    batch = _OpenBatch(kernel.reserve(size))
    taken = batch.take(rows, order, start, 1)
    assert taken == 1
    return batch.close()
