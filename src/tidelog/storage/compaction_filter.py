"""What of a batch outlives a clean: the rules of compaction, for one batch at a time.

Of each key the newest record stays. A record without a value (a tombstone) stays until
`delete.retention.ms` after the clean that first met it; that time, the delete horizon, is written
into its batch: attribute bit 6 says that the base timestamp is one (KIP-534). Only time in which
the broker ran counts. Data of aborted transactions go at once. The marker of a transaction stays as
long as a batch of it is there, then gets a horizon as a tombstone does. A batch whose records are
all gone stays, as a header without records, where it holds the last sequence or epoch of a producer
or ends its segment; so offsets that were used stay known. Keys that the map has not seen, and
records behind its end, stay.

Offsets, order, producer fields, leader epochs and codecs are unchanged. Records without a key are
dropped, as Kafka does; they are refused on compacted topics, but one may have become compacted. For
the same reason a batch may hold records that cannot be read: it stays as it is, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelog._kernels import records as kernel
from tidelog.errors import KafkaError, ProtocolError
from tidelog.model import NO_TIMESTAMP, TimestampType
from tidelog.protocol.batches import (
    ATTRIBUTES_CODEC,
    ATTRIBUTES_DELETE_HORIZON,
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    build_batch,
    decode_records,
    encode_records,
    index_records,
    inflate,
)
from tidelog.storage.offset_map import OffsetMap
from tidelog.storage.producers import ProducerState, read_marker
from tidelog.storage.running_clock import Ages
from tidelog.storage.transaction_index import AbortedTransaction


class CleanedTransactions:
    """Which transactions were seen on the way through a log, and how they ended."""

    __slots__ = ("_aborted", "_next", "_open_aborted", "_open_committed")

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._aborted = sorted(aborted, key=lambda entry: entry.first_offset)
        self._next = 0
        # By producer: the aborted transaction that it is in, and whether a batch of it was seen.
        self._open_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._open_committed: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take a data batch into account; True where its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._open_aborted.get(header.producer_id)
        if found is None:
            self._open_committed.add(header.producer_id)
            return False
        self._open_aborted[header.producer_id] = (found[0], True)
        return True

    def end(self, batch: Buffer, header: BatchHeader) -> tuple[bool, AbortedTransaction | None]:
        """Take a control batch into account.

        True where no batch of its transaction is left before it; and the transaction where it was
        aborted and something of it was seen, so that readers must still be told of it.
        """
        self._begin_up_to(header.last_offset)
        if not header.record_count:
            return True, None
        marker = read_marker(bytes(batch), header)
        if marker is None:
            return False, None
        if marker.committed:
            seen = header.producer_id in self._open_committed
            self._open_committed.discard(header.producer_id)
            return not seen, None
        found = self._open_aborted.pop(header.producer_id, None)
        if found is None or not found[1]:
            return True, None
        return False, found[0]

    def _begin_up_to(self, offset: int) -> None:
        while self._next < len(self._aborted) and self._aborted[self._next].first_offset <= offset:
            entry = self._aborted[self._next]
            self._next += 1
            self._open_aborted.setdefault(entry.producer_id, (entry, False))


@dataclass(slots=True)
class LastOfProducer:
    """What a log must still be able to say of a producer that lives."""

    last_offset: int
    epoch: int


def last_of_producers(states: Mapping[int, ProducerState]) -> dict[int, LastOfProducer]:
    """By producer id, as things are now; -1 for a producer of which only a marker is known."""
    return {
        producer_id: LastOfProducer(
            state.batches[-1].last_offset if state.batches else -1, state.epoch
        )
        for producer_id, state in states.items()
    }


@dataclass(slots=True)
class FilterCounts:
    """What happened to the records of one clean; `unreadable` has the offsets of whole batches."""

    records_read: int = 0
    records_kept: int = 0
    without_key: int = 0
    unreadable: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class FilterRules:
    """What one clean goes by; times in milliseconds."""

    newest: OffsetMap
    producers: Mapping[int, LastOfProducer]
    ages: Ages
    delete_retention_ms: int

    def has_passed(self, horizon_ms: int) -> bool:
        """Whether the broker has run for `delete.retention.ms` since a horizon was set.

        The wall clock alone would let a jump take tombstones that nobody has read.
        """
        set_ms = horizon_ms - self.delete_retention_ms
        return self.ages.age_ms(set_ms) >= self.delete_retention_ms


@dataclass(slots=True)
class Kept:
    """A batch as it is written again."""

    data: Buffer
    header: BatchHeader


def read_records(batch: Buffer, header: BatchHeader) -> tuple[bytes, memoryview, memoryview] | None:
    """The inflated records of a batch, their rows and timestamps; None where that cannot be had."""
    try:
        payload = bytes(inflate(batch, 0, header))
        rows, timestamps = index_records(payload, header.record_count, header.first_timestamp)
    except (KafkaError, ProtocolError):
        return None
    return payload, rows, timestamps


class BatchFilter:
    """Decides batch after batch, in the order of the log, what stays."""

    def __init__(self, rules: FilterRules, aborted: Sequence[AbortedTransaction]) -> None:
        self._rules = rules
        self._transactions = CleanedTransactions(aborted)
        self.counts = FilterCounts()

    def apply(
        self, batch: Buffer, header: BatchHeader, *, ends_segment: bool
    ) -> tuple[Kept | None, AbortedTransaction | None]:
        """What is left of a batch, and the aborted transaction that it ends and readers need."""
        self.counts.records_read += header.record_count
        aborted = None
        if header.is_control:
            unneeded, aborted = self._transactions.end(batch, header)
            horizon = header.first_timestamp if header.has_delete_horizon else None
            discarded = unneeded and horizon is not None and self._rules.has_passed(horizon)
            kept = self._control(batch, header, discarded=discarded, unneeded=unneeded)
        elif self._transactions.is_aborted(header):
            kept = None
        else:
            kept = self._data(batch, header)
        if kept is None and (ends_segment or self._is_last_of_producer(header)):
            kept = _emptied(batch, header)
        if kept is not None:
            self.counts.records_kept += kept.header.record_count
        return kept, aborted

    def keep_unread(self, batch: Buffer, header: BatchHeader) -> Kept:
        """Keep a batch that cannot be read as it is."""
        self.counts.unreadable.append((header.base_offset, header.last_offset))
        return Kept(batch, header)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._rules.producers.get(header.producer_id)
        if last is None or header.producer_id < 0:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _control(
        self, batch: Buffer, header: BatchHeader, *, discarded: bool, unneeded: bool
    ) -> Kept | None:
        if discarded or not header.record_count:
            return None
        if unneeded and not header.has_delete_horizon:
            return self._with_horizon(batch, header, range(header.record_count))
        return Kept(batch, header)

    def _data(self, batch: Buffer, header: BatchHeader) -> Kept | None:
        found = read_records(batch, header)
        if found is None:
            return self.keep_unread(batch, header)
        payload, rows, timestamps = found
        kept, tombstones = self._kept_records(payload, rows, header)
        if not kept:
            return None
        if tombstones and not header.has_delete_horizon:
            return self._with_horizon(batch, header, kept)
        if len(kept) == header.record_count:
            return Kept(batch, header)
        starts = rows[kernel.START :: kernel.ROW_FIELDS].tolist()
        starts.append(len(payload))
        selected = b"".join([payload[starts[index] : starts[index + 1]] for index in kept])
        changed = replace(header, record_count=len(kept))
        if header.timestamp_type is TimestampType.CREATE_TIME:
            changed.max_timestamp = max(timestamps[index] for index in kept)
        return Kept(build_batch(changed, selected), changed)

    def _kept_records(
        self, payload: bytes, rows: memoryview, header: BatchHeader
    ) -> tuple[list[int], bool]:
        """The places of the records that stay, and whether there is a tombstone among them."""
        rules = self._rules
        fields = kernel.ROW_FIELDS
        drop_tombstones = header.has_delete_horizon and rules.has_passed(header.first_timestamp)
        newest = rules.newest.newest(payload, rows)
        judged = rules.newest.next_offset - header.base_offset
        kept = []
        tombstones = False
        numbers = rows.tolist()
        for index, (delta, key_length, value_length) in enumerate(
            zip(
                numbers[kernel.OFFSET_DELTA :: fields],
                numbers[kernel.KEY_LENGTH :: fields],
                numbers[kernel.VALUE_LENGTH :: fields],
                strict=True,
            )
        ):
            if delta < judged:
                if key_length < 0:
                    self.counts.without_key += 1
                    continue
                if newest[index] > header.base_offset + delta:
                    continue
                if value_length < 0 and drop_tombstones:
                    continue
            if value_length < 0:
                tombstones = True
            kept.append(index)
        return kept, tombstones

    def _with_horizon(self, batch: Buffer, header: BatchHeader, kept: Sequence[int]) -> Kept:
        """Write the batch anew with the delete horizon in the place of its base timestamp."""
        every = decode_records(batch)
        records = [every[index] for index in kept]
        horizon = self._rules.ages.wall_ms + self._rules.delete_retention_ms
        changed = replace(
            header,
            attributes=header.attributes | ATTRIBUTES_DELETE_HORIZON,
            first_timestamp=horizon,
            record_count=len(records),
        )
        if header.timestamp_type is TimestampType.CREATE_TIME:
            changed.max_timestamp = max(record.timestamp for record in records)
        deltas = [record.offset - header.base_offset for record in records]
        return Kept(build_batch(changed, encode_records(records, deltas, horizon)), changed)


def _emptied(batch: Buffer, header: BatchHeader) -> Kept:
    """The batch without its records: its offsets, producer and times stay known."""
    if not header.record_count:
        return Kept(batch, header)
    changed = replace(
        header,
        attributes=header.attributes & ~(ATTRIBUTES_CODEC | ATTRIBUTES_DELETE_HORIZON),
        first_timestamp=NO_TIMESTAMP,
        batch_length=HEADER_BYTES - LOG_OVERHEAD,
        record_count=0,
    )
    return Kept(build_batch(changed, b""), changed)
