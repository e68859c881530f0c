"""The buffer types that kernels take, spelled for the type checker."""

from __future__ import annotations

from array import array
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
WritableBuffer: TypeAlias = bytearray | memoryview
Int32Buffer: TypeAlias = "array[int] | memoryview"
Int64Buffer: TypeAlias = "array[int] | memoryview"

# Offsets, data and validity bits (None: nothing is null), as Arrow lays them out.
BytesColumn: TypeAlias = "tuple[Int32Buffer, Buffer, Buffer | None]"
# Where each record's headers begin, the column of their keys and that of their values.
HeadersColumn: TypeAlias = "tuple[Int32Buffer, BytesColumn, BytesColumn]"
# The keys, the values and the headers of records.
RecordColumns: TypeAlias = "tuple[BytesColumn, BytesColumn, HeadersColumn | None]"
# Numbers and validity bits.
IntegerColumn: TypeAlias = "tuple[Int32Buffer, Buffer | None]"
