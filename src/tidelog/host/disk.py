"""The seam for the disk: the dozen calls through which every byte of the log is kept.

Files are named by path and used through integer descriptors, as in `os`. All calls are synchronous
and raise `OSError`. `SystemDisk` is the operating system; the tests' disk keeps what was written
and what was synced apart, and loses, tears or reorders the difference at a simulated crash, which
is why a caller must sync a file *and*, after create, rename or unlink, its directory.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from typing import Protocol

from tidelog.host.page_cache import PageCache, page_cache_of

Buffer = bytes | bytearray | memoryview


class Disk(Protocol):
    """What storage may ask of a disk."""

    def open(self, path: str, *, create: bool = False) -> int:
        """Open for reading and writing; FileNotFoundError unless it exists or `create` is set."""
        ...

    def close(self, fd: int) -> None: ...

    def size(self, fd: int) -> int: ...

    def pread(self, fd: int, length: int, position: int) -> bytes: ...

    def pread_cached_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """Read what is in memory already; BlockingIOError where that is nothing."""
        ...

    def read_ahead(self, fd: int, position: int, length: int) -> None:
        """Have the kernel read into memory, without waiting for it; may block for a moment."""
        ...

    def pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> int:
        """Write at `position`; may write less than given (a full disk does)."""
        ...

    def truncate(self, fd: int, size: int) -> None: ...

    def fdatasync(self, fd: int) -> None:
        """Make the file's bytes and size durable. Blocks: never called on the event loop."""
        ...

    def list_dir(self, path: str) -> list[str]: ...

    def make_dir(self, path: str) -> None:
        """Create the directory and its parents where missing."""
        ...

    def remove_dir(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomically give a file or directory a new name, replacing a file of that name."""
        ...

    def unlink(self, path: str) -> None: ...

    def exists(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int:
        """The size of a file by its name, without opening it."""
        ...

    def modified_ms(self, path: str) -> int: ...

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and unlinks in the directory durable. Blocks."""
        ...

    def sync_all(self, path: str) -> None:
        """Make everything durable that was done on the file system of `path`. Blocks."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int:
        """The size of the file system."""
        ...

    def lock(self, path: str) -> int:
        """Create and lock a file for this process; BlockingIOError where another holds it."""
        ...

    def page_cache(self, path: str) -> PageCache:
        """Which page cache the file system of `path` is behind, as far as that is known."""
        ...


class SystemDisk:
    """The operating system's file system."""

    # Plain functions of `os`, bound once: a wrapper would cost on every read and write.
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwritev = staticmethod(os.pwritev)
    truncate = staticmethod(os.ftruncate)
    list_dir = staticmethod(os.listdir)
    remove_dir = staticmethod(os.rmdir)
    rename = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)
    exists = staticmethod(os.path.exists)
    file_size = staticmethod(os.path.getsize)
    page_cache = staticmethod(page_cache_of)

    def open(self, path: str, *, create: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return os.open(path, flags, 0o600)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def pread_cached_into(self, fd: int, buffer: memoryview, position: int) -> int:
        try:
            return os.preadv(fd, [buffer], position, _CACHED_ONLY)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            # This file system cannot tell (tmpfs, some network ones): have it read on a thread.
            raise BlockingIOError(errno.EAGAIN, "the page cache cannot be asked") from error

    def read_ahead(self, fd: int, position: int, length: int) -> None:
        if hasattr(os, "posix_fadvise"):  # macOS has none
            os.posix_fadvise(fd, position, length, os.POSIX_FADV_WILLNEED)

    def fdatasync(self, fd: int) -> None:
        _fdatasync(fd)

    def make_dir(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _sync_file_system(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize

    def lock(self, path: str) -> int:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return fd


def _sync_file_system(fd: int) -> None:
    """syncfs, which the standard library does not have; where the system has none, sync all."""
    import ctypes

    try:
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        os.sync()
        return
    if syncfs(fd):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# macOS has neither fdatasync nor RWF_NOWAIT: there a read may block for a moment.
_fdatasync = getattr(os, "fdatasync", os.fsync)
_CACHED_ONLY: int = getattr(os, "RWF_NOWAIT", 0)
