"""What must be there of a listed log, and what is done where it is not.

A log whose offsets stand in the inventory has its first segment at or below its start, segments
that follow each other without a gap, and an end at or above its recovery point. Where the files say
otherwise something was lost that a crash cannot take, and the partition is not served: going on
would hand out the lost offsets a second time. The error says what is missing and what can be done.

An operator who accepts the loss gets what is left. The hole is then filled with batches that hold
no record, as compaction leaves them, so that no offset is used twice and the log is whole again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.audit import audit
from tidelog.errors import StorageError
from tidelog.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from tidelog.protocol.batches import MAGIC, BatchHeader, build_batch
from tidelog.storage.log_context import LogContext
from tidelog.storage.scan import LARGEST_RELATIVE_OFFSET
from tidelog.storage.segment import Segment
from tidelog.storage.segments import create_segment

_DELETED_LOG = re.compile(r"(\d{20})\.log(\.\d+)?\.deleted")


class PartitionDamagedError(StorageError):
    """Something that was durable is gone or wrong; nothing was changed on disk."""


@dataclass(slots=True)
class Expectation:
    """What the inventory says of a log, and whether an operator accepts less."""

    directory: str
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    # False where the offsets come from checkpoints, which have no checksum, or are not known.
    listed: bool = False
    accept_loss: bool = False

    def miss(self, what: str) -> None:
        """Something is missing: PartitionDamagedError unless that is accepted."""
        if not self.accept_loss:
            name = self.directory.rpartition("/")[2]
            raise PartitionDamagedError(
                f"{self.directory}: {what}. Put the files back and restart, or go on with what is"
                f" left: tidelog broker --accept-loss {name}"
            )
        audit("loss accepted", directory=self.directory, loss=repr(what))

    def check_first(self, bases: Sequence[int], names: Sequence[str]) -> None:
        """The oldest segment must reach down to the log's start."""
        if not self.listed:
            return
        if not bases:
            self.miss("its segments are missing, there is no .log file")
        elif bases[0] > self.log_start_offset:
            deleted = (int(match[1]) for name in names if (match := _DELETED_LOG.fullmatch(name)))
            # Retention had begun to delete what is missing; the kill came before the inventory.
            if min(deleted, default=bases[0]) > self.log_start_offset:
                self.miss(
                    f"the segments of offsets {self.log_start_offset} to {bases[0] - 1} are missing"
                )

    def check_gap(self, earlier: Segment, later: Segment) -> None:
        """Two segments that were synced must meet: nothing is missing, and they do not overlap."""
        if not self.listed or follows(earlier, later):
            return
        if earlier.next_offset > later.base_offset:
            self.miss(
                f"the last batch of {earlier.log_file.path} claims offsets up to"
                f" {earlier.next_offset - 1}, but the next segment begins at {later.base_offset}"
            )
        else:
            self.miss(
                f"the segments of offsets {earlier.next_offset} to {later.base_offset - 1}"
                " are missing"
            )

    def check_cut(self, segment: Segment) -> None:
        """What was synced is not cut off because a batch in it is damaged."""
        if self.listed and segment.next_offset < self.recovery_point:
            self.miss(
                f"the batch at offset {segment.next_offset} is damaged, in"
                f" {segment.log_file.path} at byte {segment.size_bytes}"
            )

    @property
    def known_end(self) -> int:
        """Offsets below have been used."""
        return max(self.recovery_point, self.high_watermark, self.log_start_offset)

    def check_end(self, end_offset: int) -> None:
        """The log must reach its recovery point; without a list, its start."""
        if self.listed and end_offset < self.recovery_point:
            self.miss(
                f"offsets {end_offset} to {self.recovery_point - 1} are missing at its end, they"
                " were on disk"
            )
        elif not self.listed and end_offset < self.log_start_offset:
            self.miss(
                f"the log start offset is {self.log_start_offset}, but the log ends at"
                f" {end_offset}; log-start-offset-checkpoint may be damaged"
            )
        elif self.listed and end_offset < self.high_watermark:
            # In the page cache only when the machine went down: the promise ends there.
            audit(
                "records lost with the power",
                directory=self.directory,
                first_offset=end_offset,
                last_offset=self.high_watermark - 1,
            )


def follows(earlier: Segment, later: Segment) -> bool:
    """False where something must have been between two segments."""
    return (
        later.base_offset == earlier.next_offset
        or later.base_offset - earlier.base_offset > LARGEST_RELATIVE_OFFSET
    )


def fill(context: LogContext, segments: list[Segment], place: int, end_offset: int) -> None:
    """Fill the offsets before `end_offset`, behind segment `place - 1`.

    Segments of batches without records, which the caller's index interval need not know of.
    """
    before = segments[place - 1]
    start = before.next_offset
    epoch = _last_epoch(before)
    while start < end_offset:
        last_delta = min(end_offset - start - 1, LARGEST_RELATIVE_OFFSET)
        header = BatchHeader(
            start, 0, epoch, MAGIC, 0, 0, last_delta, NO_TIMESTAMP, NO_TIMESTAMP,
            NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 0,
        )  # fmt: skip
        batch = build_batch(header, b"")
        if before.base_offset == start:
            filler = before
        else:
            filler = create_segment(context, before.directory, start)
            segments.insert(place, filler)
            place += 1
        filler.write(batch)
        filler.note(header, len(batch), 0)
        start += last_delta + 1


def _last_epoch(segment: Segment) -> int:
    epoch = 0
    for _, header in segment.batches_from(segment.near_end(1)):
        epoch = header.leader_epoch
    return epoch
