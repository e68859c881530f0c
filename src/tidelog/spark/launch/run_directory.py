"""A temporary directory for each run, and the end of those whose runs are dead.

A JVM that is killed leaves what it had in its temporary directory: blocks, state, sockets, an
unpacked RocksDB. Here each run has a directory of its own below the pipeline's state, locked as
long as the run lives; the next run removes those that nobody holds. Where the state is not on a
local disk, or its path is too long for the name of a Unix-domain socket, they lie in the system's
temporary directory.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Final

from tidelog.spark.locations import is_local, local_path

NAME: Final = ".run"
# A socket is called `.`, a UUID and `.sock` in it, and its whole path has 107 characters at most.
PATH_LENGTH_MAX: Final = 60
# Only with a directory in it that is ours alone.
SHORT: Final = "/tmp"  # nosec B108
_LOCK: Final = ".lock"


class RunDirectory:
    """The directory of this run; `remove` it when the JVM is gone."""

    def __init__(self, checkpoint: str) -> None:
        name = f"{os.getpid()}-{secrets.token_hex(3)}"
        root = _root(checkpoint, name)
        # One at a time, so that nobody finds a directory that has no lock yet.
        with _Lock(root / _LOCK, wait=True):
            _clear(root)
            self.path = root / name
            self.path.mkdir(mode=0o700)
            self._lock = _Lock(self.path / _LOCK)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def _root(checkpoint: str, name: str) -> Path:
    """The first place that is short enough; `/tmp` always is."""
    if checkpoint and is_local(checkpoint):
        root = local_path(checkpoint) / NAME
        if len(str(root / name)) <= PATH_LENGTH_MAX:
            root.mkdir(parents=True, exist_ok=True)
            return root
    places = (Path(each, f"tidelog-{os.getuid()}") for each in (tempfile.gettempdir(), SHORT))
    root = next(each for each in places if len(str(each / name)) <= PATH_LENGTH_MAX)
    root.mkdir(mode=0o700, exist_ok=True)
    if root.is_symlink() or root.stat().st_uid != os.getuid():
        # Somebody else was there first.
        return Path(tempfile.mkdtemp(prefix="tidelog-", dir=root.parent))
    return root


def _clear(root: Path) -> None:
    for path in root.iterdir():
        if path.is_dir():
            try:
                lock = _Lock(path / _LOCK)
            except (BlockingIOError, FileNotFoundError):
                # Its run is alive, or just removes it itself.
                continue
            shutil.rmtree(path, ignore_errors=True)
            lock.release()


class _Lock:
    """A lock on a file, which goes with the process that holds it."""

    def __init__(self, path: Path, *, wait: bool = False) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None:
        self.release()
