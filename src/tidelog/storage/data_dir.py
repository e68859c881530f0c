"""A broker's data directory: who may use it, which partitions lie in it, how it was left.

Files, all Kafka's but the last: `.lock` (held while the broker runs, with its process id),
`meta.properties` (whose it is), `.kafka_cleanshutdown`, the offset checkpoints
`recovery-point-offset-checkpoint`, `replication-offset-checkpoint` (high watermarks),
`log-start-offset-checkpoint` and `cleaner-offset-checkpoint`; `partition-inventory`, which says
what must be here and is believed where a checkpoint differs. One directory per partition,
`<topic>-<partition>`.

Promises: a second process, and a directory of another cluster or node, are refused. The clean-stop
marker is removed before anything is written and put back only when every log was flushed and closed
without a fault. A partition that cannot be opened is offline and says why; the others are served.
Nothing is unlinked that nobody asked to delete, and foreign directories are left alone.

Whatever touches the disk blocks and belongs off the loop, or to start and stop.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from tidelog.errors import StorageError, TidelogError
from tidelog.host.disk import Disk
from tidelog.model import TopicPartition
from tidelog.storage.checkpoint import (
    encode_offsets,
    encode_partition_metadata,
    format_id,
    read_bytes,
    read_offsets,
    write_durably,
    write_plainly,
)
from tidelog.storage.identity import META, DirectoryIdentity, encode_identity, read_identity
from tidelog.storage.inventory import Inventory, Listed
from tidelog.storage.life import NO_EPOCH, DirectoryLife, Known, Vouched
from tidelog.storage.loading import Checkpoints, Loaded, Loading
from tidelog.storage.local_cluster import refuse_local_cluster
from tidelog.storage.log import Log
from tidelog.storage.log_context import LogContext, NewLog
from tidelog.storage.losses import Expectation
from tidelog.storage.partition_directory import (
    DELETED,
    FIRST_SEGMENT,
    PARTITION_METADATA,
    STRAY,
    is_half_made,
    remove_tree,
    retired_name,
    topic_id_in,
)
from tidelog.storage.recovery import Opening, begin
from tidelog.storage.reserve import DiskReserve
from tidelog.storage.running_clock import Ages
from tidelog.storage.strays import note_since, remove_old_strays
from tidelog.storage.unlinking import unlink_quietly

logger = logging.getLogger(__name__)

LOCK = ".lock"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
# Beyond so many logs one sync of the file system is cheaper than one of each file. Not before: it
# also waits for what other programs have written.
_SYNCED_ONE_BY_ONE = 128

Outcome = Log | OSError | StorageError


@dataclass(slots=True)
class CheckpointPlan:
    """Checkpoint files to write; `run` blocks and raises OSError."""

    disk: Disk
    files: dict[str, bytes]
    inventory: Inventory | None = None
    listed: dict[TopicPartition, Listed] = field(default_factory=dict)
    # Names that have proved for long enough that their segments were deleted, and who takes them
    # back where they have to go on proving it.
    obsolete: list[str] = field(default_factory=list)
    keep: Callable[[list[str]], None] = lambda paths: None

    def run(self) -> None:
        try:
            for path, data in self.files.items():
                write_durably(self.disk, path, data)
            if self.inventory is not None:
                self.inventory.rewrite(self.listed)
        except OSError:
            # The next one tries again.
            self.keep(self.obsolete)
            raise
        for path in self.obsolete:
            unlink_quietly(self.disk, path)


class DataDir:
    """One directory of logs, locked by this process."""

    def __init__(self, path: str, context: LogContext) -> None:
        self.path = path
        self.context = context
        self.logs: dict[TopicPartition, Log] = {}
        self.identity: DirectoryIdentity | None = None
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.was_clean = False
        self.inventory = Inventory(context.disk, path)
        self.reserve = DiskReserve(context.disk, path)
        # Whether records of the last life may be missing, for the registration.
        self.life = DirectoryLife(context.disk, path)
        self._checkpoints = Checkpoints()
        self._failed = False
        self._loaded = False
        self._lock_fd = -1
        self._obsolete: list[str] = []
        context.unlink_once_written = self._obsolete.append

    @classmethod
    def open(cls, path: str, context: LogContext) -> DataDir:
        """Create and lock a directory and read what is known of it; opens no log yet."""
        data_dir = cls(path, context)
        disk = context.disk
        make_durably(disk, path)
        data_dir._lock()
        try:
            refuse_local_cluster(disk, path)
            # A start writes, and so does whoever makes room.
            data_dir.reserve.release_if_full()
            data_dir._sign_lock()
            data_dir.identity = read_identity(disk, path)
            data_dir.inventory.read()
            incarnation = format_id(context.random.uuid())
            data_dir.life.begin(incarnation, is_new=data_dir.identity is None)
            data_dir.was_clean = data_dir.life.was_clean
            data_dir._read_checkpoints()
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

    def vouch(self, known: Known | None) -> Vouched:
        """What a registration says of the directory; see `life`."""
        assert self.identity is not None, f"{self.path} belongs to nobody yet"
        return self.life.vouch(format_id(self.identity.directory_id), known)

    def load_logs(
        self,
        wanted: Mapping[TopicPartition, NewLog],
        *,
        deleted: Collection[UUID] = (),
        accept_loss: Collection[TopicPartition] = (),
    ) -> Loaded:
        """Open the wanted partitions that are here, recovering those that need it. Blocks.

        `deleted` are the ids of topics whose directories may be removed, `accept_loss` the
        partitions to be served with what is left of them.
        """
        assert self._lock_fd >= 0 and not self._loaded, f"{self.path} is locked and loaded once"
        loading = Loading(self.path, self.context, self.inventory, self._checkpoints)
        loaded = loading.run(wanted, clean=self.was_clean, accept_loss=accept_loss, deleted=deleted)
        self.logs = loaded.logs
        self._loaded = True
        listed = self.inventory.found and not self.inventory.damaged
        if self.life.intact_epoch != NO_EPOCH and not listed:
            # Nothing says what was here, so nobody can say that all of it still is.
            loaded.lost = loaded.lost or f"{self.inventory.path} is missing or damaged"
        if loaded.lost:
            self.life.lost(loaded.lost)
        # What is offline was not walked: the next start has to, whatever becomes of this one.
        self._failed |= loaded.failed or bool(loaded.offline and not self.was_clean)
        self.high_watermarks = {
            partition: self.inventory.entries[partition].high_watermark for partition in self.logs
        }
        try:
            # From here on the directory is as it is listed.
            self.checkpoint(None).run()
        except OSError as error:
            logger.error("inventory not written at start path=%s error=%s", self.path, error)
        # Unlinking may take longer than all the rest; the next checkpoint has time for it.
        for log in self.logs.values():
            self._obsolete += log.repairs.left_over
        return loaded

    def create_logs(self, wanted: Mapping[TopicPartition, NewLog]) -> dict[TopicPartition, Outcome]:
        """Make the directories of new partitions, durably, and list them. Blocks.

        Each has its log or the fault that it met; hand the logs to `add` on the loop.
        """
        assert self._lock_fd >= 0, f"{self.path} is not locked"
        outcomes: dict[TopicPartition, Outcome] = {}
        made: list[TopicPartition] = []
        for partition, new in wanted.items():
            try:
                self._make_directory(partition, new)
                made.append(partition)
            except (OSError, StorageError) as error:
                outcomes[partition] = error
        try:
            self._sync_made(made)
            self.inventory.append({each: Listed(wanted[each].topic_id) for each in made})
        except OSError as error:
            outcomes.update(dict.fromkeys(made, error))
            return outcomes
        for partition in made:
            expected = Expectation(self.directory_of(partition))
            opening = Opening(partition, wanted[partition], self.context, expected, clean=True)
            outcomes[partition] = Log(opening, begin(opening))
        return outcomes

    def _make_directory(self, partition: TopicPartition, new: NewLog) -> None:
        disk = self.context.disk
        directory = self.directory_of(partition)
        if disk.exists(directory):
            if not is_half_made(disk, directory):
                raise StorageError(
                    f"{directory} is in the way of a new partition and not one of Tidelog's:"
                    " move it out of the data directory"
                )
            remove_tree(disk, directory)
        disk.make_dir(directory)
        metadata = encode_partition_metadata(new.topic_id)
        write_plainly(disk, f"{directory}/{PARTITION_METADATA}", metadata)
        write_plainly(disk, f"{directory}/{FIRST_SEGMENT}", b"")

    def _sync_made(self, made: Sequence[TopicPartition]) -> None:
        disk = self.context.disk
        if len(made) > _SYNCED_ONE_BY_ONE:
            disk.sync_all(self.path)
            return
        for partition in made:
            directory = self.directory_of(partition)
            # The first segment is empty: its name is all there is to it.
            file = self.context.files.file(f"{directory}/{PARTITION_METADATA}")
            try:
                file.sync()
            finally:
                file.close()
            disk.sync_dir(directory)
        if made:
            disk.sync_dir(self.path)

    def add(self, log: Log) -> None:
        """Take a log that `create_logs` made into service."""
        assert log.topic_partition not in self.logs, f"{log.directory} has an owner"
        self.logs[log.topic_partition] = log

    def drop(self, partition: TopicPartition) -> None:
        """Take a partition out of service; its files stay until `retire_directory`."""
        self.inventory.remove([partition])
        self.high_watermarks.pop(partition, None)
        log = self.logs.pop(partition, None)
        if log is not None:
            log.abandon()

    def retire_directory(
        self, partition: TopicPartition, topic_id: UUID, kind: str = DELETED
    ) -> str | None:
        """Rename the directory of a partition that is not ours any more; its new path. Blocks.

        None where there is none of that topic. The files are not unlinked yet: readers may still
        have them open, and what is STRAY is kept for days.
        """
        disk = self.context.disk
        directory = self.directory_of(partition)
        if not disk.exists(directory) or topic_id_in(disk, directory) != topic_id:
            return None
        if kind == STRAY:
            note_since(disk, directory, self.context.clock.wall_ms())
        unique = self.context.random.uuid()
        target = f"{self.path}/{retired_name(partition, unique, kind)}"
        disk.rename(directory, target)
        return target

    def remove_old_strays(self, ages: Ages) -> list[str]:
        """Unlink what was put aside days ago; see `strays`. Blocks."""
        return remove_old_strays(self.context.disk, self.path, ages, self.context.clock.wall_ms())

    def remove_retired(self, directories: Sequence[str]) -> None:
        """Unlink directories that `retire_directory` renamed. Blocks."""
        disk = self.context.disk
        # The new names first: files that go under the old one would be missed by the next start.
        disk.sync_dir(self.path)
        fault: OSError | None = None
        for directory in directories:
            try:
                if disk.exists(directory):
                    remove_tree(disk, directory)
            except OSError as error:
                logger.warning("directory not removed path=%s error=%s", directory, error)
                fault = error
        disk.sync_dir(self.path)
        if fault is not None:
            raise fault

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None) -> CheckpointPlan:
        """What to write down now; run it off the loop.

        Recovery points and log starts are taken from the logs; `high_watermarks` None leaves those
        as they are.
        """
        assert self._lock_fd >= 0, f"{self.path} is not locked"
        if high_watermarks is not None:
            self.high_watermarks = dict(high_watermarks)
        known = self.high_watermarks
        listed = {
            key: Listed(
                log.topic_id,
                log.start_on_disk,
                log.flushed_offset,
                # A log that was cut ends below its watermark until that follows. And what nobody
                # serves yet is known as well as it was.
                min(known.get(key, log.checkpointed_watermark), log.log_end_offset),
            )
            for key, log in self.logs.items()
        }
        recovery_points = {key: each.recovery_point for key, each in listed.items()}
        log_starts = {
            key: each.log_start_offset for key, each in listed.items() if each.log_start_offset
        }
        files = {
            f"{self.path}/{RECOVERY_POINTS}": encode_offsets(recovery_points),
            f"{self.path}/{LOG_STARTS}": encode_offsets(log_starts),
        }
        if high_watermarks is not None:
            watermarks = {key: each.high_watermark for key, each in listed.items()}
            files[f"{self.path}/{HIGH_WATERMARKS}"] = encode_offsets(watermarks)
        obsolete = self._obsolete.copy()
        del self._obsolete[: len(obsolete)]
        return CheckpointPlan(
            self.context.disk, files, self.inventory, listed, obsolete, self._obsolete.extend
        )

    def cleaner_checkpoint(self) -> CheckpointPlan:
        """How far each log is compacted, to be written down; run it off the loop."""
        offsets = {
            key: log.first_dirty_offset for key, log in self.logs.items() if log.first_dirty_offset
        }
        path = f"{self.path}/{CLEANED_OFFSETS}"
        return CheckpointPlan(self.context.disk, {path: encode_offsets(offsets)})

    def failed(self, error: OSError | None = None) -> None:
        """Something in here was lost: no clean-shutdown marker will be written.

        An error with a number came from the disk: even a kill is then a loss of what it held.
        """
        self._failed = True
        if error is None or error.errno is not None:
            self.life.sync_failed()

    def close(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> bool:
        """Flush and close every log, write the checkpoints and, last, the marker. Blocks.

        False, and no marker, where anything failed: the next start recovers.
        """
        clean = self._stop_logs() and not self._failed
        try:
            if self._loaded:
                self.checkpoint(high_watermarks).run()
            else:
                # A start that failed: what was found is what there is.
                clean = clean and self.was_clean
            if clean:
                self.life.write_clean_marker()
        except OSError as error:
            logger.error("data directory not closed cleanly path=%s error=%s", self.path, error)
            clean = False
        finally:
            self._unlock()
        return clean

    def _stop_logs(self) -> bool:
        """Write and sync what a clean stop leaves, then let go of the files; False on a fault."""
        clean = True
        changed: list[Log] = []
        for log in self.logs.values():
            try:
                if log.write_for_stop():
                    changed.append(log)
            except (TidelogError, OSError) as error:
                clean = _not_closed(log, error)
        if len(changed) > _SYNCED_ONE_BY_ONE:
            clean &= self._sync_together(changed)
        else:
            for log in changed:
                try:
                    log.sync()
                except (TidelogError, OSError) as error:
                    clean = _not_closed(log, error)
        for log in self.logs.values():
            log.abandon()
        return clean

    def _sync_together(self, changed: Sequence[Log]) -> bool:
        try:
            for log in changed:
                log.write_epochs()
            self.context.disk.sync_all(self.path)
        except OSError as error:
            logger.error("logs not synced path=%s error=%s", self.path, error)
            self.life.sync_failed()
            return False
        for log in changed:
            log.all_synced()
        return True

    def abandon(self) -> None:
        """Let go of everything as it is, as a crash would: the next start recovers."""
        for log in self.logs.values():
            log.abandon()
        self._unlock()

    def directory_of(self, partition: TopicPartition) -> str:
        return f"{self.path}/{partition}"

    # Inside

    def _lock(self) -> None:
        disk = self.context.disk
        path = f"{self.path}/{LOCK}"
        try:
            self._lock_fd = disk.lock(path)
        except BlockingIOError:
            holder = (read_bytes(disk, path) or b"").decode(errors="replace").strip()
            by = f"process {holder}" if holder else "another process"
            raise StorageError(f"{self.path} is in use by {by}") from None

    def _sign_lock(self) -> None:
        disk = self.context.disk
        disk.truncate(self._lock_fd, 0)
        disk.pwritev(self._lock_fd, (f"{os.getpid()}\n".encode(),), 0)

    def _unlock(self) -> None:
        if self._lock_fd >= 0:
            self.context.disk.close(self._lock_fd)
            self._lock_fd = -1

    def _read_checkpoints(self) -> None:
        checkpoints = self._checkpoints
        checkpoints.log_starts = self._read_checkpoint(LOG_STARTS)
        checkpoints.recovery_points = self._read_checkpoint(RECOVERY_POINTS)
        checkpoints.high_watermarks = self._read_checkpoint(HIGH_WATERMARKS)
        checkpoints.cleaned_offsets = self._read_checkpoint(CLEANED_OFFSETS)
        if self.inventory.damaged or not self.inventory.found:
            # Nothing else says how far the logs were synced.
            self.was_clean &= RECOVERY_POINTS not in checkpoints.damaged

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.context.disk, f"{self.path}/{name}")
        except StorageError as error:
            self._checkpoints.damaged.add(name)
            logger.error("checkpoint unusable, going on without it error=%s", error)
            return {}


def _not_closed(log: Log, error: Exception) -> bool:
    logger.error("log not closed cleanly directory=%s error=%s", log.directory, error)
    return False


def make_durably(disk: Disk, path: str) -> None:
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
