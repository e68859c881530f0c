"""What C and Python spell differently: copying bytes, and memory that nobody has cleared.

`memory.pxd` has it in C.
"""

from __future__ import annotations

from tidelog._kernels.buffers import Buffer, WritableBuffer


def copy_bytes(
    source: Buffer, position: int, target: WritableBuffer, target_position: int, length: int
) -> None:
    """Copy; the caller has checked that both ranges lie inside their buffers."""
    target[target_position : target_position + length] = source[position : position + length]


def reserve(size: int) -> bytearray:
    """Bytes to be overwritten, all of them; what they are before is undefined."""
    return bytearray(size)
