"""A file that holds space back, so that a full disk leaves room to start and trim.

`disk-reserve` is eight MiB of nothing. Where the disk has less free space than that, the file goes:
the metadata and the checkpoints then have its room. It is written again once there is space. Who
may append meanwhile is for `replication/disk_space` to say. Every call blocks.
"""

from __future__ import annotations

import errno
import logging
from contextlib import suppress

from tidelog.host.disk import Disk

logger = logging.getLogger(__name__)

FILE_NAME = "disk-reserve"
RESERVE_BYTES = 8 * 1024**2
_PIECE = bytes(1024**2)


class DiskReserve:
    """The reserve of one data directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{FILE_NAME}"
        self._exists = disk.exists(self._path)
        # A broker killed while it wrote the reserve leaves a part of it.
        self.held = self._exists and disk.file_size(self._path) >= RESERVE_BYTES
        # Given up, and not yet written again: its room is for others than producers.
        self.released = False

    def release_if_full(self) -> None:
        """Give the space up where there is less left than it holds."""
        if not self._exists or self._disk.free_bytes(self._directory) >= RESERVE_BYTES:
            return
        with suppress(FileNotFoundError):
            self._disk.unlink(self._path)
        self._exists, self.held, self.released = False, False, True
        logger.warning("disk full, the reserve is given up file=%s bytes=%d",
                       self._path, RESERVE_BYTES)  # fmt: skip

    def make(self) -> None:
        """Hold the space back, where there is enough besides it."""
        if self.held or self._disk.free_bytes(self._directory) < 2 * RESERVE_BYTES:
            return
        try:
            self._exists = True
            self._write()
        except OSError as error:
            with suppress(OSError):
                self._disk.unlink(self._path)
                self._exists = False
            logger.warning("no room for the reserve file=%s error=%s", self._path, error)
            return
        self.held, self.released = True, False

    def _write(self) -> None:
        fd = self._disk.open(self._path, create=True)
        try:
            for position in range(0, RESERVE_BYTES, len(_PIECE)):
                if self._disk.pwritev(fd, (_PIECE,), position) != len(_PIECE):
                    raise OSError(errno.ENOSPC, "short write", self._path)
            self._disk.fdatasync(fd)
        finally:
            self._disk.close(fd)
