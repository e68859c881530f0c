"""A bounded cache of open descriptors, so that 10,000 partitions need not 30,000 of them.

An `OpenFile` stands for a file for as long as anybody holds it; its descriptor comes and goes.
`with` gives the descriptor and keeps it open in its block, `pin()` until `unpin()`; only files that
nobody has pinned are closed to make room, the least recently used first (second chance, so a pin
costs no list surgery). Where everything is pinned the cache goes over its limit rather than fail a
reader.

Pins are taken by the event loop and by threads that sync or read for it, hence the lock.
Left out: read-only descriptors, `O_DIRECT`, and any knowledge of what is in the files.
"""

from __future__ import annotations

import threading
from collections import deque

from tidelog.host.disk import Disk
from tidelog.storage.faults import OUT_OF_DESCRIPTORS

_FEWEST = 16


class OpenFile:
    """One file whose descriptor is opened when it is needed."""

    __slots__ = (
        "_cache", "_closed", "_create", "_fd", "_lock", "_pins", "_used", "path", "was_cold",
    )  # fmt: skip

    def __init__(self, cache: FileCache, path: str, create: bool) -> None:
        self.path = path
        self._cache = cache
        self._lock = cache.lock
        self._create = create
        self._fd = -1
        self._pins = 0
        self._used = False
        self._closed = False
        # A reader has asked for what only the disk had.
        self.was_cold = False

    def pin(self) -> int:
        """Give the descriptor, opening the file if need be; pair every call with `unpin`."""
        with self._lock:
            self._pins += 1
            self._used = True
            if self._fd >= 0:
                return self._fd
            try:
                self._fd = self._cache.open_descriptor(self.path, self._create)
            except BaseException:
                self._pins -= 1
                raise
            self._create = False
            self._cache.opened.append(self)
            return self._fd

    def unpin(self, *_: object) -> None:
        with self._lock:
            assert self._pins > 0, f"{self.path} is let go of more often than it was held"
            self._pins -= 1
            if self._closed and not self._pins:
                self._shut()

    __enter__, __exit__ = pin, unpin

    def sync(self) -> None:
        """Make the file's content durable. Blocks."""
        with self as fd:
            self._cache.disk.fdatasync(fd)

    def close(self) -> None:
        """Close the descriptor as soon as nobody has it pinned."""
        with self._lock:
            self._closed = True
            if not self._pins:
                self._shut()

    def moved_to(self, path: str) -> None:
        """The file was given a new name: open it by that one from now on."""
        with self._lock:
            self.path = path

    def _shut(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._cache.shut(self, fd)

    @property
    def evictable(self) -> bool:
        """True where closing the descriptor would disturb nobody; call with the lock held."""
        if self._used:
            self._used = False
            return False
        return not self._pins

    def evict(self) -> None:
        """Close the descriptor, to be opened again on the next pin; call with the lock held."""
        self._shut()


class FileCache:
    """All open files of one broker's storage."""

    def __init__(self, disk: Disk, limit: int = 512) -> None:
        self.disk = disk
        self.lock = threading.Lock()
        self.opened: deque[OpenFile] = deque()
        self._limit = max(limit, _FEWEST)

    def file(self, path: str, *, create: bool = False) -> OpenFile:
        """A file that is opened at its first pin; `create` allows that it does not exist yet."""
        return OpenFile(self, path, create)

    def open_descriptor(self, path: str, create: bool) -> int:
        """Open a file, closing others to stay within the limit; call with the lock held."""
        while len(self.opened) >= self._limit and self._evict_one():
            pass
        while True:
            try:
                return self.disk.open(path, create=create)
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS or not self._evict_one():
                    raise

    def shut(self, file: OpenFile, fd: int) -> None:
        """Close a descriptor and forget it; call with the lock held."""
        try:
            self.opened.remove(file)
        finally:
            self.disk.close(fd)

    def _evict_one(self) -> bool:
        opened = self.opened
        for _ in range(2 * len(opened)):
            file = opened[0]
            if file.evictable:
                file.evict()
                return True
            opened.rotate(-1)
        return False

    def __len__(self) -> int:
        return len(self.opened)
