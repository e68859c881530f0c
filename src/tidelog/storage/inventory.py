"""The list of the partitions that were created in a data directory: `partition-inventory`.

Kafka's small files carry no checksum, and a directory that is gone looks like one that never was.
This list tells the difference. A partition is listed before its first record is acknowledged; from
then on its directory, its segments up to the recovery point and its topic id must be there.

Format, text. The first line: `tidelog-inventory 1 N`, its CRC-32C in front. Then one line per
partition: CRC-32C (8 hex digits) of the rest of the line, topic id, partition, log start offset,
recovery point, high watermark, topic. The first N lines were written as a whole and renamed into
place; those behind were appended, one sync for each batch of creations. Of two lines for one
partition the later holds. A last line that a crash cut short is ignored; any other line that does
not match its checksum makes the list `damaged`: the reader then has less to go by, and says so.

Every call that touches the disk blocks and belongs off the event loop.
"""

from __future__ import annotations

import errno
import os.path
import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from tidelog.errors import StorageError
from tidelog.host.disk import Disk
from tidelog.model import TopicPartition
from tidelog.protocol.checksum import crc32c
from tidelog.storage.checkpoint import format_id, parse_id, read_bytes, write_durably

FILE_NAME = "partition-inventory"
_HEAD = "tidelog-inventory 1"


class Listed(NamedTuple):
    """What is known of a partition that was created here."""

    topic_id: UUID
    log_start_offset: int = 0
    recovery_point: int = 0
    high_watermark: int = 0


class Inventory:
    """The partitions of one data directory, in memory and on disk."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.path = os.path.join(directory, FILE_NAME)
        self.entries: dict[TopicPartition, Listed] = {}
        # False where there was no file: a new directory, or one of an older version.
        self.found = False
        self.damaged = False
        self._disk = disk
        self._size_bytes = 0
        self._memory = threading.Lock()
        # Held while a file is written, never on the event loop.
        self._writing = threading.Lock()

    def read(self) -> None:
        """Take what the file says; what cannot be believed of it is left out."""
        data = read_bytes(self._disk, self.path)
        if data is None:
            return
        self.found = True
        head, *lines = data.split(b"\n")
        count = self._decode_head(head)
        good = bad = 0
        for number, line in enumerate(lines, 1):
            entry = _decode_line(line)
            if entry is not None:
                self.entries[entry[0]] = entry[1]
                good = number
            elif line:
                bad = bad or number
        # Only what was appended last, and not synced, can be half there.
        self.damaged = count is None or good < count or 0 < bad < good

    def append(self, created: Mapping[TopicPartition, Listed]) -> None:
        """List new partitions durably. Blocks; OSError where that failed."""
        with self._writing:
            data = b"".join(_encode_line(*each) for each in created.items())
            if not self._size_bytes:
                self._rewrite(created)
            else:
                self._append(data)
            with self._memory:
                self.entries.update(created)

    def _append(self, data: bytes) -> None:
        end, self._size_bytes = self._size_bytes, 0
        fd = self._disk.open(self.path)
        try:
            if self._disk.pwritev(fd, (data,), end) != len(data):
                raise OSError(errno.ENOSPC, "short write", self.path)
            self._disk.fdatasync(fd)
        finally:
            self._disk.close(fd)
        # Where that failed nobody knows what is there, and the next list is written as a whole.
        self._size_bytes = end + len(data)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that were deleted; the file follows with the next `rewrite`."""
        with self._memory:
            for partition in partitions:
                self.entries.pop(partition, None)

    def rewrite(self, known: Mapping[TopicPartition, Listed]) -> None:
        """Write the list as a whole, with newer offsets of what is listed. Blocks."""
        with self._writing:
            with self._memory:
                for partition, listed in known.items():
                    before = self.entries.get(partition)
                    # Created, deleted or created again since `known` was gathered: leave it be.
                    if before is not None and before.topic_id == listed.topic_id:
                        self.entries[partition] = listed
            self._rewrite()

    def _decode_head(self, line: bytes) -> int | None:
        """How many lines were written with the first; None where that cannot be believed."""
        text = _believed(line)
        if text is None:
            return None
        if not text.startswith(f"{_HEAD} "):
            raise StorageError(
                f"{self.path} was written by another version of Tidelog: it begins with {text!r}."
                " Start the version that wrote it."
            )
        return int(text.rpartition(" ")[2])

    def _rewrite(self, created: Mapping[TopicPartition, Listed] | None = None) -> None:
        with self._memory:
            entries = list({**self.entries, **(created or {})}.items())
        head = f"{_HEAD} {len(entries)}".encode()
        data = _checked(head) + b"".join(_encode_line(*entry) for entry in entries)
        write_durably(self._disk, self.path, data)
        self._size_bytes = len(data)


def _checked(text: bytes) -> bytes:
    return b"%08x %b\n" % (crc32c(text), text)


def _believed(line: bytes) -> str | None:
    """What a line says, or None where it does not match its checksum."""
    if len(line) < 9 or line[:8] != b"%08x" % crc32c(line[9:]):
        return None
    return line[9:].decode()


def _encode_line(partition: TopicPartition, listed: Listed) -> bytes:
    return _checked(
        f"{format_id(listed.topic_id)} {partition.partition} {listed.log_start_offset}"
        f" {listed.recovery_point} {listed.high_watermark} {partition.topic}".encode()
    )


def _decode_line(line: bytes) -> tuple[TopicPartition, Listed] | None:
    text = _believed(line)
    if text is None:
        return None
    topic_id, partition, *offsets, topic = text.split(" ")
    key = TopicPartition(topic, int(partition))
    return key, Listed(parse_id(topic_id), *map(int, offsets))
