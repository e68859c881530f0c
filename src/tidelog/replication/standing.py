"""Where this broker stands in its cluster: one object, which all of its partitions look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.clock import Clock

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

UNREGISTERED: Final = -1
# The default of `replica.lag.time.max.ms`.
_LAG_SECONDS = 30.0


class Standing:
    """What the broker knows of itself and of the others."""

    def __init__(self, broker_id: int, clock: Clock) -> None:
        self.broker_id = broker_id
        self.clock = clock
        # The epoch of this life; what led in an earlier one does not lead now.
        self.broker_epoch = UNREGISTERED
        # The broker epochs of those who may be in an ISR: alive, and not shutting down.
        self.eligible: Mapping[int, int] = {}
        # How long a follower may be behind before it leaves the ISR.
        self.lag_s = _LAG_SECONDS
        # The store was not heard of for so long that others may have been elected.
        self.out_of_touch = False
        # Told of a partition whose ISR may have to change.
        self.reconsider: Callable[[Partition], None] = lambda partition: None

    def check_in_touch(self, replica_count: int, required_acks: int) -> None:
        """Refuse what only the leader would have, where another may be the leader by now."""
        if self.out_of_touch and replica_count > 1 and required_acks != -1:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                "the broker has lost touch with the metadata store: it takes acks=all only",
            )
