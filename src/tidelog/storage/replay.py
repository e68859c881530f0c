"""What stored batches say of leader epochs and of producers, learned when a log is opened.

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
from tidelog.errors import KafkaError, ProtocolError, StorageError
from tidelog.protocol.batches import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    BatchHeader,
    control_coordinator_epoch,
    control_record_type,
    decode_records,
)
from tidelog.storage.epochs import LeaderEpochs
from tidelog.storage.producers import EndMarker, ProducerStates
from tidelog.storage.scan import Stretch
from tidelog.storage.segment import Segment
from tidelog.storage.timestamp_search import read_batch
from tidelog.storage.transaction_index import aborted_transaction

# Kafka does not compress markers; one that inflates to more is not one.
_MARKER_BYTES_MAX = 64 * 1024
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
    if not header.is_control:
        producers.update(header)
        return
    marker = read_marker(read_batch(segment, position, header), header)
    if marker is None:
        producers.take_epoch(header)
        return
    completed = producers.end_transaction(marker)
    if completed is None or not completed.aborted:
        return
    known = segment.aborted.entries
    if not known or known[-1].last_offset < completed.last_offset:
        stable = producers.last_stable_offset_after(completed)
        segment.aborted.append(aborted_transaction(completed, stable))


def read_marker(batch: bytes | memoryview, header: BatchHeader) -> EndMarker | None:
    """The transaction marker in a control batch; None for control records of another kind."""
    try:
        records = decode_records(batch, max_bytes=_MARKER_BYTES_MAX)
        control_type = control_record_type(records[0]) if records else -1
        if control_type not in (CONTROL_ABORT, CONTROL_COMMIT):
            return None
        epoch = control_coordinator_epoch(records[0])
        return EndMarker(header, control_type == CONTROL_COMMIT, epoch)
    except (KafkaError, ProtocolError) as error:
        raise StorageError(f"control batch at offset {header.base_offset}: {error}") from error
