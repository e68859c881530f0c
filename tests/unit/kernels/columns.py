"""The kernels' columns as pyarrow sees them: what the Spark source will do, in small."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from types import ModuleType

import pyarrow as pa

from tests.unit.kernels.payloads import index

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])


def int32(count: int) -> array[int]:
    return array("i", bytes(4 * count))


def int64(count: int) -> array[int]:
    return array("q", bytes(8 * count))


def bits(count: int) -> bytearray:
    return bytearray((count + 7) // 8)


@dataclass
class Batch:
    payload: bytes
    count: int
    base_offset: int
    base_timestamp: int


class Columns:
    """Buffers for the records of some batches, filled batch after batch."""

    def __init__(self, kernel: ModuleType, batches: list[Batch]) -> None:
        self.kernel = kernel
        indexed = [
            (batch, *index(kernel, batch.payload, batch.count, batch.base_timestamp))
            for batch in batches
        ]
        assert all(answer == (0, batch.count) for batch, answer, _, _ in indexed)
        measured = [
            kernel.measure(batch.payload, rows, batch.count) for batch, _, rows, _ in indexed
        ]
        keys, values, headers, header_keys, header_values = (
            sum(sizes) for sizes in zip(*measured, strict=True)
        )
        self.count = sum(batch.count for batch in batches)
        self.header_count = headers
        self.offset = int64(self.count)
        self.timestamp = int64(0)
        self.key = (int32(self.count + 1), bytearray(keys), bits(self.count))
        self.value = (int32(self.count + 1), bytearray(values), bits(self.count))
        self.list_offsets = int32(self.count + 1)
        self.header_key = (int32(headers + 1), bytearray(header_keys), None)
        self.header_value = (int32(headers + 1), bytearray(header_values), bits(headers))
        self.nulls = [0, 0, 0]
        row = 0
        for batch, _, rows, timestamps in indexed:
            self.timestamp += timestamps
            self._gather(batch, rows, row)
            row += batch.count

    def _gather(self, batch: Batch, rows: array[int], row: int) -> None:
        kernel, data, count = self.kernel, batch.payload, batch.count
        kernel.gather_offsets(rows, count, batch.base_offset, row, self.offset)
        self.nulls[0] += kernel.gather_bytes(data, rows, count, kernel.KEY_POSITION, row, *self.key)
        self.nulls[1] += kernel.gather_bytes(
            data, rows, count, kernel.VALUE_POSITION, row, *self.value
        )
        self.nulls[2] += kernel.gather_headers(
            data, rows, count, row, self.list_offsets, *self.header_key[:2], *self.header_value
        )

    @property
    def headers(self) -> tuple[object, ...]:
        return (self.list_offsets, self.header_key, self.header_value)

    def table(self) -> pa.Table:
        """The columns as Arrow arrays, without a copy."""

        def array_of(kind: pa.DataType, count: int, *buffers: object) -> pa.Array:
            given = [None if each is None else pa.py_buffer(each) for each in buffers]
            return pa.Array.from_buffers(kind, count, given)

        def column(kind: pa.DataType, count: int, parts: tuple[object, ...]) -> pa.Array:
            offsets, data, validity = parts
            return array_of(kind, count, validity, offsets, data)

        entries = pa.StructArray.from_arrays(
            [
                column(pa.string(), self.header_count, self.header_key),
                column(pa.binary(), self.header_count, self.header_value),
            ],
            fields=list(HEADER_TYPE),
        )
        lists = pa.Array.from_buffers(
            pa.list_(HEADER_TYPE),
            self.count,
            [None, pa.py_buffer(self.list_offsets)],
            children=[entries],
        )
        table = pa.table(
            {
                "key": column(pa.binary(), self.count, self.key),
                "value": column(pa.binary(), self.count, self.value),
                "offset": array_of(pa.int64(), self.count, None, self.offset),
                "timestamp": array_of(pa.int64(), self.count, None, self.timestamp),
                "headers": lists,
            }
        )
        table.validate(full=True)
        return table
