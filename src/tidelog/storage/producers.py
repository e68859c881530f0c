"""What a log remembers of its idempotent and transactional producers (KIP-98, KIP-360).

Per producer id: its epoch, its last five batches (so that a retry of any of them is answered with
the offsets of the first try), the epoch of its transaction coordinator, and the first offset of its
open transaction. Checks run before a batch is written, changes after it.

A producer that is not known may begin with any sequence, since its state may have expired; a new
epoch begins with 0. After a batch was refused for a reason that passes (a full disk), the batches
that its producer had already sent behind it get the same error, not OUT_OF_ORDER_SEQUENCE_NUMBER:
clients answer that one by a new epoch, and duplicates.

A producer is forgotten once the broker has run for `producer.id.expiration.ms` since it appended a
batch or a marker of it. The times in the batches do not count: a producer may well send old events.
What is kept for longer, of some of them, is the epoch of the coordinator (KAFKA-9144): one that was
deposed long ago must not end what its producer writes now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from tidelog.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from tidelog.model import LogPosition
from tidelog.protocol.batches import (
    ATTRIBUTES_LOG_APPEND_TIME,
    CONTROL_ABORT,
    CONTROL_COMMIT,
    BatchHeader,
    control_coordinator_epoch,
    control_record_type,
    decode_records,
)
from tidelog.storage.running_clock import Ages
from tidelog.storage.verification import Verification

BATCHES_KEPT = 5
_SEQUENCE_LAST = 2**31 - 1
_REFUSED_MAX = 10_000
_FORGOTTEN_MAX = 1_000
_NOT_DATED = -1
# Kafka does not compress markers; one that inflates to more is not one.
_MARKER_BYTES_MAX = 64 * 1024


@dataclass(slots=True)
class ProducerBatch:
    """One of a producer's last batches."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


def _batch_of(header: BatchHeader) -> ProducerBatch:
    return ProducerBatch(
        header.base_sequence,
        header.last_sequence,
        header.base_offset,
        header.base_offset + header.last_offset_delta,
        header.max_timestamp,
    )


@dataclass(slots=True)
class ProducerState:
    """One producer on one partition."""

    producer_id: int
    epoch: int = -1
    batches: list[ProducerBatch] = field(default_factory=list)
    coordinator_epoch: int = -1
    # The wall time at which this broker last appended a batch of it.
    last_append_ms: int = _NOT_DATED
    transaction_first_offset: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def duplicate_of(self, header: BatchHeader) -> ProducerBatch | None:
        """The earlier batch that this one repeats."""
        if header.producer_epoch != self.epoch or header.base_sequence < 0:
            # Coordinators number nothing, and repeat nothing.
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def add(self, header: BatchHeader) -> None:
        if header.producer_epoch != self.epoch:
            self.epoch = header.producer_epoch
            self.batches = []
        batches = self.batches
        if len(batches) >= BATCHES_KEPT:
            del batches[0]
        batches.append(_batch_of(header))
        assert len(batches) <= BATCHES_KEPT, f"{len(batches)} batches of {self.producer_id}"


@dataclass(slots=True)
class EndMarker:
    """A control record that ends a transaction, with the batch that carries it."""

    header: BatchHeader
    committed: bool
    coordinator_epoch: int


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


@dataclass(slots=True)
class CompletedTransaction:
    """A transaction whose marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerStates:
    """The producers of one log."""

    __slots__ = (
        "_forgotten", "_open", "_refused", "_undecided", "_verifications", "end_offset", "now_ms",
        "states",
    )  # fmt: skip

    def __init__(self) -> None:
        self.states: dict[int, ProducerState] = {}
        # The log's end as far as these states have seen it; what a snapshot file is named by.
        self.end_offset = 0
        # The wall time of what is appended now; not known of what is found in the log.
        self.now_ms = _NOT_DATED
        # First offset of each open transaction, in the order of the log.
        self._open: dict[int, LogPosition | None] = {}
        # Marker offsets of ended transactions above the high watermark, by their first offset.
        self._undecided: dict[int, tuple[int, LogPosition | None]] = {}
        self._refused: dict[int, tuple[int, int, ErrorCode]] = {}
        # The coordinator epochs of producers that have expired, the latest last.
        self._forgotten: dict[int, int] = {}
        # By producer, while somebody holds them.
        self._verifications: WeakValueDictionary[int, Verification] | None = None

    def idle_since(self, offset: int) -> ProducerStates:
        """The producers without a batch at or above `offset`, as they were there."""
        found = ProducerStates()
        found.end_offset = offset
        found.states = {
            state.producer_id: state
            for state in self.states.values()
            if all(batch.last_offset < offset for batch in state.batches)
        }
        return found

    # Checks, before the write

    def check(self, header: BatchHeader, *, from_client: bool = True) -> ProducerBatch | None:
        """Raise KafkaError unless the batch may follow; the first try where it is a repetition."""
        state = self.states.get(header.producer_id)
        if self._refused and from_client:
            self._check_refused(header, state)
        if state is None:
            return None
        if from_client:
            duplicate = state.duplicate_of(header)
            if duplicate is not None:
                return duplicate
        if header.producer_epoch < state.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {state.epoch},"
                f" the batch has {header.producer_epoch}",
            )
        if from_client:
            _check_sequence(header, state)
        if state.transaction_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open since offset"
                f" {state.transaction_first_offset}; the batch is not transactional",
            )
        return None

    def begin_verification(self, header: BatchHeader) -> Verification | None:
        """For a batch that would open a transaction; None where it is open already.

        KafkaError where the batch will be refused whatever the coordinator says.
        """
        state = self.states.get(header.producer_id)
        if self._refused:
            self._check_refused(header, state)
        if state is not None and not _opens_transaction(state, header):
            return None
        if self._verifications is None:
            self._verifications = WeakValueDictionary()
        known = self._verifications.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self._verifications[header.producer_id] = Verification(header.producer_epoch)
        return known

    def check_verified(self, header: BatchHeader, verification: Verification | None) -> None:
        """KafkaError where a transactional batch would open a transaction that may have ended."""
        state = self.states.get(header.producer_id)
        if state is not None and not _opens_transaction(state, header):
            return
        code: ErrorCode | None = ErrorCode.INVALID_TXN_STATE
        if verification is not None and verification.epoch == header.producer_epoch:
            code = verification.refusal
            if verification.begins_epoch and header.base_sequence > 0:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {header.producer_id} begins a transaction with sequence"
                    f" {header.base_sequence}, not 0",
                )
        if code is not None:
            raise KafkaError(
                code, f"the batch of producer {header.producer_id} is in no open transaction"
            )

    def void(self, producer_id: int, epoch: int, transaction_version: int) -> None:
        """A marker of the producer has come: what was verified before holds no more.

        In version 2 of the protocol a marker has the epoch behind the one that it ends, and a
        transaction in that epoch is the next: it may be verified while its leader still waits for
        this marker.
        """
        if not self._verifications:
            return
        known = self._verifications.get(producer_id)
        if known is not None and known.epoch + (transaction_version >= 2) <= epoch:
            known.refusal = ErrorCode.INVALID_TXN_STATE
            del self._verifications[producer_id]

    def void_all(self) -> None:
        """Who leads has changed. Whether the transactions are still open has to be asked again."""
        if self._verifications:
            for known in self._verifications.values():
                known.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
            self._verifications = None

    def was_ended_by(self, producer_id: int, epoch: int, coordinator_epoch: int) -> bool:
        """Whether the last that is known of a producer is this very marker."""
        state = self.states.get(producer_id)
        return (
            state is not None
            and state.transaction_first_offset < 0
            and (state.epoch, state.coordinator_epoch) == (epoch, coordinator_epoch)
        )

    def check_marker(self, marker: EndMarker, transaction_version: int) -> None:
        """Raise KafkaError where a transaction marker is late or its coordinator deposed."""
        header = marker.header
        state = self.states.get(header.producer_id)
        if state is None:
            _check_coordinator(marker, self._forgotten.get(header.producer_id, -1))
            return
        epoch = header.producer_epoch
        late = epoch < state.epoch
        if transaction_version >= 2 and state.transaction_first_offset >= 0:
            late = epoch <= state.epoch
        if late:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker of producer {header.producer_id} has epoch {epoch},"
                f" its data {state.epoch}",
            )
        _check_coordinator(marker, state.coordinator_epoch)

    def refuse(self, header: BatchHeader, code: ErrorCode) -> None:
        """Remember that a batch was refused for a passing reason, for those sent behind it."""
        refused = self._refused
        if len(refused) >= _REFUSED_MAX and header.producer_id not in refused:
            del refused[next(iter(refused))]
        known = refused.get(header.producer_id)
        if known is None or known[0] != header.producer_epoch:
            refused[header.producer_id] = (header.producer_epoch, header.base_sequence, code)

    def _check_refused(self, header: BatchHeader, state: ProducerState | None) -> None:
        refused = self._refused.get(header.producer_id)
        if refused is None or refused[0] != header.producer_epoch:
            return
        if header.base_sequence == refused[1]:
            return
        if state is not None and state.epoch == header.producer_epoch:
            if state.duplicate_of(header) is not None:
                return
            if _follows(state.last_sequence, header.base_sequence):
                return
        raise KafkaError(
            refused[2],
            f"sequence {header.base_sequence} of producer {header.producer_id} follows"
            f" {refused[1]}, which was refused",
        )

    # Changes, after the write

    def update(self, header: BatchHeader, segment_base_offset: int, position: int) -> None:
        """Take a written data batch into account, which begins at a position of a segment."""
        producer_id = header.producer_id
        state = self.states.get(producer_id) or self._begin(producer_id)
        state.add(header)
        state.last_append_ms = self._append_ms(header)
        if header.is_transactional and state.transaction_first_offset < 0:
            state.transaction_first_offset = header.base_offset
            self._open[header.base_offset] = LogPosition(
                header.base_offset, segment_base_offset, position
            )
        if self._refused:
            self._refused.pop(producer_id, None)

    def end_transaction(self, marker: EndMarker) -> CompletedTransaction | None:
        """Take a written marker into account; the transaction that it ended, if one was open."""
        header = marker.header
        producer_id = header.producer_id
        state = self.states.get(producer_id) or self._begin(producer_id)
        if header.producer_epoch != state.epoch:
            state.epoch = header.producer_epoch
            state.batches = []
        state.coordinator_epoch = marker.coordinator_epoch
        state.last_append_ms = self._append_ms(header)
        first_offset = state.transaction_first_offset
        if first_offset < 0:
            return None
        state.transaction_first_offset = -1
        self._undecided[first_offset] = (header.base_offset, self._open.pop(first_offset, None))
        return CompletedTransaction(
            producer_id, first_offset, header.base_offset, not marker.committed
        )

    def take_epoch(self, header: BatchHeader) -> None:
        """Learn the epoch from a marker that compaction emptied, kept for that alone."""
        if header.record_count:
            return
        state = self.states.get(header.producer_id) or self._begin(header.producer_id)
        if header.producer_epoch > state.epoch:
            state.epoch = header.producer_epoch
            state.batches = []
            state.last_append_ms = self._append_ms(header)

    def _begin(self, producer_id: int) -> ProducerState:
        """A producer that is not known, or no more."""
        state = self.states[producer_id] = ProducerState(producer_id)
        state.coordinator_epoch = self._forgotten.pop(producer_id, -1)
        return state

    def _append_ms(self, header: BatchHeader) -> int:
        """When a batch was appended, by the wall clock."""
        is_stamped = header.attributes & ATTRIBUTES_LOG_APPEND_TIME
        return header.max_timestamp if is_stamped else self.now_ms

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Ended transactions whose marker is below the watermark no longer hold readers back."""
        if not self._undecided:
            return
        for first_offset, (marker_offset, _) in list(self._undecided.items()):
            if marker_offset < high_watermark:
                del self._undecided[first_offset]

    # Queries

    @property
    def first_unstable_offset(self) -> int:
        """The first offset of any transaction that is open or not decided for readers; -1 none."""
        first = min(self._open, default=-1)
        if self._undecided:
            undecided = min(self._undecided)
            return undecided if first < 0 else min(first, undecided)
        return first

    def position_of(self, first_offset: int) -> LogPosition | None:
        """Where a transaction begins, if that is known without searching."""
        if first_offset in self._open:
            return self._open[first_offset]
        undecided = self._undecided.get(first_offset)
        return None if undecided is None else undecided[1]

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """The first offset that is still open once `completed` is; behind its marker if none."""
        others = [offset for offset in self._open if offset != completed.first_offset]
        return min(others, default=completed.last_offset + 1)

    # Maintenance

    def restore(self, states: list[ProducerState], end_offset: int) -> None:
        """Begin again from a snapshot."""
        self.clear(end_offset)
        for state in states:
            self.states[state.producer_id] = state
            if state.transaction_first_offset >= 0:
                self._open[state.transaction_first_offset] = None

    def widen(self, producer_id: int, headers: list[BatchHeader]) -> None:
        """Put the batches before a producer's last one back into its window."""
        state = self.states.get(producer_id)
        if state is None or not state.batches:
            return
        last = state.batches[-1]
        earlier = [
            header
            for header in headers
            if header.producer_epoch == state.epoch and header.last_offset < last.first_offset
        ]
        state.batches = [
            *(_batch_of(header) for header in earlier[1 - BATCHES_KEPT :]),
            last,
        ]

    def clear(self, end_offset: int) -> None:
        self.states.clear()
        self._open.clear()
        self._undecided.clear()
        self._refused.clear()
        self._forgotten.clear()
        self.end_offset = end_offset

    def date(self, now_ms: int) -> None:
        """Let producers that were found in the log age from now on: nobody knows since when."""
        for state in self.states.values():
            if state.last_append_ms == _NOT_DATED:
                state.last_append_ms = now_ms

    def expire(self, ages: Ages, expiration_ms: int) -> None:
        """Forget producers without a sign of life; open transactions are kept."""
        expired = [
            state.producer_id
            for state in self.states.values()
            if state.transaction_first_offset < 0
            and ages.age_ms(state.last_append_ms) >= expiration_ms
        ]
        for producer_id in expired:
            coordinator_epoch = self.states.pop(producer_id).coordinator_epoch
            if coordinator_epoch >= 0:
                self._forgotten[producer_id] = coordinator_epoch
        while len(self._forgotten) > _FORGOTTEN_MAX:
            del self._forgotten[next(iter(self._forgotten))]

    def drop_transactions_before(self, log_start_offset: int) -> None:
        """Data below the log's start is gone, and with it the transactions that began there."""
        for first_offset in [offset for offset in self._undecided if offset < log_start_offset]:
            del self._undecided[first_offset]


def _check_coordinator(marker: EndMarker, known_epoch: int) -> None:
    if marker.coordinator_epoch < known_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"coordinator epoch {marker.coordinator_epoch} is older than {known_epoch}",
        )


def _opens_transaction(state: ProducerState, header: BatchHeader) -> bool:
    """Whether a transactional batch would be the first of its transaction here.

    Of an old epoch it would not be taken, and for a repeated one nothing happens.
    """
    is_open = state.transaction_first_offset >= 0 and state.epoch == header.producer_epoch
    is_late = header.producer_epoch < state.epoch
    return not (is_late or is_open or state.duplicate_of(header) is not None)


def _follows(last_sequence: int, sequence: int) -> bool:
    return sequence == last_sequence + 1 or (sequence == 0 and last_sequence == _SEQUENCE_LAST)


def _check_sequence(header: BatchHeader, state: ProducerState) -> None:
    if header.producer_epoch != state.epoch:
        if header.base_sequence != 0 and state.epoch != -1:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} begins epoch {header.producer_epoch} with"
                f" sequence {header.base_sequence}, not 0",
            )
        return
    if not _follows(state.last_sequence, header.base_sequence):
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {header.base_sequence} after"
            f" {state.last_sequence}",
        )
