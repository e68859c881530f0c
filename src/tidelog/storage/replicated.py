"""What a leader sent to a follower, checked before the follower's log takes it.

`check_replicated` is pure: one call of the kernel walks the chunk. Every batch must be of magic 2
and match its checksum; offsets must rise from the log's end (compaction leaves gaps, so they need
not follow each other); leader epochs must neither fall, from the last one in the log on, nor be
above that of the leader that was asked. Anything else refuses the whole chunk: CORRUPT_MESSAGE.
A batch at the end that is not whole is left out; the next fetch brings it again.

Checksums of a large chunk take longer than the event loop may stand still: above
`LOOP_CHECKED_BYTES` of `admission` run the check on a thread. `Log.append_checked` refuses what
was checked against another end than the log has by then.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from tidelog._kernels import batch_walk as kernel
from tidelog._kernels.batch_rows import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CONTROL,
    HEADER_BYTES,
    HEADER_FIELDS,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LOG_OVERHEAD,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_ID,
    ROW_FIELDS,
)
from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.protocol.batches import BatchHeader
from tidelog.protocol.checksum import crc32c
from tidelog.storage.producers import EndMarker, read_marker
from tidelog.storage.scan import LARGEST_RELATIVE_OFFSET, Stretch
from tidelog.storage.segment import Segment

_LARGEST_OFFSET = 2**63 - 2
_ROWS_AT_ONCE = 64
_ROWS_MAX = 8192


class Continuation(NamedTuple):
    """What a chunk must go on from: the log's end, its last epoch, and its leader's epoch."""

    end_offset: int
    last_epoch: int
    leader_epoch: int


@dataclass(slots=True)
class CheckedBatches:
    """Whole, valid batches that follow each other, with a row of numbers for each."""

    records: memoryview
    continues: Continuation
    rows: array[int]
    count: int
    next_offset: int
    # By the position of the batch in the chunk.
    markers: dict[int, EndMarker | None]

    def must_continue(self, end_offset: int, last_epoch: int) -> None:
        """StorageError where the log is no longer as it was when these were checked."""
        if self.continues[:2] != (end_offset, last_epoch):
            raise StorageError(
                f"the log ends at {end_offset} in epoch {last_epoch}; the leader's batches were"
                f" checked for an end at {self.continues.end_offset} in {self.continues.last_epoch}"
            )

    def batch(self, row: int) -> tuple[int, int, int, int]:
        """First and last offset, size and newest time of one of them."""
        at = row * ROW_FIELDS
        size_bytes = self.rows[at + BATCH_LENGTH] + LOG_OVERHEAD
        timestamp = self.rows[at + MAX_TIMESTAMP]
        return self.rows[at + BASE_OFFSET], self._last_offset(row), size_bytes, timestamp

    def run(self, row: int, segment: Segment, segment_bytes: int) -> Run:
        """Batches from `row` on that fit a segment; at least one."""
        rows, count = self.rows, self.count
        room_bytes = segment_bytes - segment.size_bytes
        start = rows[row * ROW_FIELDS + POSITION]
        end_row, end = count, len(self.records)
        if end - start > room_bytes:
            # Where a batch begins, all before it ends.
            begins = rows[POSITION : count * ROW_FIELDS : ROW_FIELDS]
            end_row = max(bisect_right(begins, start + room_bytes) - 1, row + 1)
        last_offset = segment.base_offset + LARGEST_RELATIVE_OFFSET
        while end_row > row + 1 and self._last_offset(end_row - 1) > last_offset:
            end_row -= 1
        if end_row < count:
            end = rows[end_row * ROW_FIELDS + POSITION]
        return Run(self, row, end_row, start, end)

    def _last_offset(self, row: int) -> int:
        at = row * ROW_FIELDS
        return self.rows[at + BASE_OFFSET] + self.rows[at + LAST_OFFSET_DELTA]


class Run(NamedTuple):
    """Some of the checked batches, which go into one segment with one write."""

    checked: CheckedBatches
    row: int
    end_row: int
    start: int
    end: int

    @property
    def records(self) -> memoryview:
        return self.checked.records[self.start : self.end]

    @property
    def has_markers(self) -> bool:
        return any(self.start <= position < self.end for position in self.checked.markers)

    def stretch(self, place: int) -> Stretch:
        """The batches as a walk would have found them at a place of the segment."""
        rows = self.checked.rows[self.row * ROW_FIELDS : self.end_row * ROW_FIELDS]
        shift = place - self.start
        if shift:
            moved = [position + shift for position in rows[POSITION::ROW_FIELDS]]
            rows[POSITION::ROW_FIELDS] = array("q", moved)
        at = len(rows) - ROW_FIELDS
        return Stretch(
            rows,
            self.end_row - self.row,
            rows[at + POSITION] + rows[at + BATCH_LENGTH] + LOG_OVERHEAD,
            rows[at + BASE_OFFSET] + rows[at + LAST_OFFSET_DELTA] + 1,
            rows[at + LEADER_EPOCH],
            "",
        )


def check_replicated(records: memoryview, continues: Continuation) -> CheckedBatches:
    """The whole batches of a chunk; KafkaError where they may not go on a log. May take long."""
    rows = array("q")
    size = len(records)
    room = min(size // HEADER_BYTES, _ROWS_AT_ONCE)
    position, next_offset, epoch = 0, continues.end_offset, continues.last_epoch
    total, stop = 0, kernel.FULL
    while stop == kernel.FULL and room:
        found = array("q", bytes(8 * ROW_FIELDS * room))
        stop, count, position, next_offset, epoch, _ = kernel.walk(
            records, 0, position, size, next_offset, _LARGEST_OFFSET,
            epoch, continues.leader_epoch, crc32c, found,
        )  # fmt: skip
        rows = found if not total else rows + found[: count * ROW_FIELDS]
        total += count
        room = min(8 * room, _ROWS_MAX)
    if stop not in (kernel.FULL, kernel.END, kernel.PAST_END):
        raise _refused(stop, position, next_offset, (epoch, continues.leader_epoch))
    whole = records[:position]
    return CheckedBatches(whole, continues, rows, total, next_offset, _markers(whole, rows, total))


def _refused(stop: int, position: int, next_offset: int, epochs: tuple[int, int]) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"the leader sent a batch, at byte {position} of its answer, that cannot follow where the"
        f" log ends at {next_offset} in epoch {epochs[0]} and the leader's epoch is {epochs[1]}:"
        f" {kernel.FAULT_MESSAGES[stop]}",
    )


def _markers(records: memoryview, rows: array[int], count: int) -> dict[int, EndMarker | None]:
    """The ends of transactions: what cannot be read is refused before anything is written."""
    markers: dict[int, EndMarker | None] = {}
    attributes = rows[ATTRIBUTES : count * ROW_FIELDS : ROW_FIELDS]
    for row, each in enumerate(attributes):
        at = row * ROW_FIELDS
        if each & CONTROL and rows[at + PRODUCER_ID] >= 0:
            header = BatchHeader(*rows[at : at + HEADER_FIELDS])
            position = rows[at + POSITION]
            try:
                marker = read_marker(records[position : position + header.size_bytes], header)
            except StorageError as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
            markers[position] = marker
    return markers
