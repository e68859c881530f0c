"""Whom the partitions of this broker follow; `fetching` does it, leader by leader.

What it takes to follow is imported with the first leader: a broker that is alone never does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidelog.config import BrokerConfig
from tidelog.host.host import Host
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.replication.followed import FollowedPartition
from tidelog.replication.throttle import Quota

if TYPE_CHECKING:
    from tidelog.cluster.peer import PeerConnection
    from tidelog.protocol.messages.fetch import ReplicaState
    from tidelog.replication.fetching import LeaderFetcher


class FetchSettings(NamedTuple):
    """The settings of replication, in Kafka's units."""

    wait_max_ms: int
    min_bytes: int
    partition_bytes_max: int
    response_bytes_max: int
    backoff_ms: int
    socket_timeout_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> FetchSettings:
        return cls(
            config.get_int("replica.fetch.wait.max.ms"),
            config.get_int("replica.fetch.min.bytes"),
            config.get_int("replica.fetch.max.bytes"),
            config.get_int("replica.fetch.response.max.bytes"),
            config.get_int("replica.fetch.backoff.ms"),
            config.get_int("replica.socket.timeout.ms"),
        )


class FetchLinks(NamedTuple):
    """What fetchers need of their broker."""

    host: Host
    settings: FetchSettings
    # A new connection to a broker, not yet connected; None where the metadata has no such broker.
    open_peer: Callable[[int], PeerConnection | None]
    # This broker, in its current life.
    replica: Callable[[], ReplicaState]
    # What may be copied a second of partitions that are throttled.
    quota: Quota


class Lag(NamedTuple):
    """How far a follower is behind its leader."""

    partition: TopicPartition
    records: int
    seconds: float


class Fetchers:
    """All leaders that this broker follows."""

    def __init__(self, links: FetchLinks) -> None:
        self._links = links
        self._leaders: dict[int, LeaderFetcher] = {}
        # Whom a partition follows now.
        self._leader_of: dict[FollowedPartition, int] = {}
        self.failures: Counter[str] = Counter()
        # Logs that are being cut, also by fetchers that have stopped meanwhile.
        self._cuts: dict[asyncio.Task[None], None] = {}
        self._is_stopped = False

    def follow(self, partition: FollowedPartition, leader_id: int) -> None:
        """A partition follows this leader from now on, in whatever epoch; with NO_LEADER nobody."""
        before = self._leader_of.get(partition, NO_LEADER)
        if before not in (NO_LEADER, leader_id):
            self._leave(partition, before)
        if leader_id == NO_LEADER or self._is_stopped:
            self._leader_of.pop(partition, None)
            return
        self._leader_of[partition] = leader_id
        fetcher = self._leaders.get(leader_id)
        if fetcher is None:
            from tidelog.replication.fetching import LeaderFetcher

            fetcher = LeaderFetcher(leader_id, self._links, self.failures, self._cuts)
            self._leaders[leader_id] = fetcher
        fetcher.session.follow(partition)

    def _leave(self, partition: FollowedPartition, leader_id: int) -> None:
        fetcher = self._leaders[leader_id]
        fetcher.session.leave(partition)
        if not fetcher.session.followed:
            del self._leaders[leader_id]
            fetcher.stop()

    def lags(self) -> Iterator[Lag]:
        """How far each partition is behind, as far as its leader has said."""
        for fetcher in self._leaders.values():
            yield from fetcher.lags()

    async def stop(self) -> None:
        """Ask for nothing more; returns when nothing is being changed."""
        self._is_stopped = True
        fetchers = tuple(self._leaders.values())
        self._leaders.clear()
        self._leader_of.clear()
        for fetcher in fetchers:
            fetcher.stop()
        tasks = [fetcher.task for fetcher in fetchers]
        await asyncio.gather(*tasks, *self._cuts, return_exceptions=True)
