"""A partition as the fetcher of its leader's records sees it.

Every call names the place from which was asked. A partition that does not stand there any more, or
no longer follows in that epoch, answers False and changes nothing: the answer came too late.
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from tidelog.model import TopicPartition
from tidelog.replication.following import EpochEnd, FetchFrom
from tidelog.replication.waiters import Watchers
from tidelog.storage.replicated import CheckedBatches


class FollowedPartition(Protocol):
    """A replica that follows a leader."""

    topic_partition: TopicPartition
    topic_id: UUID
    # Its copying is held to `follower.replication.throttled.rate` until it is in sync.
    is_throttled: bool
    # Told when `next_fetch` has changed for another reason than an answer of the leader.
    fetch_watchers: Watchers

    @property
    def log_end_offset(self) -> int: ...

    def next_fetch(self) -> FetchFrom | None:
        """Where to fetch from; None where there is nobody to ask or nothing to ask for now."""
        ...

    def append_from_leader(
        self,
        asked: FetchFrom,
        records: memoryview | CheckedBatches,
        high_watermark: int,
        leader_log_start: int,
    ) -> bool:
        """Take the leader's answer; KafkaError where it cannot be taken."""
        ...

    async def truncate_to(self, asked: FetchFrom, diverging: EpochEnd) -> bool:
        """Cut what the leader says that it does not have."""
        ...

    async def start_over_at(self, asked: FetchFrom, offset: int) -> bool:
        """Drop everything, which the leader has deleted, and begin at the start of its log."""
        ...
