"""The partitions that are a broker's own and not served: why, and what may help."""

from __future__ import annotations

import logging
from typing import NamedTuple
from uuid import UUID

from tidelog.model import TopicPartition

_log = logging.getLogger(__name__)


class OfflinePartition(NamedTuple):
    """A partition that is ours and not served."""

    topic_id: UUID
    reason: str
    # True where trying again may help: the disk was full, something was in the way.
    may_pass: bool
    # True where its files are not what they were: another replica has what they held.
    damaged: bool = False


class OfflinePartitions(dict[TopicPartition, OfflinePartition]):
    """By partition."""

    def may_pass(self, key: TopicPartition, topic_id: UUID, reason: str) -> None:
        """A partition cannot be served now; it is tried again."""
        self.went(key, OfflinePartition(topic_id, reason, may_pass=True))

    def went(self, key: TopicPartition, offline: OfflinePartition) -> None:
        """A partition cannot be served; a line says so once."""
        before = self.get(key)
        self[key] = offline
        if before is None or before.reason != offline.reason:
            _log.error("partition offline partition=%s reason=%s", key, offline.reason)

    @property
    def topics_to_retry(self) -> set[str]:
        return {key.topic for key, each in self.items() if each.may_pass}

    @property
    def damaged(self) -> dict[TopicPartition, UUID]:
        """The topic ids of those whose files are not what they were."""
        return {key: each.topic_id for key, each in self.items() if each.damaged}
