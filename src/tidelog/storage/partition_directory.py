"""The names and small doings of partition directories: `<topic>-<partition>` and their afterlife.

A directory that goes is renamed first, to `<topic>-<partition>.<32 hex>-delete` where its topic was
deleted, to `...-stray` where nobody knows its topic. Both names fit the 255 bytes of a file name
whatever the topic is called: the topic is cut, the rest tells them apart.
"""

from __future__ import annotations

import re
from uuid import UUID

from tidelog.errors import StorageError
from tidelog.host.disk import Disk
from tidelog.model import TopicPartition
from tidelog.storage.checkpoint import read_partition_metadata

PARTITION_METADATA = "partition.metadata"
FIRST_SEGMENT = f"{0:020d}.log"
DELETED = "-delete"
STRAY = "-stray"
_NAME_BYTES_MAX = 255
_PARTITION_NAME = re.compile(r"(.+)-(0|[1-9]\d*)")
_RETIRED_NAME = re.compile(r".+-\d+\.[0-9a-f]{32}(-delete|-stray)")
# What a creation that a kill cut short can leave, none of it with a byte of a record.
_HALF_MADE = frozenset({PARTITION_METADATA, FIRST_SEGMENT})


def partition_of(name: str) -> TopicPartition | None:
    """The partition that a directory of this name would be of."""
    match = _PARTITION_NAME.fullmatch(name)
    return None if match is None else TopicPartition(match[1], int(match[2]))


def is_retired(name: str) -> bool:
    """True for the name of a directory that was deleted or put aside."""
    return _RETIRED_NAME.fullmatch(name) is not None


def retired_name(partition: TopicPartition, unique: UUID, kind: str) -> str:
    """A name that no other directory has and that fits."""
    tail = f"-{partition.partition}.{unique.hex}{kind}"
    return partition.topic[: _NAME_BYTES_MAX - len(tail)] + tail


def topic_id_in(disk: Disk, directory: str) -> UUID | None:
    """The topic that a directory belongs to; None where it does not say so, or not legibly."""
    try:
        return read_partition_metadata(disk, f"{directory}/{PARTITION_METADATA}")
    except StorageError:
        return None


def is_half_made(disk: Disk, directory: str) -> bool:
    """True where a directory holds no more than a creation leaves before it is listed."""
    names = disk.list_dir(directory)
    if not _HALF_MADE.issuperset(names):
        return False
    return FIRST_SEGMENT not in names or not disk.file_size(f"{directory}/{FIRST_SEGMENT}")


def remove_tree(disk: Disk, directory: str) -> None:
    """Unlink a partition's directory with all that is in it.

    Its metadata goes last: until then a start can tell whose directory it is.
    """
    for name in sorted(disk.list_dir(directory), key=PARTITION_METADATA.__eq__):
        path = f"{directory}/{name}"
        if disk.exists(f"{path}/."):
            remove_tree(disk, path)
        else:
            disk.unlink(path)
    disk.remove_dir(directory)
