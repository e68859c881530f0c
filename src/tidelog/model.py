"""The nouns that every layer shares: topic partitions, log positions, what stands for none.

Numbers that have a meaning on the wire are here, unless they belong to one module alone.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

NO_OFFSET: Final = -1
NO_LEADER: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_TOPIC_ID: Final = UUID(int=0)


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LogPosition(NamedTuple):
    """An offset and where it lies on disk, so that bytes between two offsets are a subtraction."""

    offset: int
    segment_base_offset: int
    position: int


class TimestampType(IntEnum):
    """Whose clock stamped a record; bit 3 of a batch's attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Codec(IntEnum):
    """Compression of a record batch; bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Isolation(IntEnum):
    """What a reader may see; the wire values of Fetch and ListOffsets."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    # A follower reads to the end of the log. No byte on the wire can say so: only the broker does.
    REPLICA = 1000


class ListedOffset(IntEnum):
    """Timestamps with a meaning, as ListOffsets has them."""

    LATEST = -1
    EARLIEST = -2
    # The record with the largest timestamp.
    MAX_TIMESTAMP = -3
    # The earliest on this broker's own disk, the latest in tiered storage, and the earliest that
    # is still to be copied there.
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class ConfigResourceType(IntEnum):
    """What a setting belongs to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class CoordinatorType(IntEnum):
    """What FindCoordinator is asked about."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2
