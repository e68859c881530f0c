"""The start of a log as a restart would find it.

A start that was told must not fall: a follower tells its leader only one that is on its disk, and a
leader tells clients only one that is on the disks of all that may be elected after it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidelog.replication.checkpoints import Checkpoints
from tidelog.storage.log import Log


class KeptStart:
    """How far the start of one log is written down."""

    def __init__(self, log: Log, checkpoints: Checkpoints) -> None:
        self._log = log
        self._checkpoints = checkpoints
        # What is on the disk, and what is being written down.
        self._kept = self._asked = log.log_start_offset
        # Those who are told when a later start is on the disk.
        self.on_kept: list[Callable[[], None]] = []

    @property
    def offset(self) -> int:
        """The log's start, or the last one that is on the disk; a later one is written down."""
        start = self._log.log_start_offset
        if start > max(self._kept, self._asked):
            self._asked = start
            self._checkpoints.write_soon(partial(self._is_kept, start))
        return min(start, self._kept)

    def _is_kept(self, start: int) -> None:
        self._kept = max(self._kept, start)
        for told in self.on_kept:
            told()

    def was_cut(self) -> None:
        """A cut writes the start down before it ends."""
        self._kept = self._asked = self._log.log_start_offset
