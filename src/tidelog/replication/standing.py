"""Where this broker stands in its cluster: one object, which all of its partitions look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.setting import LONG_MAX
from tidelog.host.clock import Clock
from tidelog.model import TopicPartition
from tidelog.replication.throttle import Quota

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

UNREGISTERED: Final = -1
# The default of `replica.lag.time.max.ms`.
_LAG_SECONDS = 30.0


class Registered(Protocol):
    """The broker's own entry in the cluster."""

    @property
    def broker_epoch(self) -> int:
        """That of this life; what led in an earlier one does not lead now."""
        ...

    @property
    def out_of_touch(self) -> bool:
        """The store was not heard of for so long that others may have been elected."""
        ...


@dataclass(slots=True)
class Unregistered:
    """A broker that no cluster knows."""

    broker_epoch: int = UNREGISTERED
    out_of_touch: bool = False


class Standing:
    """What the broker knows of itself and of the others."""

    def __init__(self, broker_id: int, clock: Clock, entry: Registered) -> None:
        self.broker_id = broker_id
        self.clock = clock
        self.entry = entry
        # The broker epochs of those who may be in an ISR: alive, and not shutting down.
        self.eligible: Mapping[int, int] = {}
        # How long a follower may be behind before it leaves the ISR.
        self.lag_s = _LAG_SECONDS
        # What may be copied a second of replicas that are throttled, to others and from others.
        self.leader_quota, self.follower_quota = Quota(), Quota()
        # Told of a partition that leads, follows somebody else, or is here no more.
        self.role_changed: Callable[[Partition], None] = lambda partition: None
        # How often an ISR that is led here lost or gained a replica.
        self.isr_shrinks = self.isr_expansions = 0
        # Committed records that were dropped here, because a leader without them was elected.
        self.lost_records = 0
        # Told of a partition whose ISR may have to change.
        self.reconsider: Callable[[Partition], None] = lambda partition: None
        # Told of a place in a log where somebody could not read what is there.
        self.suspect: Callable[[TopicPartition, int], None] = lambda partition, offset: None

    def take_settings(self, config: BrokerConfig) -> None:
        """The settings in force have changed."""
        self.lag_s = config.get_int("replica.lag.time.max.ms") / 1000
        now = self.clock.monotonic()
        for side, quota in (("leader", self.leader_quota), ("follower", self.follower_quota)):
            rate = config.get_int(f"{side}.replication.throttled.rate")
            quota.limit_to(None if rate == LONG_MAX else rate, now)
