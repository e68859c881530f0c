"""What the data directory of a stopped broker holds, for those who lost the metadata around it.

The logs are opened as the broker would open them, so an unclean stop is recovered from here, and
closed again when the survey ends: the directory is then as after a clean stop, and says of itself
what it said before. It stays locked in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from tidelog.config.topic_config import TopicConfig
from tidelog.errors import StorageError
from tidelog.model import NO_TOPIC_ID, TopicPartition
from tidelog.storage.checkpoint import format_id
from tidelog.storage.data_dir import DataDir
from tidelog.storage.identity import META, DirectoryIdentity, read_identity
from tidelog.storage.log_context import LogContext, NewLog
from tidelog.storage.partition_directory import is_retired, partition_of, topic_id_in


class Copy(NamedTuple):
    """The log of a partition, as one directory has it."""

    topic_id: UUID
    # The epoch of the last record, -1 where there is none, and where the log ends: of two logs that
    # hold all that is committed, the one with the higher pair has the newer end.
    last_epoch: int = -1
    end_offset: int = 0
    # What is known to be committed; a log that ends below has records missing.
    high_watermark: int = 0
    # Why it cannot be served; empty where it can.
    damage: str = ""


@dataclass(slots=True)
class Surveyed:
    """A directory that was looked through; `close` ends it. Blocks."""

    path: str
    identity: DirectoryIdentity
    # The life that it is whole from, as the broker will say at its next start.
    intact_epoch: int
    copies: Mapping[TopicPartition, Copy]
    # Partition directories that do not say which topic they belong to.
    nameless: list[str]
    last_producer_id: int
    close: Callable[[], object] = field(repr=False)

    @property
    def directory_id(self) -> str:
        return format_id(self.identity.directory_id)


def identity_of(context: LogContext, path: str) -> DirectoryIdentity:
    """Whose directory it is; StorageError where it is no broker's. Changes nothing."""
    identity = read_identity(context.disk, path)
    if identity is None:
        raise StorageError(f"{path} is not the data directory of a broker: it has no {META}")
    return identity


def survey(path: str, context: LogContext, config: TopicConfig) -> Surveyed:
    """Look through a directory; StorageError where a broker uses it. Blocks."""
    identity = identity_of(context, path)
    data_dir = DataDir.open(path, context)
    try:
        wanted, nameless = _partitions(data_dir, config)
        loaded = data_dir.load_logs(wanted)
        copies = {
            partition: Copy(
                log.topic_id, log.epochs.latest, log.log_end_offset, log.checkpointed_watermark
            )
            for partition, log in loaded.logs.items()
        }
        for partition, damage in loaded.offline.items():
            copies[partition] = Copy(wanted[partition].topic_id, damage=damage)
    except BaseException:
        data_dir.close()
        raise
    producers = (log.producers.states for log in loaded.logs.values())
    last_id = max((max(states, default=-1) for states in producers), default=-1)
    return Surveyed(
        path, identity, data_dir.life.intact_epoch, copies, nameless, last_id, data_dir.close
    )


def _partitions(
    data_dir: DataDir, config: TopicConfig
) -> tuple[dict[TopicPartition, NewLog], list[str]]:
    """Everything that is there or must be; and what does not say what it is."""
    disk = data_dir.context.disk
    wanted = {
        partition: NewLog(listed.topic_id, config)
        for partition, listed in data_dir.inventory.entries.items()
    }
    nameless = []
    for name in sorted(disk.list_dir(data_dir.path)):
        path = f"{data_dir.path}/{name}"
        partition = partition_of(name)
        if partition is None or is_retired(name) or not disk.exists(f"{path}/."):
            continue
        topic_id = topic_id_in(disk, path)
        if topic_id is not None and topic_id != NO_TOPIC_ID:
            wanted[partition] = NewLog(topic_id, config)
        elif partition not in wanted:
            nameless.append(path)
    return wanted, nameless
