"""Records on their way out: single deliveries, the batches they wait in, a queue per partition."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Codec,
    TopicPartition,
)
from tidelog.protocol.batches import (
    ATTRIBUTES_TRANSACTIONAL,
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    Record,
    build_batch,
    decode_records,
    encode_batch,
    seal,
)

# What a record takes beside its key, value and headers: lengths, deltas and attributes as varints.
_RECORD_OVERHEAD_BYTES = 21
# Refusals of a broker that has the batch in its log all the same.
_STORED_BUT_REFUSED = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)


@dataclass(slots=True)
class ProducerRecord:
    """A record to send; without a partition the key, or else chance, picks one."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        """About what it adds to a batch."""
        size = _RECORD_OVERHEAD_BYTES + len(self.value or b"") + len(self.key or b"")
        for name, value in self.headers:
            size += 4 + len(name) + len(value or b"")
        return size


@dataclass(slots=True, eq=False)
class EncodedRecords:
    """Records of one partition, encoded already: their payload behind room for a batch header."""

    buffer: bytearray
    size_bytes: int
    record_count: int
    first_timestamp_ms: int
    max_timestamp_ms: int

    def batch(self, header: BatchHeader, level: int | None) -> bytearray | memoryview:
        """The whole batch; made in the buffer itself unless it is compressed."""
        header.last_offset_delta = self.record_count - 1
        header.record_count = self.record_count
        header.first_timestamp = self.first_timestamp_ms
        header.max_timestamp = self.max_timestamp_ms
        view = memoryview(self.buffer)[: self.size_bytes]
        if header.codec is not Codec.NONE:
            return build_batch(header, view[HEADER_BYTES:], level)
        header.batch_length = self.size_bytes - LOG_OVERHEAD
        seal(view, 0, header)
        return view


@dataclass(slots=True, frozen=True)
class Identity:
    """The producer id and epoch under which a broker counts sequences."""

    producer_id: int
    producer_epoch: int


_ANONYMOUS = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(slots=True, eq=False)
class Batch:
    """Records for one partition that are sent, retried and acknowledged together."""

    partition: TopicPartition
    # Its place among the partition's batches; halves of batch (7,) are (7, 0) and (7, 1).
    order: tuple[int, ...]
    created: float
    deadline: float
    records: list[Record] = field(default_factory=list)
    # In place of `records` where they came encoded.
    payload: EncodedRecords | None = None
    size_bytes: int = HEADER_BYTES
    identity: Identity | None = None
    base_sequence: int = NO_SEQUENCE
    encoded: bytearray | memoryview | None = None
    attempts: int = 0
    retry_at: float = 0.0
    done: bool = False
    base_offset: int = -1
    append_time_ms: int = -1
    error: TidelogError | None = None
    # A try went unanswered: the broker may or may not have stored it.
    unsure: bool = False
    # Its sequence was refused for good and it took a fresh one.
    renewed: bool = False
    halves: tuple[Batch, Batch] | None = None
    transactional: bool = False

    @property
    def record_count(self) -> int:
        return len(self.records) if self.payload is None else self.payload.record_count

    @property
    def maybe_stored(self) -> bool:
        """True where a batch that was not acknowledged may be in the log all the same."""
        error = self.error
        refused_late = isinstance(error, KafkaError) and error.code in _STORED_BUT_REFUSED
        return self.unsure or refused_late

    def encode(self, codec: Codec, level: int | None = None) -> bytearray | memoryview:
        """The batch's bytes, made once per identity: a retry sends the very same."""
        if self.encoded is None:
            identity = self.identity or _ANONYMOUS
            if self.payload is not None:
                header = BatchHeader(attributes=codec, base_sequence=self.base_sequence)
                header.attributes |= ATTRIBUTES_TRANSACTIONAL if self.transactional else 0
                header.producer_id = identity.producer_id
                header.producer_epoch = identity.producer_epoch
                self.encoded = self.payload.batch(header, level)
            else:
                self.encoded = encode_batch(
                    self.records,
                    codec=codec,
                    level=level,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                    base_sequence=self.base_sequence,
                    transactional=self.transactional,
                )
        return self.encoded

    def unpack(self) -> None:
        """Have the records one by one, however they came."""
        if self.payload is not None:
            self.records = decode_records(self.payload.batch(BatchHeader(), None))
            self.payload = None

    def stamp(self, identity: Identity | None, base_sequence: int) -> None:
        """Give the batch a place in a producer's sequence, or take it away."""
        self.identity = identity
        self.base_sequence = base_sequence
        self.encoded = None


@dataclass(slots=True)
class Delivery:
    """The fate of one record: where it went, or why it did not."""

    _batch: Batch
    _index: int

    @property
    def batch(self) -> Batch:
        """The batch that holds the record now; a batch found too large is split in two."""
        while self._batch.halves is not None:
            first, second = self._batch.halves
            if self._index < len(first.records):
                self._batch = first
            else:
                self._index -= len(first.records)
                self._batch = second
        return self._batch

    @property
    def done(self) -> bool:
        return self.batch.done

    @property
    def error(self) -> TidelogError | None:
        return self.batch.error

    @property
    def partition(self) -> TopicPartition:
        return self._batch.partition

    @property
    def offset(self) -> int:
        """The record's offset, -1 with acks=0 or before it is acknowledged."""
        base = self.batch.base_offset
        return base + self._index if base >= 0 else -1

    def result(self) -> int:
        """The offset, or the error raised."""
        assert self.done, "flush before asking for a result"
        if self.error is not None:
            raise self.error
        return self.offset


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition: waiting, under way, and to be sent again, in order."""

    partition: TopicPartition
    waiting: deque[Batch] = field(default_factory=deque)
    retries: list[Batch] = field(default_factory=list)
    in_flight: list[Batch] = field(default_factory=list)
    node: int = -1
    # Without a leader the partition is not looked at again before this moment.
    blocked_until: float = 0.0
    searches: int = 0
    identity: Identity | None = None
    next_sequence: int = 0
    # The identity whose batches the leader has taken, and whose sequence it therefore checks.
    known_as: Identity | None = None

    def put_back(self, batch: Batch) -> None:
        """Queue a batch that was sent before, at its place in the order."""
        self.retries.append(batch)
        self.retries.sort(key=_order)

    def stamp(self, batch: Batch, identity: Identity) -> None:
        """The next sequence numbers; they begin again at 0 under a new identity."""
        if self.identity != identity:
            self.identity = identity
            self.next_sequence = 0
        batch.stamp(identity, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.record_count) & 0x7FFFFFFF

    def precedes(self, batch: Batch) -> bool:
        """True where an earlier batch of the same identity has no answer yet."""
        return any(
            other.order < batch.order and other.identity == batch.identity
            for other in (*self.retries, *self.in_flight)
        )


def _order(batch: Batch) -> tuple[int, ...]:
    return batch.order


def split(batch: Batch) -> tuple[Batch, Batch]:
    """Two halves of a batch that the broker found too large, with its sequence numbers kept."""
    batch.unpack()
    middle = len(batch.records) // 2
    first = _half(batch, 0, batch.records[:middle], batch.base_sequence)
    second = _half(batch, 1, batch.records[middle:], batch.base_sequence + middle)
    second.size_bytes = batch.size_bytes - first.size_bytes
    batch.halves = (first, second)
    return first, second


def _half(batch: Batch, side: int, records: list[Record], sequence: int) -> Batch:
    half = Batch(batch.partition, (*batch.order, side), batch.created, batch.deadline)
    half.records = records
    half.transactional = batch.transactional
    half.size_bytes = batch.size_bytes * len(records) // len(batch.records)
    if batch.identity is not None:
        half.stamp(batch.identity, sequence & 0x7FFFFFFF)
    return half
