"""Keeps the machine's memory full of page cache, as on a server that has run for a while.

A virtual machine may give memory that is free back to its host. Whoever writes into such memory
next pays for having it brought back: about 2.4 CPU s for each GB, more than the write itself, and
by chance more in one round than in another. With no free memory left the kernel takes pages of
the cache instead, which cost every broker the same.

The cache is filled by reading a file that is one hole: it takes no room on the disk, and its pages
are clean and the first to go.
"""

from __future__ import annotations

import os
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

_FREE_BYTES: Final = 1 << 30
_STEP_BYTES: Final = 64 << 20
_READ_BYTES: Final = 4 << 20
# A machine with more memory than this is not filled: it has no shortage of cached pages.
_FILLED_BYTES_MAX: Final = 64 << 30


class FullPageCache:
    """The file whose pages fill the memory, until the process ends."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._read_to = 0
        self._buffer = bytearray(_READ_BYTES)

    def top_up(self) -> None:
        """Fill what others have freed since the last call."""
        while _free_bytes() > _FREE_BYTES and self._read_to < _FILLED_BYTES_MAX:
            end = self._read_to + _STEP_BYTES
            os.ftruncate(self._file.fileno(), end)
            for position in range(self._read_to, end, _READ_BYTES):
                os.preadv(self._file.fileno(), [self._buffer], position)
            self._read_to = end


@cache
def full_page_cache() -> FullPageCache:
    """The one of this process."""
    return FullPageCache()


def _free_bytes() -> int:
    found = re.search(r"MemFree:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return 0 if found is None else int(found[1]) * 1024
