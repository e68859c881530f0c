"""The newest revision that was acknowledged, beside the database: `<file>.revision`.

One line in place: the revision in 20 digits, a space, the CRC-32 of these digits as 8 hex digits, a
newline. It is written after a commit is durable and before the commit is answered, so it is never
ahead of an undamaged store. A store that stands below it has lost changes that were acknowledged:
its write-ahead log was removed or cut, or an older copy took its place.

The first write after an opening is synced, the others are not: they survive a kill of the process,
and after a power cut the file is at worst behind, which hides a loss and never invents one. A file
that is missing or damaged says nothing.
"""

from __future__ import annotations

import logging
import os
import zlib

from tidelog.host.disk import Disk

logger = logging.getLogger(__name__)

SUFFIX = ".revision"
_DIGITS = 20
_LINE_BYTES = _DIGITS + 10


class RevisionFile:
    """The file, read at once and opened for writing with the first revision to write."""

    def __init__(self, database_path: str, disk: Disk) -> None:
        self.path = database_path + SUFFIX
        self._disk = disk
        self._fd = -1
        self._failed = False
        # 0 where nothing is known: no store is below that.
        self.acknowledged = self._read()

    def advance(self, revision: int) -> None:
        """Note a revision whose commit is durable; where the disk refuses, the check is weaker."""
        if self._failed:
            return
        try:
            opened = self._fd < 0
            if opened:
                self._fd = self._disk.open(self.path, create=True)
            self._disk.pwritev(self._fd, [_line(revision)], 0)
            if opened:
                self._disk.truncate(self._fd, _LINE_BYTES)
                self._disk.fdatasync(self._fd)
                self._disk.sync_dir(os.path.dirname(self.path) or ".")
        except OSError as error:
            self._failed = True
            logger.warning("revision not noted file=%s error=%s", self.path, error)

    def close(self) -> None:
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1

    def _read(self) -> int:
        try:
            fd = self._disk.open(self.path)
        except FileNotFoundError:
            return 0
        try:
            line = self._disk.pread(fd, _LINE_BYTES + 1, 0)
        finally:
            self._disk.close(fd)
        digits = line[:_DIGITS]
        if not digits.isdigit() or line != _line(int(digits)):
            logger.warning("revision file is damaged and not used file=%s", self.path)
            return 0
        return int(digits)


def _line(revision: int) -> bytes:
    digits = f"{revision:0{_DIGITS}d}".encode()
    return digits + f" {zlib.crc32(digits):08x}\n".encode()
