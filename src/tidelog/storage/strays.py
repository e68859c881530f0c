"""Directories of partitions that are no longer wanted here though nobody deleted their topic.

The metadata may have lost a topic, or shows it without a replica on this broker. Such a directory
is put aside under a name with `-stray` and kept for seven days, in which an operator can move it
back; only a tombstone of its topic has it removed earlier. When it was put aside stands in its file
`stray-since`, in milliseconds of the wall clock; its age is the time that the broker has run since.
All calls block.
"""

from __future__ import annotations

import logging

from tidelog.audit import audit
from tidelog.host.disk import Disk
from tidelog.storage.checkpoint import read_bytes, write_plainly
from tidelog.storage.partition_directory import STRAY, is_retired, remove_tree
from tidelog.storage.running_clock import Ages

logger = logging.getLogger(__name__)

SINCE = "stray-since"
KEPT_MS = 7 * 24 * 3600 * 1000


def note_since(disk: Disk, directory: str, now_ms: int) -> None:
    """Have a directory say since when it is put aside, before it gets its name."""
    write_plainly(disk, f"{directory}/{SINCE}", b"%d\n" % now_ms)


def remove_old_strays(disk: Disk, path: str, ages: Ages, now_ms: int) -> list[str]:
    """Unlink what was put aside in a data directory long enough ago; the names that went."""
    removed = []
    for name in sorted(disk.list_dir(path)):
        directory = f"{path}/{name}"
        if not is_retired(name) or not name.endswith(STRAY) or not disk.exists(f"{directory}/."):
            continue
        try:
            since_ms = _since(disk, directory)
            if since_ms is None:
                # Put aside by an older version, or half removed: counted from now on.
                note_since(disk, directory, now_ms)
            elif ages.age_ms(since_ms) >= KEPT_MS:
                audit("stray partition removed", directory=directory, since_ms=since_ms)
                remove_tree(disk, directory)
                removed.append(name)
        except OSError as error:
            logger.warning("stray partition not removed path=%s error=%s", directory, error)
    if removed:
        disk.sync_dir(path)
    return removed


def _since(disk: Disk, directory: str) -> int | None:
    data = read_bytes(disk, f"{directory}/{SINCE}")
    return int(data) if data is not None and data.strip().isdigit() else None
