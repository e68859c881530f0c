"""A broker's data directory: who may use it, which partitions lie in it, how it was left.

Files, all Kafka's: `.lock` (held while the broker runs; the holder's process id is in it),
`meta.properties` (cluster.id, node.id, directory.id, version=1), `.kafka_cleanshutdown`, and the
offset checkpoints `recovery-point-offset-checkpoint`, `replication-offset-checkpoint` (high
watermarks), `log-start-offset-checkpoint` and `cleaner-offset-checkpoint` (what is compacted); one
directory per partition, `<topic>-<partition>`.

Promises: a second process is refused; a directory of another cluster or node is refused; the clean-
shutdown marker is taken away before anything is written and put back only when every log was
flushed and closed without a fault; a damaged checkpoint costs a longer recovery, not data; a
directory that the metadata does not know is renamed to `*-stray`, never unlinked.

`CheckpointPlan` and `Log.close` block and belong off the loop, or to start and stop.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from tidelog.errors import StorageError, TidelogError
from tidelog.host.disk import Disk
from tidelog.model import NO_TOPIC_ID, TopicPartition
from tidelog.storage.checkpoint import (
    encode_offsets,
    encode_partition_metadata,
    format_id,
    parse_id,
    read_bytes,
    read_offsets,
    read_partition_metadata,
    sync_file,
    write_durably,
    write_plainly,
)
from tidelog.storage.log import Log, LogConfig, LogContext

logger = logging.getLogger(__name__)

LOCK = ".lock"
META = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
_PARTITION_NAME = re.compile(r"(.+)-(\d+)")
_DELETED_NAME = re.compile(r".+-\d+\.[0-9a-f]{32}-delete")


@dataclass(slots=True, frozen=True)
class DirectoryIdentity:
    """Whose directory it is."""

    cluster_id: str
    node_id: int
    directory_id: UUID


@dataclass(slots=True)
class CheckpointPlan:
    """Checkpoint files to write; `run` blocks and raises OSError."""

    disk: Disk
    files: dict[str, bytes]

    def run(self) -> None:
        for path, data in self.files.items():
            write_durably(self.disk, path, data)


# What is to become of a partition's directory: the config to open it with, or None for a stray.
Expected = Callable[[TopicPartition, UUID | None], tuple[UUID, LogConfig] | None]


class DataDir:
    """One directory of logs, locked by this process."""

    def __init__(self, path: str, context: LogContext) -> None:
        self.path = path
        self.context = context
        self.logs: dict[TopicPartition, Log] = {}
        self.identity: DirectoryIdentity | None = None
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.was_clean = False
        self._log_starts: dict[TopicPartition, int] = {}
        self._recovery_points: dict[TopicPartition, int] = {}
        self._cleaned_offsets: dict[TopicPartition, int] = {}
        self._failed = False
        self._lock_fd = -1

    @classmethod
    def open(cls, path: str, context: LogContext) -> DataDir:
        """Create and lock a directory and read what is known of it; opens no log yet."""
        data_dir = cls(path, context)
        disk = context.disk
        _make_durably(disk, path)
        data_dir._lock()
        try:
            data_dir.identity = read_identity(disk, path)
            data_dir.was_clean = data_dir._take_clean_marker()
            data_dir._log_starts = data_dir._read_checkpoint(LOG_STARTS)
            data_dir._recovery_points = data_dir._read_checkpoint(RECOVERY_POINTS)
            data_dir.high_watermarks = data_dir._read_checkpoint(HIGH_WATERMARKS)
            data_dir._cleaned_offsets = data_dir._read_checkpoint(CLEANED_OFFSETS)
        except BaseException:
            data_dir._unlock()
            raise
        return data_dir

    def identify(self, cluster_id: str, node_id: int) -> DirectoryIdentity:
        """Claim the directory for a node of a cluster; StorageError where it is another's."""
        found = self.identity
        if found is None:
            found = DirectoryIdentity(cluster_id, node_id, self.context.random.uuid())
            path = f"{self.path}/{META}"
            write_durably(self.context.disk, path, encode_identity(found))
            self.identity = found
        for name, here, wanted in (
            ("cluster.id", found.cluster_id, cluster_id),
            ("node.id", found.node_id, node_id),
        ):
            if here != wanted:
                raise StorageError(
                    f"{self.path}/{META} has {name} {here}, this broker has {wanted}:"
                    " use the directory of this broker, or an empty one"
                )
        return found

    def load_logs(self, expected: Expected) -> dict[TopicPartition, Log]:
        """Open every partition here, recovering those that need it; put strays aside."""
        disk = self.context.disk
        for name in sorted(disk.list_dir(self.path)):
            match = _PARTITION_NAME.fullmatch(name)
            if _DELETED_NAME.fullmatch(name):
                self._remove_tree(f"{self.path}/{name}")
            elif match is not None and disk.exists(f"{self.path}/{name}/."):
                self._load(TopicPartition(match[1], int(match[2])), expected)
        if not self.was_clean:
            disk.sync_dir(self.path)
        return self.logs

    def _load(self, partition: TopicPartition, expected: Expected) -> None:
        directory = self._directory(partition)
        topic_id = self._topic_id_of(directory)
        known = expected(partition, topic_id)
        if known is None:
            self._put_aside(directory)
            return
        if topic_id is not None and topic_id != known[0]:
            # The directory of an older topic of that name: its records are not this topic's.
            self._put_aside(directory)
            return
        path = f"{directory}/{PARTITION_METADATA}"
        if topic_id is None:
            write_durably(self.context.disk, path, encode_partition_metadata(known[0]))
        elif not self.was_clean:
            # What was read may be in memory only, written by a process that was killed.
            sync_file(self.context.disk, path)
        log = self.logs[partition] = Log.open(
            directory,
            partition,
            known[0],
            known[1],
            self.context,
            clean=self.was_clean,
            recovery_point=self._recovery_points.get(partition, 0),
            log_start_offset=self._log_starts.get(partition, 0),
        )
        log.first_dirty_offset = self._cleaned_offsets.get(partition, 0)

    def _topic_id_of(self, directory: str) -> UUID | None:
        path = f"{directory}/{PARTITION_METADATA}"
        try:
            return read_partition_metadata(self.context.disk, path)
        except StorageError as error:
            # Without its id nobody can tell whose records these are.
            logger.error("partition metadata unusable error=%s", error)
            return NO_TOPIC_ID

    def create_log(self, partition: TopicPartition, topic_id: UUID, config: LogConfig) -> Log:
        """Make a new partition's directory and open its empty log."""
        disk = self.context.disk
        directory = self._directory(partition)
        if disk.exists(directory):
            raise StorageError(f"{directory} exists already")
        metadata = f"{directory}/{PARTITION_METADATA}"
        try:
            disk.make_dir(directory)
            write_plainly(disk, metadata, encode_partition_metadata(topic_id))
            log = Log.open(directory, partition, topic_id, config, self.context, clean=True)
        except OSError:
            # Half a directory would stand in the way of the next try.
            with suppress(OSError):
                self._remove_tree(directory)
            raise
        log.created_in(self.path, metadata)
        self.logs[partition] = log
        return log

    def delete_log(self, partition: TopicPartition) -> None:
        """Take a partition out of service and delete its files off the loop."""
        log = self.logs.pop(partition)
        self.high_watermarks.pop(partition, None)
        log.delete()

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None) -> CheckpointPlan:
        """What to write down now; run it off the loop.

        Recovery points and log starts are taken from the logs; `high_watermarks` None leaves that
        file as it is.
        """
        recovery_points = {key: log.flushed_offset for key, log in self.logs.items()}
        log_starts = {
            key: log.log_start_offset for key, log in self.logs.items() if log.log_start_offset
        }
        files = {
            f"{self.path}/{RECOVERY_POINTS}": encode_offsets(recovery_points),
            f"{self.path}/{LOG_STARTS}": encode_offsets(log_starts),
        }
        if high_watermarks is not None:
            self.high_watermarks = dict(high_watermarks)
            files[f"{self.path}/{HIGH_WATERMARKS}"] = encode_offsets(high_watermarks)
        return CheckpointPlan(self.context.disk, files)

    def cleaner_checkpoint(self) -> CheckpointPlan:
        """How far each log is compacted, to be written down; run it off the loop."""
        offsets = {
            key: log.first_dirty_offset for key, log in self.logs.items() if log.first_dirty_offset
        }
        path = f"{self.path}/{CLEANED_OFFSETS}"
        return CheckpointPlan(self.context.disk, {path: encode_offsets(offsets)})

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Cut a log and make that durable before anything is appended to it. Blocks.

        Otherwise a recovery point above the cut would be believed for what is written there next.
        """
        log = self.logs[partition]
        log.truncate_to(offset)
        plan = log.flush_plan()
        plan.run()
        log.flushed(plan)
        self.checkpoint(None).run()

    def failed(self) -> None:
        """Something in here was lost: no clean-shutdown marker will be written."""
        self._failed = True

    def close(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> bool:
        """Flush and close every log, write the checkpoints and, last, the marker. Blocks.

        False, and no marker, where anything failed: the next start recovers.
        """
        clean = not self._failed
        for log in self.logs.values():
            try:
                log.close()
            except (TidelogError, OSError) as error:
                logger.error("log not closed cleanly partition=%s error=%s", log.directory, error)
                clean = False
        try:
            self.checkpoint(high_watermarks).run()
            if clean:
                path = f"{self.path}/{CLEAN_SHUTDOWN}"
                marker = json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":"))
                write_durably(self.context.disk, path, marker.encode())
        except OSError as error:
            logger.error("data directory not closed cleanly path=%s error=%s", self.path, error)
            clean = False
        finally:
            self._unlock()
        return clean

    def abandon(self) -> None:
        """Let go of everything as it is, as a crash would: the next start recovers."""
        for log in self.logs.values():
            log.abandon()
        self._unlock()

    # Inside

    def _directory(self, partition: TopicPartition) -> str:
        return f"{self.path}/{partition.topic}-{partition.partition}"

    def _lock(self) -> None:
        disk = self.context.disk
        path = f"{self.path}/{LOCK}"
        try:
            self._lock_fd = disk.lock(path)
        except BlockingIOError:
            holder = (read_bytes(disk, path) or b"").decode(errors="replace").strip()
            by = f"process {holder}" if holder else "another process"
            raise StorageError(f"{self.path} is in use by {by}") from None
        disk.truncate(self._lock_fd, 0)
        disk.pwritev(self._lock_fd, (f"{os.getpid()}\n".encode(),), 0)

    def _unlock(self) -> None:
        if self._lock_fd >= 0:
            self.context.disk.close(self._lock_fd)
            self._lock_fd = -1

    def _take_clean_marker(self) -> bool:
        disk = self.context.disk
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        if not disk.exists(path):
            return False
        disk.unlink(path)
        disk.sync_dir(self.path)
        return True

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.context.disk, f"{self.path}/{name}")
        except StorageError as error:
            logger.error("checkpoint unusable, recovering without it error=%s", error)
            self.was_clean = self.was_clean and name != RECOVERY_POINTS
            return {}

    def _put_aside(self, directory: str) -> None:
        disk = self.context.disk
        target = f"{directory}.{self.context.random.uuid().hex}-stray"
        logger.warning("unknown partition put aside directory=%s as=%s", directory, target)
        disk.rename(directory, target)

    def _remove_tree(self, directory: str) -> None:
        disk = self.context.disk
        for name in disk.list_dir(directory):
            disk.unlink(f"{directory}/{name}")
        disk.remove_dir(directory)


def _make_durably(disk: Disk, path: str) -> None:
    """Create a directory with its parents so that a power cut does not take them away again."""
    lowest = os.path.abspath(path)
    created = []
    while not disk.exists(lowest):
        created.append(lowest)
        lowest = os.path.dirname(lowest)
    disk.make_dir(path)
    if not created and not disk.exists(f"{path}/{META}"):
        # Nobody has claimed it yet: an earlier start may have failed right here.
        created.append(os.path.abspath(path))
    for directory in reversed(created):
        disk.sync_dir(os.path.dirname(directory))


def encode_identity(identity: DirectoryIdentity) -> bytes:
    """The content of `meta.properties`."""
    return (
        f"#\ncluster.id={identity.cluster_id}\ndirectory.id={format_id(identity.directory_id)}\n"
        f"node.id={identity.node_id}\nversion=1\n"
    ).encode()


def read_identity(disk: Disk, path: str) -> DirectoryIdentity | None:
    """Whose directory it is; None where nobody has claimed it, StorageError where unreadable."""
    file = f"{path}/{META}"
    data = read_bytes(disk, file)
    if data is None:
        return None
    try:
        lines = [line.strip() for line in data.decode().splitlines()]
        fields = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        if fields["version"] != "1":
            raise ValueError(f"unknown version {fields['version']}")
        return DirectoryIdentity(
            fields["cluster.id"], int(fields["node.id"]), parse_id(fields["directory.id"])
        )
    except (ValueError, KeyError) as error:
        raise StorageError(f"{file} is damaged or of another version: {error}") from error
