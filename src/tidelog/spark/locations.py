"""Where tables and checkpoints lie: on a disk of this machine, or in an object store."""

from __future__ import annotations

import os
from pathlib import Path


def is_local(path: str) -> bool:
    """Whether a path or URL names a place on a file system of this machine."""
    return "://" not in path or path.startswith("file://")


def local_path(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def overlap(one: str, other: str) -> bool:
    """Whether one directory is the other or lies in it; object stores overlap with nothing."""
    if not is_local(one) or not is_local(other):
        return False
    places = [os.path.realpath(local_path(each)) for each in (one, other)]
    return os.path.commonpath(places) in places
