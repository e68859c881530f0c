"""Syncing a log off the event loop, and knowing what is synced.

The owner of a log takes a plan on the loop, runs it in a thread, and hands it back to the log on
the loop. Plans may overlap and appends go on meanwhile: a file counts as synced only when a plan
that was taken after its last byte has come back. A plan holds the descriptors that it needs, so
that segments may be closed, renamed or deleted under it.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from tidelog.host.disk import Disk
from tidelog.storage.checkpoint import replace_file
from tidelog.storage.epochs import FILE_NAME, LeaderEpochs
from tidelog.storage.faults import OUT_OF_DESCRIPTORS
from tidelog.storage.file_cache import OpenFile
from tidelog.storage.segment import Segment


class EpochFile:
    """The leader-epoch file of one log; plans that overlap never write an older state last."""

    __slots__ = ("_lock", "path", "written_changes")

    def __init__(self, directory: str, written_changes: int) -> None:
        self.path = f"{directory}/{FILE_NAME}"
        self.written_changes = written_changes
        self._lock = threading.Lock()

    def write(self, disk: Disk, data: bytes, changes: int, *, sync: bool = True) -> None:
        """Replace the file unless it is newer; the caller syncs the directory. Blocks."""
        with self._lock:
            if changes > self.written_changes:
                replace_file(disk, self.path, data, sync=sync)
                self.written_changes = changes


class FlushPlan:
    """What to make durable: the files of a log up to an offset."""

    __slots__ = (
        "_pinned",
        "directory",
        "directory_changes",
        "disk",
        "end_offset",
        "epoch_changes",
        "epoch_file",
        "epochs",
        "once",
        "refused",
        "segments",
        "sync_error",
        "truncations",
    )

    def __init__(self, disk: Disk, end_offset: int) -> None:
        self.disk = disk
        self.end_offset = end_offset
        self.segments: list[tuple[Segment, int, list[OpenFile] | None]] = []
        self.once: list[OpenFile] = []
        self.truncations = 0
        self.directory: str | None = None
        self.directory_changes = 0
        self.epochs = b""
        self.epoch_changes = 0
        self.epoch_file: EpochFile | None = None
        # A failed sync is final; a refusal (a passing fault) may be tried again by a later plan.
        self.sync_error: OSError | None = None
        self.refused: OSError | None = None
        self._pinned: list[tuple[OpenFile, int]] = []

    def add(self, file: OpenFile) -> None:
        self._pinned.append((file, file.pin()))

    def add_once(self, file: OpenFile) -> None:
        """A file that may be gone meanwhile, as a snapshot is with its segment."""
        self.once.append(file)
        with suppress(FileNotFoundError):
            self.add(file)

    def run(self) -> None:
        """Sync; blocks, raises nothing: the log is told of faults when it gets the plan back."""
        try:
            for _, fd in self._pinned:
                self.disk.fdatasync(fd)
        except OSError as error:
            self.sync_error = error
            return
        try:
            if self.epoch_file is not None:
                self.epoch_file.write(self.disk, self.epochs, self.epoch_changes)
        except OSError as error:
            self.refused = error
            return
        try:
            if self.directory is not None:
                self.disk.sync_dir(self.directory)
        except OSError as error:
            # A directory that could not be opened was not synced, and can be later.
            if error.errno in OUT_OF_DESCRIPTORS:
                self.refused = error
            else:
                self.sync_error = error

    def release(self) -> None:
        """Let go of the descriptors."""
        for file, _ in self._pinned:
            file.unpin()
        self._pinned.clear()


class FlushState:
    """What of one log is not known to be synced."""

    __slots__ = (
        "_directory",
        "_directory_changes",
        "_directory_synced",
        "_dirty",
        "_disk",
        "_epoch_file",
        "_extra",
        "_once",
        "flushed_offset",
        "touched",
        "truncations",
    )

    def __init__(
        self, disk: Disk, directory: str, flushed_offset: int, epoch_changes_written: int
    ) -> None:
        self.flushed_offset = flushed_offset
        # False while the files are as they were found.
        self.touched = False
        self._disk = disk
        self._directory = directory
        self._dirty: dict[Segment, None] = {}
        # Files that are written once: indexes when a segment is sealed; snapshots, metadata.
        self._extra: dict[Segment, list[OpenFile]] = {}
        self._once: list[OpenFile] = []
        # How often the log was cut.
        self.truncations = 0
        # Changes of the directory's entries, and how many of them are synced.
        self._directory_changes = 0
        self._directory_synced = 0
        self._epoch_file = EpochFile(directory, epoch_changes_written)

    def wrote(self, segment: Segment) -> None:
        self._dirty[segment] = None
        self.touched = True

    def sealed(self, segment: Segment, files: list[OpenFile]) -> None:
        """A segment's index files were written, after its last byte."""
        self._dirty[segment] = None
        self._extra[segment] = files

    def wrote_once(self, file: OpenFile) -> None:
        self._once.append(file)

    def forget(self, segment: Segment) -> None:
        """A segment is deleted: nobody needs its bytes on disk."""
        self._dirty.pop(segment, None)
        self._extra.pop(segment, None)

    def directory_changed(self) -> None:
        """A file came, went or got another name."""
        self.touched = True
        self._directory_changes += 1

    def plan(self, end_offset: int, epochs: LeaderEpochs) -> FlushPlan:
        assert 0 <= self.flushed_offset <= end_offset, (
            f"{self._directory} ends at {end_offset}, below its recovery point"
            f" {self.flushed_offset}"
        )
        plan = FlushPlan(self._disk, end_offset)
        try:
            for segment in self._dirty:
                extra = self._extra.get(segment)
                plan.segments.append((segment, segment.size_bytes, extra))
                plan.add(segment.log_file)
                for file in extra or ():
                    plan.add(file)
            for file in self._once:
                plan.add_once(file)
        except BaseException:
            plan.release()
            raise
        plan.truncations = self.truncations
        plan.directory_changes = self._directory_changes
        if epochs.changes > self._epoch_file.written_changes:
            plan.epochs = epochs.encode()
            plan.epoch_changes = epochs.changes
            plan.epoch_file = self._epoch_file
        if plan.epoch_file or self._directory_changes > self._directory_synced:
            plan.directory = self._directory
        return plan

    def done(self, plan: FlushPlan) -> bool:
        """A plan has succeeded; False where that proves nothing.

        So it is where the log was cut since the plan was taken: what is there now was written
        behind the sync, even where files have the size again that they had then.
        """
        if plan.truncations != self.truncations:
            return False
        for segment, size_bytes, extra in plan.segments:
            # A segment that was sealed after the plan was taken has indexes that are not synced.
            if segment.size_bytes == size_bytes and self._extra.get(segment) is extra:
                self._dirty.pop(segment, None)
                self._extra.pop(segment, None)
        self._directory_synced = max(self._directory_synced, plan.directory_changes)
        for file in plan.once:
            if file in self._once:
                self._once.remove(file)
                file.close()
        self.flushed_offset = max(self.flushed_offset, plan.end_offset)
        return True

    def write_epochs(self, epochs: LeaderEpochs) -> None:
        """Bring the file of leader epochs up to date; the caller syncs the file system."""
        self._epoch_file.write(self._disk, epochs.encode(), epochs.changes, sync=False)

    def all_synced(self, end_offset: int) -> None:
        """The whole file system was synced, and nothing is written any more."""
        self.flushed_offset = end_offset

    def close(self) -> None:
        """Nothing more will be flushed."""
        for file in self._once:
            file.close()

    def truncated(self, end_offset: int) -> None:
        """What was flushed above the new end says nothing about what will be written there."""
        self.truncations += 1
        self.flushed_offset = min(self.flushed_offset, end_offset)
