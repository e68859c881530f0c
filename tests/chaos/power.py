"""Power cuts for real: a file system in a file, which an ioctl shuts down under its broker.

What was not synced is gone afterwards, as if the machine had lost its power; the kernel is the real
one. Only root can mount.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

_SHUTDOWN: Final = 0x8004587D
# Keep the journal from being written: names that were not synced are gone, too.
_NO_LOG_FLUSH: Final = 2
_SIZE_MB: Final = 2_048


def can_cut_power() -> bool:
    """Whether this user may mount file systems in files."""
    tools = all(shutil.which(each) for each in ("mkfs.ext4", "mount", "umount", "losetup"))
    return os.geteuid() == 0 and tools and os.path.exists("/dev/loop-control")


class Disk:
    """An ext4 file system of its own, mounted at a directory."""

    def __init__(self, image: Path, directory: Path, size_mb: int = _SIZE_MB) -> None:
        self._image = image
        self.directory = directory
        self._ballast = directory / "ballast"
        directory.mkdir(parents=True, exist_ok=True)
        with image.open("wb") as file:
            file.truncate(size_mb << 20)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.directory))

    def unmount(self) -> None:
        _run("umount", str(self.directory))

    def fill(self, leave_bytes: int) -> None:
        """Take all room but so much, until `free`."""
        free = os.statvfs(self.directory)
        wanted = free.f_bavail * free.f_frsize - leave_bytes
        descriptor = os.open(self._ballast, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            while wanted > 0:
                # What is left of the room changes under us, and blocks hold the list of blocks.
                try:
                    os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, wanted)
                    break
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    wanted //= 2
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)

    def cut_power(self) -> None:
        """From now on nothing reaches this disk; `unmount` and `mount` bring back what did."""
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, array.array("i", [_NO_LOG_FLUSH]))
        finally:
            os.close(descriptor)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
