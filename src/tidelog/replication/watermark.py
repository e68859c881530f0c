"""How far a log is committed, and those who wait to hear of it."""

from __future__ import annotations

from tidelog.model import LogPosition
from tidelog.replication.waiters import CommitWaiters, Watchers
from tidelog.storage.log import Log


class Watermark:
    """The high watermark of one replica.

    It starts from the checkpoint of the last life and never falls while the log stands: only a
    truncation takes it back. Where it lies in the log is looked up when somebody asks.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.offset = self._within(log.checkpointed_watermark)
        self._position: LogPosition | None = None
        # Those who wait for an offset to be committed.
        self.waiters = CommitWaiters()
        # Those who want to hear of the next change of what consumers may read, and replicas.
        self.watchers = Watchers()
        self.replica_watchers = Watchers()
        # Transactions that ended below it no longer hold readers back.
        log.producers.high_watermark_moved(self.offset)

    @property
    def position(self) -> LogPosition:
        if self._position is None:
            self._position = self._log.segments.position_after(self.offset)
        return self._position

    def raise_to(self, offset: int, position: LogPosition | None = None) -> None:
        """Move up to `offset`, which lies at `position`; never back."""
        if offset > self.offset:
            self.offset, self._position = offset, position
            self.check_bounds()
            self._log.producers.high_watermark_moved(offset)
            self.waiters.advance(offset)
            self.watchers.notify()
            # Replicas read beyond it: they hear of it with what they are told next.
            self.replica_watchers.remind()

    def log_was_cut(self) -> None:
        """The log may end below what was committed, and begin above it."""
        self.offset, self._position = self._within(self.offset), None
        self.check_bounds()
        self._log.producers.high_watermark_moved(self.offset)
        self.notify()

    def look_up_again(self) -> None:
        """The log was rewritten below the watermark: its place is another."""
        self._position = None
        self.check_bounds()
        self.notify()

    def notify(self) -> None:
        self.watchers.notify()
        self.replica_watchers.notify()

    def check_bounds(self) -> None:
        log = self._log
        assert log.log_start_offset <= self.offset, "the log starts above its high watermark"
        assert self.offset <= log.log_end_offset, "the log ends below its high watermark"

    def _within(self, offset: int) -> int:
        return max(self._log.log_start_offset, min(offset, self._log.log_end_offset))
