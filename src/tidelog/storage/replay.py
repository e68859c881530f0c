"""What batches say of leader epochs and of producers, as they are written and when a log is opened.

A walk gives many batches at a time. The kernel picks those that decide what is known of producers
in the end, so that a log of small batches does not cost a step of Python for each of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from tidelog._kernels import batch_walk as kernel
from tidelog._kernels.batch_rows import (
    BASE_OFFSET,
    HEADER_FIELDS,
    LEADER_EPOCH,
    POSITION,
    ROW_FIELDS,
)
from tidelog.protocol.batches import BatchHeader
from tidelog.storage.epochs import LeaderEpochs
from tidelog.storage.producers import EndMarker, ProducerStates, read_marker
from tidelog.storage.replicated import Run
from tidelog.storage.scan import Stretch
from tidelog.storage.segment import Segment
from tidelog.storage.transaction_index import AbortedTransaction

# Rows that wait until a segment ends, since most of them are then not needed: 15 MB at most.
_WAITING_MAX = 1 << 17
_SLOTS_MAX = 1 << 15


class Replay:
    """Takes one segment's batches into account, stretch after stretch."""

    __slots__ = ("_producers", "_segment", "_waiting")

    def __init__(self, segment: Segment, producers: ProducerStates) -> None:
        self._segment = segment
        self._producers = producers
        self._waiting = array("q")

    def take(self, stretch: Stretch) -> None:
        """Note the batches of a stretch, whose rows are not in order afterwards."""
        kept = _keep(stretch.rows, stretch.count)
        if not kept:
            return
        waiting = self._waiting
        waiting += stretch.rows[: kept * ROW_FIELDS]
        count = len(waiting) // ROW_FIELDS
        if count > _WAITING_MAX:
            del waiting[_keep(waiting, count) * ROW_FIELDS :]
            if len(waiting) > _WAITING_MAX // 2 * ROW_FIELDS:
                self.finish()

    def finish(self) -> None:
        """Replay what waits."""
        waiting = self._waiting
        kept = _keep(waiting, len(waiting) // ROW_FIELDS)
        for at in range(0, kept * ROW_FIELDS, ROW_FIELDS):
            header = BatchHeader(*waiting[at : at + HEADER_FIELDS])
            replay_batch(self._segment, waiting[at + POSITION], header, self._producers)
        del waiting[:]


def _keep(rows: array[int], count: int) -> int:
    slots = min(1 << count.bit_length(), _SLOTS_MAX)
    scratch = array("q", bytes(16 * slots))
    return kernel.keep_for_replay(rows, count, scratch, bytearray(count))


def assign_epochs(stretch: Stretch, epochs: LeaderEpochs) -> None:
    """Learn the leader epochs that begin in a stretch, in which they do not fall."""
    if stretch.leader_epoch <= epochs.latest:
        return
    column = stretch.rows[LEADER_EPOCH : stretch.count * ROW_FIELDS : ROW_FIELDS]
    row = bisect_right(column, epochs.latest)
    while row < stretch.count:
        epochs.assign(column[row], stretch.rows[row * ROW_FIELDS + BASE_OFFSET])
        row = bisect_right(column, column[row])


def replay_batch(
    segment: Segment, position: int, header: BatchHeader, producers: ProducerStates
) -> None:
    """Take a stored batch of a producer into account, its end of a transaction included."""
    marker = None
    if header.is_control:
        marker = read_marker(segment.read_batch(position, header), header)
    note_batch(producers, segment, position, header, marker)


def note_run(producers: ProducerStates, segment: Segment, stretch: Stretch, run: Run) -> None:
    """Take batches of a leader, now written, into account; their rows are not in order then."""
    shift = run.start - stretch.rows[POSITION]
    rows = stretch.rows
    for at in range(0, _keep(rows, stretch.count) * ROW_FIELDS, ROW_FIELDS):
        header, position = BatchHeader(*rows[at : at + HEADER_FIELDS]), rows[at + POSITION]
        note_batch(producers, segment, position, header, run.checked.markers.get(position + shift))


def note_batch(
    producers: ProducerStates,
    segment: Segment,
    position: int,
    header: BatchHeader,
    marker: EndMarker | None,
) -> None:
    """Take a producer's batch, which is in a segment, into account; the marker is its content."""
    if not header.is_control:
        producers.update(header, segment.base_offset, position)
        return
    if marker is None:
        producers.take_epoch(header)
        return
    completed = producers.end_transaction(marker)
    if completed is None or not completed.aborted:
        return
    known = segment.aborted.entries
    if not known or known[-1].last_offset < completed.last_offset:
        stable = producers.last_stable_offset_after(completed)
        entry = completed.producer_id, completed.first_offset, completed.last_offset, stable
        segment.aborted.append(AbortedTransaction(*entry))
