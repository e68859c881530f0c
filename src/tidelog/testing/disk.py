"""A disk in memory that crashes: what was written and what was synced are kept apart.

`crash()` decides, from a seed, what of the unsynced writes and directory changes reached the
platter, and gives back a new disk that holds just that, as a machine finds it when the power is
back:

- *lose_all*: nothing that was not synced is there;
- *keep_all*: everything is there, as after a kill of the process alone;
- *random*: file by file, sector by sector. A write may be there in part (torn), a later one without
  an earlier one (reordered), a file longer than what was written into it (zeros), a new name
  without its bytes or bytes without their name. Directory changes are kept up to a random point of
  each directory's own order, as a journalling file system does it.

Faults are asked for by call: every call that touches the disk is counted, and `fail_at` makes the
n-th one raise (EIO, ENOSPC, ...), write only in part, or crash the machine. `capacity_bytes` makes
a disk that fills up, `descriptors_max` a process that runs out of descriptors. Left out: hard
links, permissions, memory maps, several processes.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Sequence
from enum import Enum

from tidelog.host.disk import Buffer
from tidelog.host.page_cache import PageCache

SECTOR_BYTES = 512


class PowerCut(BaseException):
    """The simulated machine went down in the middle of a call; only the test catches this."""


class CrashMode(Enum):
    """What a crash leaves of the unsynced."""

    LOSE_ALL = "lose_all"
    KEEP_ALL = "keep_all"
    RANDOM = "random"


class _File:
    """A file's bytes as programs see them, as synced, and the sectors that differ."""

    __slots__ = ("data", "dirty", "modified_ms", "synced")

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""
        self.dirty: set[int] = set()
        self.modified_ms = 0

    def touched(self, start: int, end: int) -> None:
        self.dirty.update(range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES)))

    def sync(self) -> None:
        self.synced = bytes(self.data)
        self.dirty.clear()

    def survivor(self, mode: CrashMode, chance: random.Random) -> _File:
        """The file after a crash."""
        file = _File()
        file.modified_ms = self.modified_ms
        if mode is CrashMode.LOSE_ALL:
            file.data = bytearray(self.synced)
        elif mode is CrashMode.KEEP_ALL:
            file.data = bytearray(self.data)
        else:
            file.data = self._torn(chance)
        file.sync()
        return file

    def _torn(self, chance: random.Random) -> bytearray:
        size = chance.choice((len(self.synced), len(self.data), len(self.data)))
        if self.dirty and chance.random() < 0.3:
            size = chance.randint(*sorted((len(self.synced), len(self.data))))
        data = bytearray(self.synced[:size])
        data.extend(bytes(size - len(data)))
        kept = chance.choice((0.0, 0.5, 0.9, 1.0))
        for sector in sorted(self.dirty):
            if chance.random() < kept:
                start = sector * SECTOR_BYTES
                end = min(start + SECTOR_BYTES, size, len(self.data))
                if end > start:
                    data[start:end] = self.data[start:end]
        return data


class _Directory:
    """Names as programs see them, and the changes that are not synced, in their order."""

    __slots__ = ("changes", "names", "synced")

    def __init__(self) -> None:
        self.names: dict[str, _File | _Directory] = {}
        self.synced: dict[str, _File | _Directory] = {}
        self.changes: list[dict[str, _File | _Directory]] = []

    def changed(self) -> None:
        self.changes.append(dict(self.names))

    def sync(self) -> None:
        self.synced = dict(self.names)
        self.changes.clear()

    def survivor(
        self, mode: CrashMode, chance: random.Random, seen: dict[int, _File]
    ) -> _Directory:
        if mode is CrashMode.LOSE_ALL:
            names = self.synced
        elif mode is CrashMode.KEEP_ALL or not self.changes:
            names = self.names
        else:
            names = chance.choice([self.synced, *self.changes])
        directory = _Directory()
        for name, entry in names.items():
            if isinstance(entry, _Directory):
                directory.names[name] = entry.survivor(mode, chance, seen)
            else:
                if id(entry) not in seen:
                    seen[id(entry)] = entry.survivor(mode, chance)
                directory.names[name] = seen[id(entry)]
        directory.sync()
        return directory


class SimulatedDisk:
    """A `Disk` for tests; paths are absolute, the root exists."""

    def __init__(self, seed: int = 0, *, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.calls = 0
        self.capacity_bytes: int | None = None
        self.descriptors_max: int | None = None
        self.cold = False
        # Told of what is about to be renamed, and to what; a directory that is removed, to nothing.
        self.on_removal: Callable[[str, str], None] | None = None
        # Which page cache this is: another one after a crash, the same after a kill.
        self.cache = PageCache(f"boot-{seed:x}", "1")
        self._seed = seed
        self._now_ms = now_ms
        self._root = _Directory()
        self._open: dict[int, tuple[_File, str]] = {}
        self._next_fd = 3
        self._locks: dict[str, int] = {}
        self._faults: dict[int, int | str] = {}
        self._fault_calls: dict[tuple[str, int], int] = {}
        self._calls_by_name: dict[str, int] = {}
        self.down = False
        self._mutex = threading.RLock()

    # Faults

    def fail_at(self, call: int, fault: int | str) -> None:
        """Make the `call`-th call from the start fail: an errno, "short" or "crash"."""
        self._faults[call] = fault

    def fail_next(self, name: str, fault: int, after: int = 0) -> None:
        """Make one of the next calls of that name fail with an errno: after so many good ones."""
        self._fault_calls[name, self._calls_by_name.get(name, 0) + after + 1] = fault

    @property
    def is_doomed(self) -> bool:
        """True where one of the next calls will crash the machine, or has."""
        return self.down or "crash" in self._faults.values()

    def forget_faults(self) -> None:
        """Nothing fails from now on that was to fail."""
        self._faults.clear()
        self._fault_calls.clear()
        self.capacity_bytes = self.descriptors_max = None

    def crash(self, mode: CrashMode = CrashMode.RANDOM) -> SimulatedDisk:
        """What a new start finds; this disk answers no more calls."""
        self.down = True
        # Chance by seed, so that a failure can be had again.
        chance = random.Random(f"{self._seed}/{self.calls}")  # nosec B311
        disk = SimulatedDisk(chance.getrandbits(64), now_ms=self._now_ms)
        disk._root = self._root.survivor(mode, chance, {})
        disk.on_removal = self.on_removal
        if mode is CrashMode.KEEP_ALL:
            disk.cache = self.cache
        return disk

    def calls_of(self, name: str) -> int:
        """How often a call of that name was made."""
        return self._calls_by_name.get(name, 0)

    def used_bytes(self) -> int:
        """The bytes of all files that have a name."""
        return _used(self._root)

    def corrupt(self, path: str, position: int, mask: int = 1) -> None:
        """Flip bits of one byte on the platter, unseen by the program that wrote it."""
        file = self._file(path)
        file.data[position] ^= mask
        file.synced = bytes(file.data)

    def content(self, path: str) -> bytes:
        """A file's bytes as programs see them."""
        return bytes(self._file(path).data)

    def peek(self, path: str) -> bytearray:
        """As `content`, without a copy: not to be kept."""
        return self._file(path).data

    def replace(self, path: str, data: bytes) -> None:
        """Put other bytes into a file, synced, as a test's way of damaging it."""
        file = self._file(path)
        file.data = bytearray(data)
        file.sync()

    def _enter(self, name: str) -> str:
        """Count a call; raises its fault, or says "short"."""
        if self.down:
            raise PowerCut("the simulated machine is down")
        self.calls += 1
        self._calls_by_name[name] = self._calls_by_name.get(name, 0) + 1
        by_name = self._fault_calls.pop((name, self._calls_by_name[name]), None)
        fault = self._faults.pop(self.calls, by_name)
        if fault is None:
            return ""
        if fault == "crash":
            self.down = True
            raise PowerCut(f"crash at call {self.calls}, {name}")
        if isinstance(fault, str):
            return fault
        raise OSError(fault, os.strerror(fault))

    def _need_descriptor(self) -> None:
        if self.descriptors_max is not None and len(self._open) >= self.descriptors_max:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    # Files

    def open(self, path: str, *, create: bool = False) -> int:
        with self._mutex:
            self._enter("open")
            self._need_descriptor()
            directory, name = self._parent(path)
            entry = directory.names.get(name)
            if entry is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                entry = _File()
                entry.modified_ms = self._now_ms()
                directory.names[name] = entry
                directory.changed()
            if isinstance(entry, _Directory):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            fd, self._next_fd = self._next_fd, self._next_fd + 1
            self._open[fd] = (entry, path)
            return fd

    def close(self, fd: int) -> None:
        with self._mutex:
            _, path = self._opened(fd)
            del self._open[fd]
            if self._locks.get(path) == fd:
                del self._locks[path]

    def size(self, fd: int) -> int:
        return len(self._opened(fd)[0].data)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        with self._mutex:
            self._enter("pread")
            return bytes(self._opened(fd)[0].data[position : position + length])

    def pread_cached_into(self, fd: int, buffer: memoryview, position: int) -> int:
        with self._mutex:
            if self.cold:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            self._enter("pread")
            data = self._opened(fd)[0].data[position : position + len(buffer)]
            buffer[: len(data)] = data
            return len(data)

    def read_ahead(self, fd: int, position: int, length: int) -> None:
        pass

    def pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> int:
        with self._mutex:
            data = b"".join(parts)
            fault = self._enter("pwritev")
            file, _ = self._opened(fd)
            if fault == "short":
                data = data[: len(data) // 3]
            if self.capacity_bytes is not None:
                grows = max(position + len(data) - len(file.data), 0)
                room = max(self.capacity_bytes - self.used_bytes(), 0)
                if grows > room:
                    data = data[: max(len(data) - (grows - room), 0)]
                    if not data:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            end = position + len(data)
            if len(file.data) < position:
                file.touched(len(file.data), position)
                file.data.extend(bytes(position - len(file.data)))
            file.data[position:end] = data
            file.touched(position, end)
            file.modified_ms = self._now_ms()
            return len(data)

    def truncate(self, fd: int, size: int) -> None:
        with self._mutex:
            self._enter("truncate")
            file, _ = self._opened(fd)
            if size == len(file.data):
                return
            file.touched(min(size, len(file.data)), max(size, len(file.data)))
            if size < len(file.data):
                del file.data[size:]
            else:
                file.data.extend(bytes(size - len(file.data)))

    def fdatasync(self, fd: int) -> None:
        with self._mutex:
            self._enter("fdatasync")
            self._opened(fd)[0].sync()

    # Directories

    def list_dir(self, path: str) -> list[str]:
        with self._mutex:
            self._enter("list_dir")
            self._need_descriptor()
            return list(self._directory(path).names)

    def make_dir(self, path: str) -> None:
        with self._mutex:
            self._enter("make_dir")
            directory = self._root
            for name in _split(path):
                entry = directory.names.get(name)
                if entry is None:
                    entry = _Directory()
                    directory.names[name] = entry
                    directory.changed()
                if isinstance(entry, _File):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
                directory = entry

    def remove_dir(self, path: str) -> None:
        with self._mutex:
            self._enter("remove_dir")
            if self.on_removal is not None:
                self.on_removal(path, "")
            if self._directory(path).names:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            directory, name = self._parent(path)
            del directory.names[name]
            directory.changed()

    def rename(self, source: str, target: str) -> None:
        with self._mutex:
            self._enter("rename")
            if self.on_removal is not None:
                self.on_removal(source, target)
            from_directory, from_name = self._parent(source)
            to_directory, to_name = self._parent(target)
            if from_name not in from_directory.names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
            to_directory.names[to_name] = from_directory.names.pop(from_name)
            to_directory.changed()
            if from_directory is not to_directory:
                from_directory.changed()

    def unlink(self, path: str) -> None:
        with self._mutex:
            self._enter("unlink")
            directory, name = self._parent(path)
            if name not in directory.names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            del directory.names[name]
            directory.changed()

    def exists(self, path: str) -> bool:
        with self._mutex:
            try:
                self._entry(path)
            except OSError:
                return False
            return True

    def file_size(self, path: str) -> int:
        with self._mutex:
            self._enter("file_size")
            return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        with self._mutex:
            return self._file(path).modified_ms

    def sync_dir(self, path: str) -> None:
        with self._mutex:
            self._enter("sync_dir")
            self._need_descriptor()
            self._directory(path).sync()

    def sync_all(self, path: str) -> None:
        with self._mutex:
            self._enter("sync_all")
            _sync_tree(self._root)

    def free_bytes(self, path: str) -> int:
        if self.capacity_bytes is None:
            return 1 << 40
        return max(self.capacity_bytes - self.used_bytes(), 0)

    def total_bytes(self, path: str) -> int:
        return 1 << 40 if self.capacity_bytes is None else self.capacity_bytes

    def lock(self, path: str) -> int:
        with self._mutex:
            if path in self._locks:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
            fd = self.open(path, create=True)
            self._locks[path] = fd
            return fd

    def page_cache(self, path: str) -> PageCache:
        return self.cache

    @property
    def open_files(self) -> list[str]:
        """The paths of the descriptors that are open, for leak checks."""
        return sorted(path for _, path in self._open.values())

    def _opened(self, fd: int) -> tuple[_File, str]:
        try:
            return self._open[fd]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def _entry(self, path: str) -> _File | _Directory:
        entry: _File | _Directory = self._root
        for name in _split(path):
            if isinstance(entry, _File) or name not in entry.names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            entry = entry.names[name]
        if path.endswith("/.") and isinstance(entry, _File):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return entry

    def _file(self, path: str) -> _File:
        entry = self._entry(path)
        if isinstance(entry, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return entry

    def _directory(self, path: str) -> _Directory:
        entry = self._entry(path)
        if isinstance(entry, _File):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return entry

    def _parent(self, path: str) -> tuple[_Directory, str]:
        *parents, name = _split(path)
        return self._directory("/" + "/".join(parents)), name


def _split(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _sync_tree(directory: _Directory) -> None:
    directory.sync()
    for entry in directory.names.values():
        if isinstance(entry, _Directory):
            _sync_tree(entry)
        else:
            entry.sync()


def _used(directory: _Directory) -> int:
    total = 0
    for entry in directory.names.values():
        total += _used(entry) if isinstance(entry, _Directory) else len(entry.data)
    return total
