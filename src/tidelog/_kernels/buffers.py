"""The buffer types that kernels take, spelled for the type checker."""

from __future__ import annotations

from array import array
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
WritableBuffer: TypeAlias = bytearray | memoryview
Int32Buffer: TypeAlias = "array[int] | memoryview"
Int64Buffer: TypeAlias = "array[int] | memoryview"
