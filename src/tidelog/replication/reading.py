"""Who reads a partition, and what that comes to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelog.errors import ErrorCode, KafkaError, StorageError, TidelogError
from tidelog.storage.damage import DamagedBatchError
from tidelog.storage.slices import Slices


@dataclass(slots=True)
class PartitionRead:
    """What a fetch of one partition came to."""

    slices: Slices | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None = None
    # The broker that the reader should go to instead, which is nearer.
    preferred_replica: int = -1


def refusal(error: StorageError, *, is_sole: bool) -> TidelogError:
    """What a reader is told where the log cannot be read.

    Of damage that no other replica can mend, that it stays: clients try anything else again.
    """
    if is_sole and isinstance(error, DamagedBatchError):
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))
    return error


class Reader(Enum):
    """Who reads: a replica, a consumer at leaders alone, one at any replica (KIP-392)."""

    REPLICA = "replica"
    AT_LEADERS = "at leaders"
    ANYWHERE = "anywhere"
