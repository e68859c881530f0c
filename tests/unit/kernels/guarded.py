"""Memory in which a read beyond the end of the data ends the process."""

from __future__ import annotations

import ctypes
import mmap


class Guarded:
    """A buffer whose contents end right before memory that may not be touched."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, 5 * mmap.PAGESIZE)
        self.usable = 4 * mmap.PAGESIZE
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self._protect(mmap.PROT_NONE if hasattr(mmap, "PROT_NONE") else 0)

    def _protect(self, protection: int) -> None:
        last_page = ctypes.c_void_p(self.address + self.usable)
        assert self.libc.mprotect(last_page, ctypes.c_size_t(mmap.PAGESIZE), protection) == 0

    def put(self, data: bytes) -> memoryview:
        assert len(data) <= self.usable
        view = memoryview(self.map)[self.usable - len(data) : self.usable]
        view[:] = data
        return view

    def close(self) -> None:
        self._protect(mmap.PROT_READ | mmap.PROT_WRITE)
