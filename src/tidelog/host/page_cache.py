"""Which page cache a file system is behind: it holds what a killed process wrote.

The kernel keeps what was written, synced or not, for as long as it runs and the file system stays
mounted. Its boot id tells one run from the next; a mount id that is never given out twice (Linux
6.8 and later) tells one mount from the next. Where either is not known it cannot be said whether
the cache is still the same.
"""

from __future__ import annotations

import ctypes
import struct
from typing import NamedTuple

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_AT_FDCWD = -100
_STATX_MNT_ID_UNIQUE = 0x4000
_STATX_BYTES = 256
_MASK = struct.Struct("=I")
_MOUNT_ID = struct.Struct("=Q")
_MOUNT_ID_POSITION = 144


class PageCache(NamedTuple):
    """The same two ids, neither of them empty: the same page cache."""

    boot_id: str = ""
    mount_id: str = ""

    @property
    def is_known(self) -> bool:
        return bool(self.boot_id and self.mount_id)


def page_cache_of(path: str) -> PageCache:
    """The page cache of this machine's file system at `path`; parts that are unknown are empty."""
    return PageCache(_boot_id(), _mount_id(path))


def _boot_id() -> str:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def _mount_id(path: str) -> str:
    """Python 3.11 has no statx; the ids of /proc/self/mountinfo are given out again."""
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    try:
        statx = ctypes.CDLL(None).statx
    except (OSError, AttributeError):
        return ""
    if statx(_AT_FDCWD, path.encode(), 0, _STATX_MNT_ID_UNIQUE, buffer):
        return ""
    if not _MASK.unpack_from(buffer)[0] & _STATX_MNT_ID_UNIQUE:
        return ""
    return str(_MOUNT_ID.unpack_from(buffer, _MOUNT_ID_POSITION)[0])
