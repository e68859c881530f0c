"""The aborted transactions of a segment, in Kafka's `.txnindex` format.

Entries of 34 bytes, big-endian, in the order of their abort markers: version (int16, 0), producer
id (int64), first offset (int64), last offset (int64: the marker's), last stable offset when the
marker was written (int64). A segment without an aborted transaction has no file. The index can be
rebuilt from the log's control batches, and recovery does so.
"""

from __future__ import annotations

import errno
from struct import Struct
from typing import NamedTuple

from tidelog.storage.faults import PASSING
from tidelog.storage.file_cache import FileCache, OpenFile

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """One aborted transaction; offsets are the first of its data and that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions whose markers lie in one segment."""

    __slots__ = ("_disk", "_entries", "_written", "file")

    def __init__(self, files: FileCache, path: str) -> None:
        self._disk = files.disk
        self.file = files.file(path, create=True)
        self._entries: list[AbortedTransaction] | None = None
        self._written = 0

    @property
    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            self._entries = self._read()
            self._written = len(self._entries)
        return self._entries

    def load(self) -> None:
        """Read the file, where that was not done yet, so that `append` has nothing to read."""
        _ = self.entries

    def append(self, aborted: AbortedTransaction) -> None:
        """Add one entry; on a passing fault it stays in memory until the next `write`."""
        self.entries.append(aborted)
        try:
            self.write()
        except OSError as error:
            if error.errno not in PASSING:
                raise

    def write(self) -> OpenFile | None:
        """Put every entry into the file; the file where there is one, for the caller to sync."""
        entries = self.entries
        if not entries and not self._disk.exists(self.file.path):
            return None
        data = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries[self._written :])
        if data:
            with self.file as fd:
                position = self._written * _ENTRY.size
                if self._disk.pwritev(fd, (data,), position) != len(data):
                    raise OSError(errno.ENOSPC, "short write", self.file.path)
            self._written = len(entries)
        return self.file

    def reset(self) -> None:
        """Drop every entry, before a rebuild."""
        self._entries = []
        self._written = 0
        self.cut_file()

    def forget_from(self, end_offset: int) -> None:
        """Drop the entries whose marker lies at or above `end_offset`; `cut_file` must follow."""
        self._entries = [entry for entry in self.entries if entry.last_offset < end_offset]
        self._written = min(self._written, len(self._entries))

    def cut_file(self) -> None:
        """Have the file end with the entries that it still has."""
        if self._disk.exists(self.file.path):
            with self.file as fd:
                self._disk.truncate(fd, self._written * _ENTRY.size)

    def _read(self) -> list[AbortedTransaction]:
        disk = self._disk
        if not disk.exists(self.file.path):
            return []
        with self.file as fd:
            data = disk.pread(fd, disk.size(fd), 0)
        whole = len(data) - len(data) % _ENTRY.size
        entries = []
        for version, *columns in _ENTRY.iter_unpack(data[:whole]):
            entry = AbortedTransaction(*columns)
            if version != _VERSION or not 0 <= entry.first_offset < entry.last_offset:
                break
            entries.append(entry)
        return entries
