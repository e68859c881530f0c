"""Putting a cleaned segment into the place of those that it was made from, safe against crashes.

The steps, as Kafka's: the files of the new segment are written under `.cleaned` and synced; they
are renamed to `.swap`, the log's own file last, and with that rename the replacement is decided;
the old segments are renamed to `.deleted`, each log's own file last; the new files get their final
names, again the log's own last. Whatever happens in between, `finish_swaps` at the next start goes
forward where a `.log.swap` is there, and otherwise the old segments stand as they were.

It rests on a file system that keeps the order of changes in one directory.
"""

from __future__ import annotations

import logging
import re

from tidelog.host.disk import Disk
from tidelog.storage.faults import LogFaults
from tidelog.storage.scan import Extent, walk
from tidelog.storage.segment import CLEANED_SUFFIX, SWAP_SUFFIX, Segment, segment_path
from tidelog.storage.segments import Segments

logger = logging.getLogger(__name__)

_SWAP_NAME = re.compile(r"(\d{20})\.log\.swap")
_LOG_NAME = re.compile(r"(\d{20})\.log")
# The log is last: while it has its old name the segment is what it was.
_KINDS = ("txnindex", "timeindex", "index", "log")


def replace_segments(
    segments: Segments, old: list[Segment], new: Segment, faults: LogFaults, delay_ms: int
) -> bool:
    """Put a cleaned segment into the place of those that it was made from.

    False, and nothing changed, where the log no longer has these.
    """
    if not segments.has(old):
        return False
    # Before anything is renamed: the next start would go on with a replacement that is wrong.
    assert segments.active not in old, "the active segment is not cleaned"
    assert (new.base_offset, new.next_offset) == (old[0].base_offset, old[-1].next_offset), (
        f"{new.log_file.path} holds {new.base_offset} to {new.next_offset}, made from"
        f" {old[0].base_offset} to {old[-1].next_offset}"
    )
    with faults.refusing():
        # The log's own file is the last to be renamed: until then nothing is decided.
        new.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
    with faults.failing():
        # Decided, but not done: after a fault the next start goes on from here.
        segments.replace(old, new, delay_ms)
        new.change_suffix(SWAP_SUFFIX, "")
    return True


def finish_swaps(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """Complete the replacements that were decided; the names in the directory afterwards."""
    swaps = sorted(int(match[1]) for name in names if (match := _SWAP_NAME.fullmatch(name)))
    for base_offset in swaps:
        _finish(disk, directory, base_offset, names)
    return disk.list_dir(directory) if swaps else names


def _finish(disk: Disk, directory: str, base_offset: int, names: list[str]) -> None:
    next_offset = _next_offset(disk, directory, base_offset)
    if next_offset == base_offset:
        # Not a batch in it: none that the cleaner made, or one that holds nothing.
        return
    bases = [int(match[1]) for name in names if (match := _LOG_NAME.fullmatch(name))]
    # Where the old log of this name is gone, the other files of that name are the new ones.
    replaced = [base for base in bases if base == base_offset or base_offset < base < next_offset]
    logger.warning(
        "finishing a replacement directory=%s base_offset=%d next_offset=%d replaced=%d",
        directory,
        base_offset,
        next_offset,
        len(replaced),
    )
    for base in replaced:
        for kind in _KINDS:
            path = segment_path(directory, base, kind)
            if disk.exists(path):
                disk.unlink(path)
    for kind in _KINDS:
        path = segment_path(directory, base_offset, kind)
        if disk.exists(path + SWAP_SUFFIX):
            disk.rename(path + SWAP_SUFFIX, path)


def _next_offset(disk: Disk, directory: str, base_offset: int) -> int:
    """Where the new segment ends: old segments below that are in it."""
    next_offset = base_offset
    fd = disk.open(segment_path(directory, base_offset, "log") + SWAP_SUFFIX)
    try:
        extent = Extent(disk, fd, 0, disk.size(fd), base_offset)
        for _, header in walk(extent):
            next_offset = header.last_offset + 1
    finally:
        disk.close(fd)
    return next_offset
