"""Opening what lies in a data directory: what is there against what must be there.

| the directory of a wanted partition | listed in the inventory | not listed |
|---|---|---|
| is there, of that topic | opened, and held to what is listed | opened |
| is there, of another topic or without a topic | offline | put aside, or left if it is foreign |
| is not there | offline | not opened: the caller creates it |

A directory whose topic was deleted (its id is among `deleted`) is renamed, to be removed; one of a
topic that nobody knows becomes `-stray` and stays for days. A partition that cannot be opened, for
whatever reason, is `offline` with a sentence that says why; the others are opened. Where there is
no inventory, or a damaged one, the checkpoints count as a list: they know of most partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from tidelog.audit import audit
from tidelog.errors import StorageError, TidelogError
from tidelog.model import NO_TOPIC_ID, TopicPartition
from tidelog.storage.checkpoint import encode_partition_metadata, write_plainly
from tidelog.storage.inventory import Inventory, Listed
from tidelog.storage.log import Log
from tidelog.storage.log_context import LogContext, NewLog
from tidelog.storage.losses import Expectation
from tidelog.storage.partition_directory import (
    DELETED,
    PARTITION_METADATA,
    STRAY,
    is_retired,
    partition_of,
    retired_name,
    topic_id_in,
)
from tidelog.storage.recovery import Opening
from tidelog.storage.strays import note_since

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Checkpoints:
    """What Kafka's offset checkpoints say; they have no checksum."""

    log_starts: dict[TopicPartition, int] = field(default_factory=dict)
    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    cleaned_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    # Names of the files that could not be read.
    damaged: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Loaded:
    """What came of it."""

    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    # Why each of these wanted partitions is not served.
    offline: dict[TopicPartition, str] = field(default_factory=dict)
    # Those of them whose files are not what they were; the others the disk does not give.
    damaged: set[TopicPartition] = field(default_factory=set)
    # Directories of deleted topics, renamed: they can be removed.
    retired: list[str] = field(default_factory=list)
    # True where a sync failed: nothing of this start may be taken for clean.
    failed: bool = False
    # What is missing of the records that the last life had, as a clause; empty where nothing is.
    lost: str = ""


class Loading:
    """One pass over a data directory, at start. Blocks."""

    def __init__(
        self, path: str, context: LogContext, inventory: Inventory, checkpoints: Checkpoints
    ) -> None:
        self._path = path
        self._context = context
        self._disk = context.disk
        self._inventory = inventory
        self._checkpoints = checkpoints
        self._loaded = Loaded()
        self._clean = False
        self._topic_ids: dict[TopicPartition, UUID | None] = {}
        self._deleted: Collection[UUID] = ()
        self._accept_loss: Collection[TopicPartition] = ()

    def run(
        self,
        wanted: Mapping[TopicPartition, NewLog],
        *,
        clean: bool,
        deleted: Collection[UUID],
        accept_loss: Collection[TopicPartition],
    ) -> Loaded:
        self._clean, self._deleted, self._accept_loss = clean, deleted, accept_loss
        loaded = self._loaded
        self._say_what_the_list_is()
        found = self._look_around(wanted)
        for partition, new in wanted.items():
            if partition in loaded.offline:
                continue
            listed = self._listed(partition, new)
            try:
                if partition in found:
                    loaded.logs[partition] = self._open(partition, new, listed)
                elif listed is not None:
                    self._missing(partition, new, listed)
            except (TidelogError, OSError) as error:
                logger.error("partition offline partition=%s reason=%s", partition, error)
                loaded.offline[partition] = str(error)
                if isinstance(error, StorageError):
                    loaded.damaged.add(partition)
            except Exception as error:
                # Whatever a damaged file made of us, the others are to be served.
                logger.exception("partition offline partition=%s", partition)
                loaded.offline[partition] = f"{type(error).__name__}: {error}"
                loaded.damaged.add(partition)
        self._finish(wanted)
        assert loaded.logs.keys().isdisjoint(loaded.offline), "served and offline"
        return loaded

    def _say_what_the_list_is(self) -> None:
        inventory = self._inventory
        if inventory.damaged:
            audit("inventory damaged, going by the checkpoints too", file=inventory.path)
        elif not inventory.found and self._checkpoints.recovery_points:
            logger.warning("no inventory, going by the checkpoints file=%s", inventory.path)

    def _look_around(self, wanted: Mapping[TopicPartition, NewLog]) -> set[TopicPartition]:
        """Sort what lies in the directory; the wanted partitions whose directory is theirs."""
        found = set()
        for name in sorted(self._disk.list_dir(self._path)):
            path = f"{self._path}/{name}"
            partition = partition_of(name)
            if not self._disk.exists(f"{path}/."):
                continue
            try:
                if is_retired(name):
                    if topic_id_in(self._disk, path) in self._deleted:
                        self._loaded.retired.append(path)
                elif partition is not None and self._is_theirs(partition, path, wanted):
                    found.add(partition)
            except OSError as error:
                logger.error("directory not readable path=%s error=%s", path, error)
                if partition is not None and partition in wanted:
                    self._loaded.offline[partition] = f"{path} is not readable: {error}"
        return found

    def _is_theirs(
        self, partition: TopicPartition, path: str, wanted: Mapping[TopicPartition, NewLog]
    ) -> bool:
        """True where a directory is the wanted partition's; else it is dealt with here."""
        new = wanted.get(partition)
        topic_id = self._topic_ids[partition] = topic_id_in(self._disk, path)
        if new is not None:
            if topic_id == new.topic_id:
                return True
            if self._listed(partition, new) is not None:
                # Whatever became of its metadata, this is no place for an empty log.
                return True
        if topic_id is None or topic_id == NO_TOPIC_ID:
            if new is None:
                logger.warning("directory left alone, it is not a partition's path=%s", path)
            return False
        if topic_id in self._deleted:
            self._loaded.retired.append(self._rename(partition, path, DELETED))
        else:
            note_since(self._disk, path, self._context.clock.wall_ms())
            target = self._rename(partition, path, STRAY)
            audit("partition of an unknown topic put aside", directory=path, renamed_to=target)
        return False

    def _rename(self, partition: TopicPartition, path: str, kind: str) -> str:
        name = retired_name(partition, self._context.random.uuid(), kind)
        target = f"{self._path}/{name}"
        self._disk.rename(path, target)
        return target

    def _listed(self, partition: TopicPartition, new: NewLog) -> Listed | None:
        """What must be there of a partition; None where it need not exist yet."""
        listed = self._inventory.entries.get(partition)
        if listed is not None and listed.topic_id == new.topic_id:
            return listed
        checkpoints = self._checkpoints
        unlisted = self._inventory.damaged or not self._inventory.found
        if not unlisted or partition not in checkpoints.recovery_points:
            return None
        return Listed(
            new.topic_id,
            checkpoints.log_starts.get(partition, 0),
            checkpoints.recovery_points[partition],
            checkpoints.high_watermarks.get(partition, 0),
        )

    def _expectation(
        self, partition: TopicPartition, listed: Listed | None, directory: str
    ) -> Expectation:
        known = listed or Listed(NO_TOPIC_ID)
        checked = listed is not None and partition in self._inventory.entries
        return Expectation(
            directory,
            # Checkpoints name no topic id: they may be of an earlier topic of this name.
            known.recovery_point if checked or self._clean else 0,
            known.log_start_offset,
            known.high_watermark,
            listed=checked,
            accept_loss=partition in self._accept_loss,
        )

    def _open(self, partition: TopicPartition, new: NewLog, listed: Listed | None) -> Log:
        directory = f"{self._path}/{partition}"
        expected = self._expectation(partition, listed, directory)
        self._check_metadata(self._topic_ids[partition], new, expected)
        if listed is not None and partition in self._inventory.entries:
            self._compare_checkpoints(partition, listed)
        log = self._open_log(partition, new, expected)
        log.first_dirty_offset = self._checkpoints.cleaned_offsets.get(partition, 0)
        return log

    def _open_log(self, partition: TopicPartition, new: NewLog, expected: Expectation) -> Log:
        return Log.open(Opening(partition, new, self._context, expected, self._clean))

    def _check_metadata(self, topic_id: UUID | None, new: NewLog, expected: Expectation) -> None:
        if topic_id == new.topic_id:
            return
        says = "does not name a topic" if topic_id is None else f"names another topic, {topic_id}"
        expected.miss(f"{PARTITION_METADATA} {says}; the directory is listed as that of"
                      f" {new.topic_id}")  # fmt: skip
        path = f"{expected.directory}/{PARTITION_METADATA}"
        write_plainly(self._disk, path, encode_partition_metadata(new.topic_id))

    def _compare_checkpoints(self, partition: TopicPartition, listed: Listed) -> None:
        """The checkpoints are written first: they are as new as the list, or newer after a kill."""
        for name, offsets, here in (
            ("log start offset", self._checkpoints.log_starts, listed.log_start_offset),
            ("recovery point", self._checkpoints.recovery_points, listed.recovery_point),
            ("high watermark", self._checkpoints.high_watermarks, listed.high_watermark),
        ):
            written = offsets.get(partition, 0)
            if written != here and (self._clean or written < here):
                audit(
                    "checkpoint contradicts the inventory, which holds",
                    partition=partition, what=repr(name), checkpoint=written, inventory=here,
                )  # fmt: skip

    def _missing(self, partition: TopicPartition, new: NewLog, listed: Listed) -> None:
        """A listed partition without its directory; accepted, it goes on empty behind its end."""
        directory = f"{self._path}/{partition}"
        expected = self._expectation(partition, listed, directory)
        expected.miss("the directory is missing")
        self._disk.make_dir(directory)
        metadata = encode_partition_metadata(new.topic_id)
        write_plainly(self._disk, f"{directory}/{PARTITION_METADATA}", metadata)
        self._loaded.logs[partition] = self._open_log(partition, new, expected)

    def _finish(self, wanted: Mapping[TopicPartition, NewLog]) -> None:
        """Sync what was recovered, and have the inventory list just what is here."""
        loaded, inventory = self._loaded, self._inventory
        if self._accept_loss:
            loaded.lost = "an operator accepted a loss"
        if loaded.logs and (not self._clean or self._accept_loss):
            self._sync_recovered()
            self._say_what_was_recovered()
        inventory.entries = {
            partition: listed
            for partition, new in wanted.items()
            if (listed := self._listed(partition, new)) is not None
        }
        for partition, log in loaded.logs.items():
            before = inventory.entries.get(partition)
            known = 0 if before is None else before.high_watermark
            # Retention may have come after it, and a crash may have taken what lay below it.
            watermark = max(min(known, log.log_end_offset), log.log_start_offset)
            if watermark < known:
                loaded.lost = f"committed records of {partition} are missing"
            log.checkpointed_watermark = watermark
            inventory.entries[partition] = Listed(
                log.topic_id, log.log_start_offset, log.flushed_offset, watermark
            )

    def _sync_recovered(self) -> None:
        """One sync for all; where it fails, nobody knows which of them it was."""
        loaded = self._loaded
        try:
            self._disk.sync_all(self._path)
        except OSError as error:
            logger.error("all partitions offline, the disk does not sync error=%s", error)
            for partition, log in loaded.logs.items():
                log.abandon()
                loaded.offline[partition] = f"{self._path} could not be synced: {error}"
            loaded.logs.clear()
            loaded.failed = True
            loaded.lost = "the disk does not sync"

    def _say_what_was_recovered(self) -> None:
        logs = self._loaded.logs.values()
        if logs and not self._clean:
            logger.warning(
                "recovered after an unclean stop partitions=%d bytes_read=%d bytes_cut_off=%d"
                " records_cut_off=%d offline=%d",
                len(logs),
                sum(log.repairs.recovered_bytes for log in logs),
                sum(log.repairs.truncated_bytes for log in logs),
                sum(log.repairs.truncated_offsets for log in logs),
                len(self._loaded.offline),
            )
