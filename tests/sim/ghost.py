"""What a simulated world knows and no broker does: every log as it is, and what was committed.

A `Replica` mirrors the log of one broker: its batches, told apart by offset, leader epoch and
checksum. A `Ghost` is one partition of one topic id over all brokers and lives: what a current
leader has committed, who wrote what in which epoch, what consumers were given.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from tidelog.cluster.image import PartitionState
from tidelog.testing.disk import SimulatedDisk

_HEADER: Final = struct.Struct(">qiiBIhi")
_LENGTH_BYTES: Final = 12


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self.what = what


class Batch(NamedTuple):
    """A batch in a log."""

    base: int
    last: int
    epoch: int
    checksum: int

    def __str__(self) -> str:
        return f"{self.base}-{self.last} of epoch {self.epoch} ({self.checksum:08x})"


Key = tuple[UUID, int]


def batches_of(data: bytes | bytearray, start: int, end: int) -> list[Batch]:
    """The batches in a part of a segment's bytes."""
    found = []
    position = start
    while position + _HEADER.size <= end:
        base, length, epoch, _, checksum, _, delta = _HEADER.unpack_from(data, position)
        found.append(Batch(base, base + delta, epoch, checksum))
        position += length + _LENGTH_BYTES
    return found


class Replica:
    """The log of one broker, in one life."""

    __slots__ = (
        "batches", "broker_id", "epoch", "life", "log_start", "seen", "state", "uncut",
        "was_cutting", "watermark",
    )  # fmt: skip

    def __init__(self, broker_id: int, life: int) -> None:
        self.broker_id = broker_id
        self.life = life
        self.batches: list[Batch] = []
        self.watermark = 0
        self.log_start = 0
        self.epoch = -1
        self.seen: tuple[Any, ...] = ()
        # What the broker knew of the partition at the last look.
        self.state: PartitionState | None = None
        # What there was before the last cut; and whether the disk had yet to do it at the end.
        self.uncut: list[Batch] = []
        self.was_cutting = False

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def take(self, log: Any, disk: SimulatedDisk) -> tuple[list[Batch], bool]:
        """Look at the log; the batches that are new, and whether it was not a mere append."""
        active = log.segments.active
        before = self.seen
        self.seen = (active, active.size_bytes, active.truncations, len(log.segments))
        if before and before[0] is active and before[2:] == self.seen[2:]:
            if before[1] == active.size_bytes:
                return [], False
            if before[1] < active.size_bytes:
                data = disk.peek(active.log_file.path)
                new = batches_of(data, before[1], active.size_bytes)
                self.batches += new
                return new, False
        old, self.batches = self.batches, []
        for segment in log.segments:
            if segment.size_bytes:
                data = disk.peek(segment.log_file.path)
                self.batches += batches_of(data, 0, segment.size_bytes)
        return self._difference(old)

    def _difference(self, old: list[Batch]) -> tuple[list[Batch], bool]:
        known = set(old)
        new = [each for each in self.batches if each not in known]
        is_cut = bool(old) and (not self.batches or self.batches[-1].last < old[-1].last
                                or old[-1] not in set(self.batches))  # fmt: skip
        if is_cut:
            self.uncut = old
        return new, is_cut

    def holding(self, offset: int) -> Batch | None:
        """The batch that an offset lies in."""
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            if self.batches[middle].last < offset:
                low = middle + 1
            else:
                high = middle
        found = self.batches[low] if low < len(self.batches) else None
        return found if found is not None and found.base <= offset else None


@dataclass(slots=True)
class Ghost:
    """One partition of one topic id, over all brokers and all their lives."""

    topic: str
    key: Key
    min_isr: int = 1
    state: PartitionState | None = None
    # All that the store has said of it, in order.
    states: list[PartitionState] = field(default_factory=list)
    # By broker: its log as it is, or as it was when the broker was last up.
    replicas: dict[int, Replica] = field(default_factory=dict)
    # What a current leader has committed, in order.
    committed: list[Batch] = field(default_factory=list)
    true_watermark: int = 0
    log_start: int = 0
    # By epoch and first offset: the batch, and the one before it in the log it was first seen in.
    written: dict[tuple[int, int], tuple[Batch, Batch | None]] = field(default_factory=dict)
    writers: dict[int, tuple[int, int]] = field(default_factory=dict)
    # When the store's leader epoch went past each epoch.
    superseded_at: dict[int, float] = field(default_factory=dict)
    # What any consumer was ever handed, by offset.
    given: dict[int, int] = field(default_factory=dict)
    # Acknowledged with acks=all.
    acked: dict[int, int] = field(default_factory=dict)
    # Brokers that may have lost records of it, until they are seen to have all again.
    unwhole: dict[int, int] = field(default_factory=dict)
    # Brokers that a move has taken it from.
    moved_from: set[int] = field(default_factory=set)
    # How often a replica was elected that was not in sync, and may have an earlier start.
    elections_out_of_sync: int = 0
    # More was lost at a time than the budget allows: some of what was committed may be gone.
    is_loss_allowed: bool = False

    def __str__(self) -> str:
        return f"{self.topic}-{self.key[1]}"

    def lacks(self, replica: Replica, since: int = 0) -> Batch | None:
        """The first committed batch from an index on that a replica does not have."""
        for batch in self.committed[since:]:
            if batch.last < self.log_start:
                continue
            if replica.holding(batch.base) != batch:
                return batch
        return None
