"""What the status pages say of the cluster, as one broker sees it.

What a leader knows, the leader of a partition tells: summed over all brokers it is told once. What
is in the metadata every broker tells, so that it can still be seen while some do not answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidelog.cluster.image import MetadataImage, TopicImage
from tidelog.cluster.image_feed import ImageFeed
from tidelog.cluster.membership import Membership
from tidelog.host.clock import Clock
from tidelog.replication.fetchers import Fetchers
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import Replicas
from tidelog.server.metrics import by, metric

_LISTED_MAX = 20


@dataclass(slots=True)
class Census:
    """What this broker's replicas come to."""

    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    # By follower, the furthest behind of what this broker leads.
    lag_records: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    lag_seconds: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    def count(self, partition: Partition, now: float) -> None:
        leading = partition.leading
        in_sync = leading.in_sync
        if in_sync is None:
            return
        self.leaders += 1
        self.under_replicated += len(in_sync.isr) < in_sync.state.replication_factor
        self.under_min_isr += len(in_sync.isr) < leading.min_isr
        end = partition.log.log_end_offset
        for replica, follower in in_sync.followers.items():
            # One that has not shown itself yet has nothing for all that is known of it.
            records = max(0, end - max(follower.end, partition.log.log_start_offset))
            seconds = max(0.0, now - follower.caught_up_at) if records else 0.0
            self.lag_records[replica] = max(self.lag_records[replica], records)
            self.lag_seconds[replica] = max(self.lag_seconds[replica], seconds)


class ClusterStatus:
    """Asked by the pages of one broker."""

    def __init__(
        self,
        membership: Membership,
        metadata: ImageFeed,
        replicas: Replicas,
        fetchers: Fetchers,
        clock: Clock,
    ) -> None:
        self._membership = membership
        self._metadata = metadata
        self._replicas = replicas
        self._fetchers = fetchers
        self._clock = clock
        self._has_caught_up = False
        # Of the image that was looked at last: what was looked at, and what was found.
        self._looked_at: tuple[object, object] = (None, None)
        self._leaderless = 0

    # -- ready ------------------------------------------------------------------------------------

    def not_ready(self) -> str | None:
        """Why others should not be stopped for this broker's sake yet; None once it is there.

        It is there once it was registered and each of its replicas was in sync; what becomes of
        them later does not take it out of service again.
        """
        if self._has_caught_up:
            return None
        if self._membership.broker_epoch < 0:
            return "not registered\n"
        behind = self._behind()
        if not behind:
            self._has_caught_up = True
            return None
        lines = [f"behind {each.topic_partition}\n" for each in behind[:_LISTED_MAX]]
        if len(behind) > _LISTED_MAX:
            lines.append(f"and {len(behind) - _LISTED_MAX} more\n")
        return f"catching up, {len(behind)} partitions behind\n{''.join(lines)}"

    def _behind(self) -> list[Partition]:
        """The replicas here that are not in sync with a leader that there is."""
        own_id, offline = self._membership.broker_id, self._replicas.offline
        live = self._metadata.image.brokers
        return [
            each
            for each in self._replicas
            if own_id not in each.isr
            and each.following.leader_id in live
            and each.topic_partition not in offline
        ]

    # -- metrics ----------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """The metrics as Prometheus text, a line each."""
        census, now = Census(), self._clock.monotonic()
        for partition in self._replicas:
            census.count(partition, now)
        yield from self._of_leaders(census)
        yield from self._of_followers()
        yield from self._of_metadata()
        yield from self._of_session(now)

    def _of_leaders(self, census: Census) -> Iterator[str]:
        for name, value, text in (
            ("leader_partitions", census.leaders, "Partitions that this broker leads."),
            (
                "under_replicated_partitions",
                census.under_replicated,
                "Partitions led here of which some replica is not in sync.",
            ),
            (
                "under_min_isr_partitions",
                census.under_min_isr,
                "Partitions led here with fewer in-sync replicas than acks=all needs.",
            ),
        ):
            yield from metric(f"tidelog_{name}", text, value)
        standing = self._replicas.standing
        yield from metric(
            "tidelog_isr_shrinks_total", "In-sync sets that lost a replica.", standing.isr_shrinks
        )
        yield from metric(
            "tidelog_isr_expansions_total", "In-sync sets that gained one.", standing.isr_expansions
        )
        yield from metric(
            "tidelog_lost_records_total",
            "Committed records dropped here because their leader does not have them.",
            standing.lost_records,
        )
        yield from metric(
            "tidelog_follower_lag_records",
            "By follower, records that it lacks of the partition in which it lacks most.",
            by("broker", census.lag_records),
        )
        yield from metric(
            "tidelog_follower_lag_seconds",
            "By follower, seconds since it had all of the partition in which it is behind longest.",
            by("broker", {each: round(lag, 3) for each, lag in census.lag_seconds.items()}),
        )

    def _of_followers(self) -> Iterator[str]:
        lags = [
            (f'topic="{topic}",partition="{index}"', records, round(seconds, 3))
            for (topic, index), records, seconds in self._fetchers.lags()
        ]
        yield from metric(
            "tidelog_replica_lag_records",
            "Committed records that a replica here lacks, as its leader says.",
            ((labels, records) for labels, records, _ in lags),
        )
        yield from metric(
            "tidelog_replica_lag_seconds",
            "Seconds since a replica here had all, or its leader was heard of.",
            ((labels, seconds) for labels, _, seconds in lags),
        )
        yield from metric(
            "tidelog_replica_fetch_failures_total",
            "Fetches from leaders that failed, for a partition or as a whole.",
            by("error", self._fetchers.failures),
        )

    def _of_metadata(self) -> Iterator[str]:
        image, controller = self._metadata.image, self._membership.controller
        for name, value, text in (
            (
                "leaderless_partitions",
                self._count_leaderless(image),
                "Partitions of the cluster without a live leader.",
            ),
            ("brokers", len(image.brokers), "Brokers that live."),
            ("absent_brokers", len(image.absent), "Brokers that are known and do not live."),
            (
                "active_controller",
                int(controller is not None),
                "1 on the broker that is the controller.",
            ),
            (
                "metadata_version",
                image.version,
                "Version of the metadata that this broker has.",
            ),
        ):
            yield from metric(f"tidelog_{name}", text, value)
        yield from metric(
            "tidelog_unclean_elections_total",
            "Leaders that may lack committed records, elected by this controller.",
            0 if controller is None else controller.unclean_elections,
        )

    def _of_session(self, now: float) -> Iterator[str]:
        membership = self._membership
        silent_since, stale_since = membership.out_of_touch_since, self._metadata.stale_since
        for name, value, text in (
            (
                "metadata_lag_seconds",
                0.0 if stale_since is None else round(now - stale_since, 3),
                "Seconds since the controller could last be asked for changes; 0 while it can.",
            ),
            (
                "store_silent_seconds",
                0.0 if silent_since is None else round(now - silent_since, 3),
                "Seconds since the metadata store was last heard of; 0 while it is.",
            ),
            (
                "store_connected",
                int(silent_since is None),
                "1 while there is a session with the metadata store.",
            ),
            (
                "out_of_touch",
                int(membership.out_of_touch),
                "1 where the others may have given this broker up.",
            ),
        ):
            yield from metric(f"tidelog_{name}", text, value)

    def _count_leaderless(self, image: MetadataImage) -> int:
        """Counted again only where topics or brokers have changed: there may be many."""
        looked_at = (image.topics, image.brokers)
        if looked_at[0] is not self._looked_at[0] or looked_at[1] is not self._looked_at[1]:
            self._looked_at = looked_at
            self._leaderless = _leaderless(image.topics, image.brokers)
        return self._leaderless


def _leaderless(topics: Mapping[str, TopicImage], live: Mapping[int, object]) -> int:
    return sum(state.leader not in live for each in topics.values() for state in each.partitions)
