"""What followers that are not in sync may have of partitions that are throttled (KIP-73)."""

from __future__ import annotations

from tidelog.replication.partition import Partition
from tidelog.replication.throttle import Quota, is_listed
from tidelog.server.fetch_sessions import FetchTarget
from tidelog.server.tools import DataContext


def leader_throttle(context: DataContext, replica_id: int) -> LeaderThrottle | None:
    """For a fetch of this follower; None where nothing is limited."""
    quota = context.tools.replicas.standing.leader_quota
    return None if quota.rate is None else LeaderThrottle(quota, context, replica_id)


class LeaderThrottle:
    """The part of one fetch that counts against `leader.replication.throttled.rate`."""

    def __init__(self, quota: Quota, context: DataContext, replica_id: int) -> None:
        self._quota = quota
        self._clock = context.tools.clock
        self._broker_id = context.tools.broker_id
        self._replica_id = replica_id
        # Those whose bytes count, and what was read of them for the answer.
        self._limited: set[FetchTarget] = set()
        self._read_bytes = 0
        # Those who get nothing now although there is something.
        self.held: set[FetchTarget] = set()

    def look_again(self) -> None:
        """Nothing of what was read before is answered."""
        self._read_bytes = 0
        self._limited.clear()
        self.held.clear()

    def allowed(self, partition: Partition, target: FetchTarget) -> int | None:
        """How many bytes the follower may have of a partition; None for any amount."""
        if not self._holds(partition, target.fetch_offset):
            return None
        left = self._quota.left(self._clock.monotonic())
        if left is None:
            return None
        left = max(0, left - self._read_bytes)
        self._limited.add(target)
        if not left:
            self.held.add(target)
        return left

    def _holds(self, partition: Partition, fetch_offset: int) -> bool:
        """Whether the follower has to wait its turn: producers do not wait for it."""
        in_sync = partition.leading.in_sync
        if in_sync is None or self._replica_id in in_sync.maximal_isr:
            return False
        listed, number = partition.config.throttled_leaders, partition.topic_partition.partition
        return fetch_offset < partition.high_watermark and is_listed(
            listed, number, self._broker_id
        )

    def count(self, target: FetchTarget, size_bytes: int) -> None:
        """So much was read, which counts where the partition is throttled for this follower."""
        if target in self._limited:
            self._read_bytes += size_bytes

    def answered(self) -> None:
        """What was read is sent."""
        self._quota.spend(self._read_bytes, self._clock.monotonic())
        self.look_again()

    def wait_s(self, longest_s: float) -> float:
        """When to look again: when those may get something who get nothing now."""
        if not self.held:
            return longest_s
        now = self._clock.monotonic()
        self._quota.left(now)
        return min(longest_s, self._quota.window_ends_at - now)
