"""Files that hold keys: read whole, and only where nobody else may read them.

`as_file` gives bytes a path, for a library that takes nothing else; on Linux without a disk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidelog.errors import ConfigError

_BYTES_MAX: Final = 1 << 20
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_file(path: str) -> bytes:
    """All bytes of a small file; ConfigError says why it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    if len(data) > _BYTES_MAX:
        raise ConfigError(f"{path}: larger than {_BYTES_MAX} bytes, this holds no keys")
    return data


def read_secret(path: str) -> bytes:
    """The same for a file with a private key; ConfigError where others may read it.

    The group may read a file of root's: that is how a key is given to a service.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    is_given = found.st_uid == 0 and os.geteuid() != 0
    refused = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP if is_given else _OTHERS
    if found.st_mode & refused:
        raise ConfigError(
            f"{path}: its mode is {stat.S_IMODE(found.st_mode):04o}, so that others may read the"
            f" private key; run chmod 600 {path}"
        )
    return read_file(path)


def changed_at(path: str) -> tuple[int, int, int]:
    """Something that differs once the file was replaced or written; zeros where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


@contextmanager
def as_file(data: bytes) -> Iterator[str]:
    """A path under which these bytes are read while the context is open."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tidelog-key")
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    # Imported here: it takes 5 ms of a start, and Linux does not need it.
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        yield file.name
