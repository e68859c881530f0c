"""Small files that are replaced as a whole, in Kafka's text formats.

Offset checkpoints (`recovery-point-offset-checkpoint`, `replication-offset-checkpoint`,
`log-start-offset-checkpoint`): version 0, number of entries, then `topic partition offset`, a line
each. `leader-epoch-checkpoint`: version 0, number of entries, then `epoch start-offset`.
`partition.metadata`: `version: 0`, `topic_id: <base64 id>`.

`write_durably` writes beside the file, syncs, renames and syncs the directory, so that a crash
leaves the old content or the new one; it blocks and belongs off the event loop. Readers raise
`StorageError` on anything that they cannot take whole: a half-read checkpoint is worse than none.
"""

from __future__ import annotations

import base64
import errno
import os.path
from collections.abc import Iterable, Mapping
from uuid import UUID

from tidelog.errors import StorageError
from tidelog.host.disk import Disk
from tidelog.model import TopicPartition

_VERSION = "0"


def read_bytes(disk: Disk, path: str) -> bytes | None:
    """A whole small file, or None where there is none."""
    try:
        fd = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        return disk.pread(fd, disk.size(fd), 0)
    finally:
        disk.close(fd)


def write_plainly(disk: Disk, path: str, data: bytes) -> None:
    """Write a whole small file and leave it to the caller to sync it."""
    fd = disk.open(path, create=True)
    try:
        if disk.pwritev(fd, (data,), 0) != len(data):
            raise OSError(errno.ENOSPC, "short write", path)
        disk.truncate(fd, len(data))
    finally:
        disk.close(fd)


def write_durably(disk: Disk, path: str, data: bytes) -> None:
    """Replace a file so that a crash leaves either the old content or the new one. Blocks."""
    replace_file(disk, path, data)
    disk.sync_dir(os.path.dirname(path))


def replace_file(disk: Disk, path: str, data: bytes, *, sync: bool = True) -> None:
    """Replace a file; durable once the caller has synced its directory. Blocks.

    Without `sync` the caller syncs the whole file system.
    """
    temporary = path + ".tmp"
    fd = disk.open(temporary, create=True)
    try:
        if disk.pwritev(fd, (data,), 0) != len(data):
            raise OSError(errno.ENOSPC, "short write", temporary)
        disk.truncate(fd, len(data))
        if sync:
            disk.fdatasync(fd)
    finally:
        disk.close(fd)
    disk.rename(temporary, path)


def encode_lines(lines: Iterable[str]) -> bytes:
    """A versioned checkpoint of one entry per line."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in (_VERSION, len(entries), *entries)).encode()


def decode_lines(data: bytes, path: str) -> list[list[str]]:
    """The fields of each entry; StorageError unless the file is whole."""
    try:
        version, count, *entries = data.decode().splitlines()
        if version != _VERSION or int(count) != len(entries) or not data.endswith(b"\n"):
            raise ValueError("wrong version, or not the number of entries that it names")
        return [entry.split(" ") for entry in entries]
    except ValueError as error:
        raise StorageError(f"{path} is damaged: {error}") from error


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return encode_lines(
        f"{partition.topic} {partition.partition} {offset}" for partition, offset in offsets.items()
    )


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """An offset checkpoint, empty where there is none; StorageError where it is damaged."""
    data = read_bytes(disk, path)
    if data is None:
        return {}
    try:
        offsets = {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partition, offset in decode_lines(data, path)
        }
    except ValueError as error:
        raise StorageError(f"{path} is damaged: {error}") from error
    if any(offset < 0 for offset in offsets.values()):
        raise StorageError(f"{path} is damaged: an offset is negative")
    return offsets


def format_id(value: UUID) -> str:
    """An id as Kafka prints it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def parse_id(text: str) -> UUID:
    """The reverse of `format_id`; ValueError where it is none."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return UUID(bytes=raw)


def encode_partition_metadata(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {format_id(topic_id)}".encode()


def read_partition_metadata(disk: Disk, path: str) -> UUID | None:
    """The topic id that a partition's directory belongs to; None where the file is missing."""
    data = read_bytes(disk, path)
    if data is None:
        return None
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines())
        if fields["version"] != _VERSION:
            raise ValueError(f"unknown version {fields['version']}")
        return parse_id(fields["topic_id"])
    except (ValueError, KeyError) as error:
        raise StorageError(f"{path} is damaged: {error}") from error
