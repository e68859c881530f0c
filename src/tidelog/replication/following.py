"""What a follower does with its leader's answers, and when it must not.

A fetch is asked from a place (`FetchFrom`): the offset, the leader epoch and the epoch of the last
record. Its answer counts only while the replica still stands in exactly that place; late answers,
and those of a leader that was replaced, change nothing. A log is cut only where the leader of the
same epoch says that it diverges, and never to the watermark. Where that lies below what is known
as committed, an unclean election was held: what is lost is audited and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from tidelog.config.topic_config import TopicConfig
from tidelog.model import NO_LEADER
from tidelog.replication.disk_space import Room
from tidelog.replication.flushing import Flushing
from tidelog.replication.kept_start import KeptStart
from tidelog.replication.losses import report_dropped
from tidelog.replication.standing import Standing
from tidelog.replication.throttle import is_listed
from tidelog.replication.truncations import Truncations
from tidelog.replication.waiters import Watchers
from tidelog.replication.watermark import Watermark
from tidelog.storage.log import Log
from tidelog.storage.replicated import CheckedBatches


class EpochEnd(NamedTuple):
    """Where the log of a leader epoch ends, or (-1, -1) where it is not known."""

    leader_epoch: int
    end_offset: int


class FetchFrom(NamedTuple):
    """The place that a follower fetches from."""

    offset: int
    # Of the last record before `offset`, -1 where there is none.
    last_epoch: int
    leader_epoch: int
    log_start: int


class Copy(NamedTuple):
    """What a follower changes: its log, and what is kept with it."""

    log: Log
    start: KeptStart
    watermark: Watermark
    flushing: Flushing
    room: Room
    # Takes the partition offline where an assertion fails.
    contained: AbstractContextManager[None]


class Following:
    """One replica's part as a follower: whom it follows, and what it takes from there."""

    def __init__(
        self, copy: Copy, truncations: Truncations, standing: Standing, on_cut: Callable[[], None]
    ) -> None:
        self.log, self._start, self._watermark, self._flushing, self._room, self._contained = copy
        self._standing = standing
        self._truncations = truncations
        self._on_cut = on_cut
        self.topic_partition = self.log.topic_partition
        self.topic_id = self.log.topic_id
        # Told when `next_fetch` has changed for another reason than an answer of the leader.
        self.fetch_watchers = Watchers()
        # A start that its leader has yet to hear of.
        self._start.on_kept.append(self.fetch_watchers.notify)
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        # On a topic that syncs, asking for an offset says that all before it is on the disk.
        self.syncs = False
        # Copied within the broker's rate while it is not in sync.
        self.is_throttled = False
        self.is_cutting = False
        # Its log is damaged: nothing is asked for until that part of it was dropped.
        self.is_held = False

    def reconfigure(self, config: TopicConfig) -> None:
        self.syncs = config.durability_fsync
        self.is_throttled = is_listed(
            config.throttled_followers, self.topic_partition.partition, self._standing.broker_id
        )

    def begin(self, leader_id: int, leader_epoch: int) -> None:
        """Follow this leader, or with NO_LEADER nobody, from now on."""
        assert leader_epoch >= self.leader_epoch, "leader epochs do not fall"
        self.leader_id, self.leader_epoch = leader_id, leader_epoch

    def end(self) -> None:
        """Follow nobody: what is still answered counts no more."""
        self.leader_id = NO_LEADER

    @property
    def is_active(self) -> bool:
        return self.leader_id != NO_LEADER and not self.is_cutting

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    def next_fetch(self) -> FetchFrom | None:
        """Where to fetch from; None where there is nobody to ask, or nothing to ask for yet.

        On a topic that syncs nothing is asked for until all that came is on the disk; its
        `fetch_watchers` hear when it is.
        """
        if not self.is_active or self.is_held or self.log.offline:
            return None
        end = self.log.log_end_offset
        if self.syncs and self._flushing.committed_end().offset < end:
            self._flushing.start()
            return None
        return FetchFrom(end, self.log.epochs.latest, self.leader_epoch, self._start.offset)

    def append_from_leader(
        self,
        asked: FetchFrom,
        records: memoryview | CheckedBatches,
        high_watermark: int,
        leader_log_start: int,
    ) -> bool:
        """Take what the leader answered; False where the answer is to another question by now."""
        if not self._stands_at(asked):
            return False
        if self._room.refusal is not None:
            raise self._room.refusal.again()
        with self._contained:
            self._append(records, asked.leader_epoch)
            end = self.log.log_end_offset
            start = min(leader_log_start, end)
            if start > self.log.log_start_offset:
                # What the leader has deleted was committed.
                self._watermark.raise_to(start)
                self.log.advance_log_start(start)
            self._watermark.raise_to(min(high_watermark, end))
            self._watermark.check_bounds()
        return True

    def _append(self, records: memoryview | CheckedBatches, leader_epoch: int) -> None:
        if isinstance(records, CheckedBatches):
            self.log.append_checked(records)
        elif records:
            self.log.append_as_follower(records, leader_epoch)
        else:
            return
        self._flushing.appended()

    async def truncate_to(self, asked: FetchFrom, diverging: EpochEnd) -> bool:
        """Cut what the leader does not have; False where the answer is to another question."""
        if not self._stands_at(asked):
            return False
        offset = diverging_offset(self.log, diverging)
        committed = self._watermark.offset
        self._standing.lost_records += max(0, committed - offset)
        leader = (self.leader_id, self.leader_epoch)
        report_dropped(self.topic_partition, leader, offset, (committed, self.log_end_offset))
        if offset >= self.log.log_end_offset:
            # Led for a moment without a record: only the epoch is not the leader's.
            self.log.epochs.truncate_from_end(offset)
        else:
            await self._cut(offset)
        return True

    async def start_over_at(self, asked: FetchFrom, offset: int) -> bool:
        """Drop everything, all of which the leader has deleted, and begin at its log's start."""
        if not self._stands_at(asked) or offset <= self.log.log_end_offset:
            return False
        await self._cut(offset)
        return True

    async def drop_from(self, offset: int) -> None:
        """Drop a damaged part of the log and all behind it: it is fetched again."""
        await self._cut(offset)

    def _stands_at(self, asked: FetchFrom) -> bool:
        return (
            self.is_active
            and asked.leader_epoch == self.leader_epoch
            and asked.offset == self.log.log_end_offset
            and asked.last_epoch == self.log.epochs.latest
        )

    async def _cut(self, offset: int) -> None:
        """End the log at `offset`; until the disk has done so the replica does nothing else."""
        with self._contained:
            cuts = self.log.cuts
            within = offset < self.log.log_end_offset
            cut = cuts.truncation(offset) if within else cuts.start_over(offset)
            self.is_cutting = True
            self._watermark.log_was_cut()
            await self._truncations.finish(self.log, cut, self._cut_ended)

    def _cut_ended(self) -> None:
        self.is_cutting = False
        self._start.was_cut()
        # The producers were read again.
        self._watermark.log_was_cut()
        self._on_cut()


def diverging_offset(log: Log, diverging: EpochEnd) -> int:
    """Where a log has to be cut that its leader knows to diverge, from what it told of its own."""
    _, own_end = log.epochs.end_offset_for(diverging.leader_epoch, log.log_end_offset)
    # Without any epoch up to the leader's, nothing here is as the leader has it.
    return min(max(own_end, log.log_start_offset), diverging.end_offset, log.log_end_offset)
