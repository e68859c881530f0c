"""Sparse indexes of a segment: relative offset to position, timestamp to relative offset.

Byte formats, big-endian, entries rising, no header and no checksum, as Kafka's:

- `.index`: relative offset (int32), position (int32) of a batch; the offset is its last one.
- `.timeindex`: timestamp (int64), relative offset (int32): no record at or before that offset is
  newer than that timestamp.

Indexes are caches of what the log says: whoever doubts one rebuilds it. The newest entries are kept
in memory and go to the file in pages, so an index costs a partition at most a page of memory; the
rest is searched in the file, a page at a time, and the last page looked at is kept.
Unlike Kafka the file of the active segment is not preallocated.
"""

from __future__ import annotations

import errno
import sys
from array import array
from bisect import bisect_right
from struct import Struct

from tidelog.storage.faults import OUT_OF_DESCRIPTORS, PASSING
from tidelog.storage.file_cache import FileCache, OpenFile

_PAGE_ENTRIES = 512


class SparseIndex:
    """Pairs (key, value) with rising keys and rising values; the oldest in a file."""

    __slots__ = (
        "_disk",
        "_entry",
        "_key_type",
        "_keys",
        "_page",
        "_page_keys",
        "_page_values",
        "_stored",
        "_values",
        "file",
    )

    def __init__(self, files: FileCache, path: str, entry: Struct, key_type: str) -> None:
        self._disk = files.disk
        self.file = files.file(path, create=True)
        self._entry = entry
        self._key_type = key_type
        self._stored = 0
        self._keys = array(key_type)
        self._values = array("i")
        self._page = -1
        self._page_keys = self._keys
        self._page_values = self._values

    @property
    def entries(self) -> int:
        return self._stored + len(self._keys)

    @property
    def size_bytes(self) -> int:
        return (self._stored + len(self._keys)) * self._entry.size

    def append(self, key: int, value: int) -> None:
        """Add an entry; the caller sees to it that both columns rise."""
        assert key >= 0 and value >= 0, f"({key}, {value}) is no entry of {self.file.path}"
        assert not self._keys or (key > self._keys[-1] and value > self._values[-1]), (
            f"({key}, {value}) follows ({self._keys[-1]}, {self._values[-1]}) in {self.file.path}"
        )
        self._keys.append(key)
        self._values.append(value)
        if len(self._keys) >= _PAGE_ENTRIES:
            self._spill()

    def extend(self, keys: array[int], values: array[int]) -> None:
        """Add entries, as `append` does one."""
        self._keys.extend(keys)
        self._values.extend(values)
        if len(self._keys) >= _PAGE_ENTRIES:
            self._spill()

    def floor_by_key(self, key: int) -> tuple[int, int] | None:
        """The last entry whose key is at most `key`."""
        keys = self._keys
        if keys and keys[0] <= key:
            place = bisect_right(keys, key) - 1
            return keys[place], self._values[place]
        return self._floor_in_file(key, 0)

    def floor_by_value(self, value: int) -> tuple[int, int] | None:
        """The last entry whose value is at most `value`."""
        values = self._values
        if values and values[0] <= value:
            place = bisect_right(values, value) - 1
            return self._keys[place], values[place]
        return self._floor_in_file(value, 1)

    def last(self) -> tuple[int, int] | None:
        if self._keys:
            return self._keys[-1], self._values[-1]
        if not self._stored:
            return None
        return self._read_entry(self._stored - 1)

    def from_end(self, count: int) -> tuple[int, int] | None:
        """The entry that many before the end; None where there are not so many."""
        place = self.entries - count
        return self._entry_at(place) if place >= 0 else None

    def load(self, size_bytes: int) -> None:
        """Take the file as it is, for an empty index where its size cannot be right."""
        self.clear()
        if not size_bytes % self._entry.size:
            self._stored = size_bytes // self._entry.size

    def clear(self) -> None:
        """Forget every entry; the file is rewritten from its start at the next write."""
        self._stored = 0
        self._page = -1
        del self._keys[:]
        del self._values[:]

    def truncate_to(self, *, key_below: int | None = None, value_below: int | None = None) -> None:
        """Drop the tail of entries whose key or value is not below the bound."""
        # Both columns rise, so that a search does: a cut may drop a hundred thousand entries.
        keep, above = 0, self.entries
        while keep < above:
            middle = (keep + above) // 2
            key, value = self._entry_at(middle)
            if (key_below is None or key < key_below) and (
                value_below is None or value < value_below
            ):
                keep = middle + 1
            else:
                above = middle
        if keep >= self._stored:
            del self._keys[keep - self._stored :]
            del self._values[keep - self._stored :]
            return
        del self._keys[:]
        del self._values[:]
        self._stored = keep
        self._page = -1

    def write(self) -> OpenFile | None:
        """Put every entry into the file and cut it there; what the caller has to sync.

        The file is there afterwards though it be empty: Kafka misses one that is not.
        """
        new = not self.entries and not self._disk.exists(self.file.path)
        self._spill(required=True)
        with self.file as fd:
            self._disk.truncate(fd, self._stored * self._entry.size)
        return None if new else self.file

    def _spill(self, required: bool = False) -> None:
        if not self._keys:
            return
        data = b"".join(map(self._entry.pack, self._keys, self._values))
        position = self._stored * self._entry.size
        # A passing fault costs an index nothing but memory: the entries are kept and tried again.
        try:
            fd = self.file.pin()
        except OSError as error:
            if required or error.errno not in OUT_OF_DESCRIPTORS:
                raise
            return
        try:
            if self._disk.pwritev(fd, (data,), position) != len(data):
                raise OSError(errno.ENOSPC, "short write", self.file.path)
        except OSError as error:
            if required or error.errno not in PASSING:
                raise
            self._disk.truncate(fd, position)
            return
        finally:
            self.file.unpin()
        self._stored += len(self._keys)
        del self._keys[:]
        del self._values[:]
        self._page = -1

    def _entry_at(self, place: int) -> tuple[int, int]:
        if place >= self._stored:
            return self._keys[place - self._stored], self._values[place - self._stored]
        return self._read_entry(place)

    def _read_entry(self, place: int) -> tuple[int, int]:
        key, value = self._entry.unpack(self._read(place, 1))
        return key, value

    def _read(self, place: int, count: int) -> bytes:
        with self.file as fd:
            size = self._entry.size
            data = self._disk.pread(fd, count * size, place * size)
        if len(data) != count * self._entry.size:
            raise IndexDamagedError(f"{self.file.path} ends before entry {place + count}")
        return data

    def _floor_in_file(self, bound: int, column: int) -> tuple[int, int] | None:
        if not self._stored:
            return None
        if not self._page_holds(bound, column) and not self._find_page(bound, column):
            return None
        columns = (self._page_keys, self._page_values)
        place = bisect_right(columns[column], bound) - 1
        if place < 0:
            return None
        return self._page_keys[place], self._page_values[place]

    def _page_holds(self, bound: int, column: int) -> bool:
        if self._page < 0:
            return False
        values = (self._page_keys, self._page_values)[column]
        return bool(values[0] <= bound < values[-1])

    def _find_page(self, bound: int, column: int) -> bool:
        """Load the last page whose first entry is at most `bound`."""
        low, high = 0, (self._stored + _PAGE_ENTRIES - 1) // _PAGE_ENTRIES
        while low < high:
            middle = (low + high) // 2
            if self._read_entry(middle * _PAGE_ENTRIES)[column] <= bound:
                low = middle + 1
            else:
                high = middle
        if not low:
            return False
        self._load_page(low - 1)
        return True

    def _load_page(self, page: int) -> None:
        start = page * _PAGE_ENTRIES
        count = min(_PAGE_ENTRIES, self._stored - start)
        data = self._read(start, count)
        words = array("i", data)
        if sys.byteorder == "little":
            words.byteswap()
        if self._key_type == "i":
            keys, values = words[0::2], words[1::2]
        else:
            high, low, values = words[0::3], words[1::3], words[2::3]
            keys = array("q", (h << 32 | lo & 0xFFFFFFFF for h, lo in zip(high, low, strict=True)))
        self._page, self._page_keys, self._page_values = page, keys, values


class IndexDamagedError(Exception):
    """An index that does not fit its log; caught by the segment, which rebuilds it."""


def offset_index(files: FileCache, path: str) -> SparseIndex:
    """Relative offset to position."""
    return SparseIndex(files, path, Struct(">ii"), "i")


def time_index(files: FileCache, path: str) -> SparseIndex:
    """Timestamp to relative offset."""
    return SparseIndex(files, path, Struct(">qi"), "q")
