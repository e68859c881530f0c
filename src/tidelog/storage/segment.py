"""One segment of a log: a file of record batches, its two sparse indexes, its aborted transactions.

Promises: a batch is visible only when all its bytes are written; a write that a full disk cut short
is cut off again and leaves the segment as it was; look-ups never trust an index entry without
looking at the batch it names, and rebuild both indexes from the log when one is wrong. The log file
is written at known positions, never in append mode.

Files are named by the segment's base offset in twenty digits, as Kafka's. Times are milliseconds.
What the cleaner writes is a segment too, whose files carry a suffix until they take the place of
others. Left out: preallocation.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from tidelog._kernels import batch_walk as kernel
from tidelog.errors import StorageError
from tidelog.host.disk import Buffer
from tidelog.protocol.batches import BatchHeader
from tidelog.storage.damage import Damage
from tidelog.storage.faults import DISK_FULL, OUT_OF_DESCRIPTORS
from tidelog.storage.file_cache import OpenFile
from tidelog.storage.index import IndexDamagedError, offset_index, time_index
from tidelog.storage.log_context import LogContext
from tidelog.storage.scan import (
    LARGEST_RELATIVE_OFFSET,
    Extent,
    Stretch,
    find,
    find_boundary,
    header_at,
    stretches,
    walk,
)
from tidelog.storage.transaction_index import TransactionIndex
from tidelog.storage.unlinking import empty_quietly, unlink_quietly

logger = logging.getLogger(__name__)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
_HINTS_MAX = 16


class DiskFullError(Exception):
    """No room for the bytes; the file is as it was before the write."""


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """The name of a segment's file, e.g. `.../00000000000000000042.log`."""
    return f"{directory}/{base_offset:020d}.{suffix}"


def newest_timestamp(header: BatchHeader) -> int:
    """The time of a batch's newest record; -1 where compaction has left it without records."""
    return header.max_timestamp if header.record_count else -1


class Segment:
    """Batches from `base_offset` up to the next segment's."""

    __slots__ = (
        "_delete_later",
        "_hints",
        "_unindexed_bytes",
        "aborted",
        "base_offset",
        "context",
        "created_ms",
        "damaged",
        "directory",
        "disk",
        "first_timestamp",
        "largest_timestamp",
        "largest_timestamp_offset",
        "log_file",
        "next_offset",
        "offsets",
        "readers",
        "size_bytes",
        "times",
        "truncated_to",
        "truncations",
    )

    def __init__(
        self, context: LogContext, directory: str, base_offset: int, suffix: str = ""
    ) -> None:
        def path(kind: str) -> str:
            return segment_path(directory, base_offset, kind) + suffix

        files = context.files
        self.context = context
        self.disk = context.disk
        self.directory = directory
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.log_file = files.file(path("log"), create=True)
        self.offsets = offset_index(files, path("index"))
        self.times = time_index(files, path("timeindex"))
        self.aborted = TransactionIndex(files, path("txnindex"))
        self.largest_timestamp = -1
        self.largest_timestamp_offset = -1
        self.first_timestamp = -1
        self.created_ms = context.clock.wall_ms()
        self.readers = 0
        self.damaged: tuple[Damage, ...] = ()
        self.truncations = 0
        self.truncated_to = 0
        self._unindexed_bytes = 0
        self._hints: dict[int, int] | None = None
        self._delete_later: Callable[[], None] | None = None

    # Writing

    def write(self, buffer: Buffer) -> None:
        """Write whole batches behind the last one; DiskFullError leaves the file as it was."""
        size_bytes = len(buffer)
        assert size_bytes > 0, f"nothing to write to {self.log_file.path}"
        assert self._delete_later is None, f"{self.log_file.path} is written to after its end"
        with self.log_file as fd:
            try:
                written = self.disk.pwritev(fd, (buffer,), self.size_bytes)
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                written = -1
            if written != size_bytes:
                # What a full disk took of the batch must not stay: the next one starts here.
                self.disk.truncate(fd, self.size_bytes)
                raise DiskFullError(f"no space for {size_bytes} bytes in {self.log_file.path}")

    def note(self, header: BatchHeader, size_bytes: int, index_interval_bytes: int) -> None:
        """Take a batch that was written at the end into account, and index it where due."""
        position = self.size_bytes
        last_offset = header.base_offset + header.last_offset_delta
        assert self.next_offset <= header.base_offset <= last_offset, (
            f"a batch of {header.base_offset} to {last_offset} follows {self.next_offset} in"
            f" {self.log_file.path}"
        )
        assert last_offset - self.base_offset <= LARGEST_RELATIVE_OFFSET, (
            f"offset {last_offset} is too high for {self.log_file.path}"
        )
        timestamp = header.max_timestamp if header.record_count else -1
        if timestamp > self.largest_timestamp:
            self.largest_timestamp = timestamp
            self.largest_timestamp_offset = last_offset
        if self.first_timestamp < 0:
            self.first_timestamp = timestamp
        if self._unindexed_bytes > index_interval_bytes:
            self.offsets.append(last_offset - self.base_offset, position)
            try:
                self._index_time()
            except OSError as error:
                # The batch is written: an index that is sparser for it does no harm.
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
            self._unindexed_bytes = 0
        self._unindexed_bytes += size_bytes
        self.size_bytes = position + size_bytes
        self.next_offset = last_offset + 1

    def last_indexed_time(self) -> int:
        """The newest entry of the time index, -1 where there is none; may read the file."""
        entry = self._guarded(self.times.last)
        return -1 if entry is None else entry[0]

    def note_all(
        self, stretch: Stretch, index_interval_bytes: int, indexed_time: int | None = None
    ) -> None:
        """`note` each batch of a stretch that begins at the end of what was noted before.

        With the `last_indexed_time` given, which may meet a fault, no file has to be read.
        """
        count = stretch.count
        if indexed_time is None:
            indexed_time = self.last_indexed_time()
        notes = array(
            "q",
            (
                self._unindexed_bytes,
                self.first_timestamp,
                self.largest_timestamp,
                self.largest_timestamp_offset,
                indexed_time,
            ),
        )
        offset_keys, offset_values, time_values = (array("i", bytes(4 * count)) for _ in range(3))
        time_keys = array("q", bytes(8 * count))
        offset_count, time_count = kernel.due_entries(
            stretch.rows, count, self.base_offset, index_interval_bytes, notes,
            offset_keys, offset_values, time_keys, time_values,
        )  # fmt: skip
        self._unindexed_bytes, self.first_timestamp = notes[0], notes[1]
        self.largest_timestamp, self.largest_timestamp_offset = notes[2], notes[3]
        self.offsets.extend(offset_keys[:offset_count], offset_values[:offset_count])
        self.times.extend(time_keys[:time_count], time_values[:time_count])
        self.size_bytes = stretch.end
        self.next_offset = stretch.next_offset

    def _index_time(self) -> None:
        last = self.times.last()
        if self.largest_timestamp >= 0 and (last is None or self.largest_timestamp > last[0]):
            self.times.append(
                self.largest_timestamp, self.largest_timestamp_offset - self.base_offset
            )

    def write_indexes(self) -> list[OpenFile]:
        """Bring the index files up to date, as when the segment is sealed; what is to be synced."""
        self._index_time()
        written = (self.offsets.write(), self.times.write(), self.aborted.write())
        return [file for file in written if file is not None]

    def resume_after(self, unindexed_bytes: int, first_timestamp: int) -> None:
        """Go on writing after a restart: so many bytes lie behind the last index entry."""
        assert 0 <= unindexed_bytes <= self.size_bytes, f"{unindexed_bytes} of {self.size_bytes}"
        self._unindexed_bytes = unindexed_bytes
        self.first_timestamp = first_timestamp
        if first_timestamp < 0:
            for _, header in self.batches_from(0):
                self.first_timestamp = newest_timestamp(header)
                break

    def forget_from(self, position: int, next_offset: int) -> None:
        """Let the segment end at a batch boundary; the files follow with `cut_files`.

        Slices of what lies behind are refused from now on.
        """
        assert 0 <= position <= self.size_bytes, f"{position} is not in {self.log_file.path}"
        # Behind the last batch there may be a gap, which another broker's cleaner left.
        assert self.base_offset <= next_offset and (
            position == self.size_bytes or next_offset <= self.next_offset
        ), f"{self.log_file.path} ends at {self.next_offset}, it cannot be cut at {next_offset}"
        # Reads of files come first: where one fails nothing is changed.
        self.aborted.load()
        self._guarded(lambda: self._cut_indexes(position, next_offset - self.base_offset))
        self.size_bytes = position
        self.next_offset = next_offset
        self.truncated_to = min(position, self.truncated_to) if self.truncations else position
        self.truncations += 1
        self.damaged = tuple(each for each in self.damaged if each.end <= position)
        self._hints = None
        self.aborted.forget_from(next_offset)
        self._learn_times()

    def _cut_indexes(self, position: int, relative: int) -> None:
        self.offsets.truncate_to(key_below=relative, value_below=position)
        self.times.truncate_to(value_below=relative)

    def _learn_times(self) -> None:
        """Find the newest record again, from the last index entry on."""
        last = self._guarded(self.times.last)
        self.largest_timestamp, self.largest_timestamp_offset = -1, -1
        if last is not None:
            self.largest_timestamp = last[0]
            self.largest_timestamp_offset = last[1] + self.base_offset
        indexed = self._guarded(self.offsets.last)
        start = 0 if indexed is None else indexed[1]
        for _, header in self.batches_from(start):
            if newest_timestamp(header) > self.largest_timestamp:
                self.largest_timestamp = header.max_timestamp
                self.largest_timestamp_offset = header.last_offset
        self._unindexed_bytes = self.size_bytes - start
        if not self.size_bytes:
            self.first_timestamp = -1

    def cut_files(self) -> None:
        """Cut off on disk what was forgotten. Blocks; can be tried again."""
        with self.log_file as fd:
            self.disk.truncate(fd, self.size_bytes)
        self.aborted.cut_file()

    # Looking up

    def batches_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Walk the batches from a batch boundary to the end of the segment."""
        with self.log_file as fd:
            extent = Extent(self.disk, fd, position, self.size_bytes, self.base_offset)
            yield from walk(extent)

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """The bytes of one batch."""
        with self.log_file as fd:
            return self.disk.pread(fd, header.size_bytes, position)

    def find(self, offset: int) -> int:
        """Where the first batch begins whose last offset is at least `offset`; else the end."""
        hints = self._hints
        if hints is not None:
            hint = hints.get(offset)
            if hint is not None:
                return hint
        if offset <= self.base_offset:
            return 0
        if offset >= self.next_offset:
            return self.size_bytes
        start = self._floor_position(offset)
        with self.log_file as fd:
            extent = Extent(self.disk, fd, start, self.size_bytes, self.base_offset)
            position = find(extent, offset)
        if position is not None:
            return position
        raise StorageError(f"{self.log_file.path} has no valid batch for offset {offset}")

    def boundary_within(self, start: int, end: int) -> tuple[int, int]:
        """The last batch boundary in (start, end], or the end of the first batch, and the offset
        that the next batch begins with."""
        boundary = start
        entry = self._guarded(lambda: self.offsets.floor_by_value(end))
        if entry is not None and start < entry[1] < end and self._names_a_batch(entry):
            boundary = entry[1]
        with self.log_file as fd:
            extent = Extent(self.disk, fd, boundary, self.size_bytes, self.base_offset)
            boundary, next_offset = find_boundary(extent, start, end)
        if boundary == start:
            raise StorageError(f"{self.log_file.path} has no valid batch at {start}")
        return boundary, next_offset

    def near_end(self, entries: int) -> int:
        """A batch boundary some index entries before the end of the segment."""
        entry = self._guarded(lambda: self.offsets.from_end(entries))
        return entry[1] if entry is not None and self._names_a_batch(entry) else 0

    def remember(self, offset: int, position: int) -> None:
        """Keep in mind where a reader will go on, so that it need not search."""
        hints = self._hints
        if hints is None:
            hints = self._hints = {}
        elif len(hints) >= _HINTS_MAX and offset not in hints:
            del hints[next(iter(hints))]
        hints[offset] = position

    def first_position_at_or_after(self, timestamp: int) -> int:
        """A batch boundary before which no record is as new as `timestamp`."""
        entry = self._guarded(lambda: self.times.floor_by_key(timestamp - 1))
        if entry is not None and not self.times_fit(entry):
            self.rebuild_indexes("an entry of the time index fits no batch")
            entry = self.times.floor_by_key(timestamp - 1)
        return 0 if entry is None else self.find(entry[1] + self.base_offset)

    def times_fit(self, entry: tuple[int, int]) -> bool:
        """True where a time index entry says what the batch of its offset says."""
        offset = entry[1] + self.base_offset
        if not self.base_offset <= offset < self.next_offset:
            return False
        for _, header in self.batches_from(self.find(offset)):
            return header.max_timestamp == entry[0] and header.base_offset <= offset
        return False

    def _floor_position(self, offset: int) -> int:
        relative = min(offset - self.base_offset, LARGEST_RELATIVE_OFFSET)
        entry = self._guarded(lambda: self.offsets.floor_by_key(relative))
        if entry is None:
            return 0
        if not self._names_a_batch(entry):
            self.rebuild_indexes("an entry of the offset index names no batch")
            entry = self.offsets.floor_by_key(relative)
        return 0 if entry is None else entry[1]

    def _names_a_batch(self, entry: tuple[int, int]) -> bool:
        with self.log_file as fd:
            header = header_at(self.disk, fd, entry[1]) if entry[1] >= 0 else None
        return (
            header is not None
            and header.base_offset <= entry[0] + self.base_offset <= header.last_offset
            and entry[1] + header.size_bytes <= self.size_bytes
        )

    def _guarded(self, look_up: Callable[[], tuple[int, int] | None]) -> tuple[int, int] | None:
        try:
            return look_up()
        except IndexDamagedError as error:
            self.rebuild_indexes(str(error))
            return look_up()

    def rebuild_indexes(
        self, reason: str, index_interval_bytes: int = 4096, *, may_shrink: bool = False
    ) -> None:
        """Make both indexes again from the log.

        The end stays where it is although a batch on the way is damaged, unless the log is only
        being opened (`may_shrink`): offsets behind it were given out.
        """
        logger.warning("rebuilding indexes segment=%s reason=%s", self.log_file.path, reason)
        size, next_offset = self.size_bytes, self.next_offset
        times = self.first_timestamp, self.largest_timestamp, self.largest_timestamp_offset
        file = self.log_file
        fd = file.pin()
        try:
            self.reset()
            extent = Extent(self.disk, fd, 0, size, self.base_offset)
            for stretch in stretches(extent, verify=False):
                self.note_all(stretch, index_interval_bytes)
            whole = self.size_bytes == size or may_shrink
        except OSError:
            whole = False
            raise
        finally:
            self.size_bytes = size
            file.unpin()
            if not whole:
                self.next_offset = next_offset
                self.first_timestamp, self.largest_timestamp, self.largest_timestamp_offset = times
        self.write_indexes()

    def reset(self) -> None:
        """Forget what the batches said; `note` is called for each of them again."""
        self.size_bytes = 0
        self.next_offset = self.base_offset
        self.largest_timestamp, self.largest_timestamp_offset = -1, -1
        self.first_timestamp = -1
        self._unindexed_bytes = 0
        self._hints = None
        self.offsets.clear()
        self.times.clear()

    # Life and death

    def reader_left(self) -> None:
        assert self.readers > 0, f"a reader left {self.log_file.path} twice"
        self.readers -= 1
        if not self.readers:
            self._last_reader_left()

    @property
    def files(self) -> tuple[OpenFile, ...]:
        """All files, the log's own last."""
        return self.aborted.file, self.times.file, self.offsets.file, self.log_file

    def retire(self, context: LogContext, delay_ms: int) -> None:
        """Give the files their `.deleted` names; have them unlinked when no reader is left."""
        self.rename_as_deleted()
        self.delete_when_unread(context, delay_ms)

    def rename_as_deleted(self) -> None:
        """Give the files their `.deleted` names.

        The log's own file is the last: until then the segment is whole, and can be tried again.
        """
        assert self._delete_later is None, f"{self.log_file.path} is deleted twice"
        suffix, tries = DELETED_SUFFIX, 0
        while self.disk.exists(self.log_file.path + suffix):
            # An earlier segment of this name waits for its readers: they open it by its name.
            tries += 1
            suffix = f".{tries}{DELETED_SUFFIX}"
        self._rename(lambda path: path if path.endswith(DELETED_SUFFIX) else path + suffix)

    def delete_when_unread(self, context: LogContext, delay_ms: int) -> None:
        """Have files that carry their `.deleted` names unlinked when no reader is left."""
        unlink = partial(self._unlink, context.unlink_once_written)
        self._delete_later = lambda: context.run_later(delay_ms / 1000, unlink)
        if not self.readers:
            self._last_reader_left()

    def change_suffix(self, old: str, new: str) -> None:
        """Rename all files, the log's own last, from one suffix to another."""
        self._rename(lambda path: path.removesuffix(old) + new)

    def _rename(self, name: Callable[[str], str]) -> None:
        """Give each file that exists its new name, the log's own last."""
        for file in self.files:
            target = name(file.path)
            if target == file.path:
                continue
            with suppress(FileNotFoundError):
                self.disk.rename(file.path, target)
            file.moved_to(target)

    def _last_reader_left(self) -> None:
        if self._delete_later is not None:
            self.close()
            self._delete_later()
            self._delete_later = None

    def _unlink(self, unlink_once_written: Callable[[str], None]) -> None:
        """Give the space back now; the name of the log's own file stays a little longer."""
        *others, log = self.files
        for file in others:
            if file.path.endswith(DELETED_SUFFIX):
                unlink_quietly(self.disk, file.path)
        empty_quietly(self.disk, log.path)
        unlink_once_written(log.path)

    def discard(self) -> None:
        """Unlink files that nobody else knows of, as those of a clean that was broken off."""
        self.close()
        for file in self.files:
            unlink_quietly(self.disk, file.path)

    def close(self) -> None:
        """Let go of the descriptors."""
        for file in self.files:
            file.close()
