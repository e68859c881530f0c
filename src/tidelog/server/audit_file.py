"""The files of the audit log: one writer, off the loop, that appends and never changes a line.

The format is that of `security/audit_chain`. Nothing here touches a file that it cannot read: where
the newest file is damaged, or lines are missing that the head knows of, a new file goes on behind
what was there, and its first line says so. A full disk leaves no half line. A sync that fails is
not tried again: the lines go into a new file as well.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.host.disk import Disk
from tidelog.security.audit_chain import (
    DIRECTORY,
    EMPTY,
    FILES_REMOVED,
    HEAD_FILE,
    ChainEnd,
    audit_files,
    decode_entry,
    decode_head,
    encode_entry,
    encode_head,
    end_of,
    file_name,
    first_seq_of,
)

_log = logging.getLogger(__name__)

_TAIL_BYTES_MAX: Final = 8 * 1024 * 1024
_HEAD_BYTES_MAX: Final = 128
_NOTES_MAX: Final = 16
_ROOM_BYTES_MIN: Final = 1024 * 1024

Document = Mapping[str, object]


class FileLimits(NamedTuple):
    """When a file is full, and how much is kept in all."""

    segment_bytes: int
    retention_bytes: int


class AuditFiles:
    """The log on the disk. Every call blocks, and only one runs at a time."""

    def __init__(self, data_directory: str, disk: Disk, limits: FileLimits) -> None:
        self._data_directory = data_directory
        self._directory = f"{data_directory}/{DIRECTORY}"
        self._disk = disk
        self._limits = limits
        self._fd: int | None = None
        self._path = ""
        self._size = 0
        self._end = EMPTY
        self._is_known = False
        # What the next lines have to say of the log itself.
        self._notes: list[Document] = []
        # Files that go as soon as a line says so.
        self._excess: list[str] = []

    @property
    def end(self) -> ChainEnd:
        return self._end

    def append(self, documents: Sequence[Document]) -> None:
        """Write entries and make them durable; OSError where that fails, and none counts then."""
        self._find_end()
        if self._fd is not None and not self._disk.exists(self._path):
            self._note("AuditFileMissing", file=self._path)
            self.close()
        lines, _ = self._encode(documents)
        if self._fd is not None and self._size + len(lines) > self._limits.segment_bytes:
            self.close()
        if self._fd is None:
            self._begin_file()
        lines, end = self._encode(documents)
        self._write(lines)
        self._end = end
        self._notes.clear()
        self._sync()
        try:
            self._write_head()
            self._remove_excess()
        except OSError as error:
            # The lines are safe: `verify` says what is missing.
            _log.warning("audit log: files not looked after error=%s", error)

    def _encode(self, documents: Sequence[Document]) -> tuple[bytes, ChainEnd]:
        """The lines of some entries, behind those of the notes, and the end of the chain then."""
        first = documents[0] if documents else {}
        stamp = {key: first[key] for key in ("time", "broker") if key in first}
        lines, end = [], self._end
        for entry in (*({**stamp, **note} for note in self._notes), *documents):
            line, end = encode_entry(entry, end)
            lines.append(line)
        return b"".join(lines), end

    def _note(self, action: str, **facts: object) -> None:
        if len(self._notes) < _NOTES_MAX:
            self._notes.append({"action": action, "kind": "log", **facts})

    def check_room(self) -> None:
        """OSError where the disk is about to be full."""
        if self._disk.free_bytes(self._data_directory) < _ROOM_BYTES_MIN:
            raise OSError(errno.ENOSPC, "less than 1 MiB is free on the disk of the audit log")

    def close(self) -> None:
        if self._fd is not None:
            self._disk.close(self._fd)
            self._fd = None

    # -- the end of what is there -----------------------------------------------------------------

    def _find_end(self) -> None:
        """Learn where the log ends, once; cut off the half line of a crash."""
        if self._is_known:
            return
        disk, directory = self._disk, self._directory
        head = self._read_head()
        names = audit_files(disk.list_dir(directory)) if disk.exists(directory) else []
        for name in reversed(names):
            # A crash may leave a new file without its first line.
            if disk.file_size(f"{directory}/{name}"):
                self._take_up(f"{directory}/{name}", name)
                break
        if head is not None and head.seq > self._end.seq:
            action = "AuditLinesMissing" if names else "AuditFilesMissing"
            self._note(action, found=self._end.seq, known_to_the_head=head.seq)
            self._end = head
            self.close()
        self._is_known = True

    def _take_up(self, path: str, name: str) -> None:
        """Go on behind the last line of a file, or in a new file where it cannot be read."""
        disk = self._disk
        fd = self._fd = disk.open(path)
        self._path = path
        size = disk.size(fd)
        start = max(0, size - _TAIL_BYTES_MAX)
        tail = disk.pread(fd, size - start, start)
        whole = tail[: tail.rfind(b"\n") + 1]
        try:
            self._end = end_of(decode_entry(whole[:-1].rpartition(b"\n")[2]))
        except ValueError as error:
            self._note("AuditDamageFound", file=name, reason=str(error))
            first = first_seq_of(name) or 0
            self._end = ChainEnd(first + max(0, whole.count(b"\n") - 1), "")
            self.close()
            return
        self._size = start + len(whole)
        if self._size < size:
            disk.truncate(fd, self._size)
            self._note("AuditRecovered", file=name, cut_bytes=size - self._size)

    def _read_head(self) -> ChainEnd | None:
        path = f"{self._data_directory}/{HEAD_FILE}"
        if not self._disk.exists(path):
            return None
        fd = self._disk.open(path)
        try:
            return decode_head(self._disk.pread(fd, _HEAD_BYTES_MAX, 0))
        finally:
            self._disk.close(fd)

    # -- files ------------------------------------------------------------------------------------

    def _begin_file(self) -> None:
        """Begin the next file, and announce which of the oldest go once that is durable.

        So `verify` can tell a file that was one too many from one that somebody took away.
        """
        disk, directory = self._disk, self._directory
        if not disk.exists(directory):
            disk.make_dir(directory)
            disk.sync_dir(self._data_directory)
        self._path = f"{directory}/{file_name(self._end.seq + 1)}"
        self._fd = disk.open(self._path, create=True)
        self._size = 0
        disk.truncate(self._fd, 0)
        disk.sync_dir(directory)
        names = audit_files(disk.list_dir(directory))
        self._excess = self._excess_of(names)
        if self._excess:
            kept = names[len(self._excess)]
            self._note(FILES_REMOVED, files=self._excess, removed_before=first_seq_of(kept))

    def _excess_of(self, names: Sequence[str]) -> list[str]:
        """The oldest files, as far as there is more than is kept; never the one in use."""
        sizes = [self._disk.file_size(f"{self._directory}/{name}") for name in names]
        total, excess = sum(sizes), []
        for name, size in zip(names[:-1], sizes, strict=False):
            if total <= self._limits.retention_bytes:
                break
            total -= size
            excess.append(name)
        return excess

    def _remove_excess(self) -> None:
        if not self._excess:
            return
        for name in self._excess:
            path = f"{self._directory}/{name}"
            if self._disk.exists(path):
                self._disk.unlink(path)
        self._excess = []
        self._disk.sync_dir(self._directory)

    # -- bytes ------------------------------------------------------------------------------------

    def _write(self, lines: bytes) -> None:
        assert self._fd is not None
        disk, fd, rest, position = self._disk, self._fd, memoryview(lines), self._size
        try:
            while rest:
                written = disk.pwritev(fd, [rest], position)
                if not written:
                    raise OSError(errno.ENOSPC, "the disk took no more of the audit log")
                rest, position = rest[written:], position + written
        except OSError:
            self._cut(fd)
            raise
        self._size = position

    def _cut(self, fd: int) -> None:
        """Take back what was written of a batch; where that fails too, leave the file alone."""
        try:
            self._disk.truncate(fd, self._size)
        except OSError as error:
            self._note("AuditFileGivenUp", file=self._path, reason=str(error))
            self.close()

    def _sync(self) -> None:
        assert self._fd is not None
        try:
            self._disk.fdatasync(self._fd)
        except OSError as error:
            self._note("AuditSyncFailed", file=self._path, reason=str(error))
            self.close()
            raise

    def _write_head(self) -> None:
        fd = self._disk.open(f"{self._data_directory}/{HEAD_FILE}", create=True)
        try:
            self._disk.pwritev(fd, [encode_head(self._end)], 0)
        finally:
            self._disk.close(fd)
