"""What the logs of a world say of transactions, batch by batch, and what must hold of it.

A `Story` goes along one log of records or of offsets (I14, I15, I17 to I19), a `Decisions` along
one log of a coordinator (I21). Every replica's log has one, also what is not committed of it: a
leader writes nothing that it may not, whatever becomes of it. `Truth` is what all of them together
must agree on.

Each record says to which transaction it belongs: its key does or, for an offset, its metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.sim.ghost import Violation
from tidelog.cluster.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.coordinators.groups import records as group_records
from tidelog.coordinators.transactions.records import TransactionLogValue, decode_record
from tidelog.coordinators.transactions.transaction import State
from tidelog.model import TopicPartition
from tidelog.protocol.batches import BatchHeader, Record, decode_records, iterate_batches
from tidelog.storage.producers import EndMarker, read_marker

# How each decision ends, and what follows what.
_ENDS = {
    State.PREPARE_COMMIT: State.COMPLETE_COMMIT,
    State.PREPARE_ABORT: State.COMPLETE_ABORT,
}


class Entry(NamedTuple):
    """One batch: its records, or the marker that it is."""

    header: BatchHeader
    marker: EndMarker | None
    records: list[Record]


def entries(data: bytes | bytearray | memoryview) -> Iterator[Entry]:
    for position, header in iterate_batches(data):
        batch = bytes(data[position : position + header.size_bytes])
        if header.is_control:
            yield Entry(header, read_marker(batch, header), [])
        else:
            yield Entry(header, None, decode_records(batch))


class Piece(NamedTuple):
    """A record of a transaction: where it is, to which transaction it belongs, what it says."""

    offset: int
    transaction: str
    value: int
    # The group whose offset it is.
    group: str = ""


def pieces(topic: str, entry: Entry) -> list[Piece]:
    """What a transactional batch holds."""
    if topic != OFFSETS_TOPIC:
        return [
            Piece(each.offset, bytes(each.key or b"").decode(), int(bytes(each.value or b"0")))
            for each in entry.records
        ]
    found = []
    for each in entry.records:
        record = group_records.decode_record(each.key, each.value)
        if record is not None and isinstance(record.value, group_records.OffsetCommitValue):
            assert isinstance(record.key, group_records.OffsetCommitKey)
            value = record.value
            found.append(Piece(each.offset, value.metadata, value.offset, record.key.group))
    return found


class Decided(NamedTuple):
    """A decision that is committed in a coordinator's log."""

    committed: bool
    version: int


@dataclass(slots=True)
class Truth:
    """What no two logs may tell differently."""

    # By transaction: whether it was committed.
    fates: dict[str, bool] = field(default_factory=dict)
    # By producer id and the epoch of the markers.
    decided: dict[tuple[int, int], set[Decided]] = field(default_factory=dict)
    # The ids and epochs in committed records, by transactional id.
    recorded: dict[str, set[tuple[int, int]]] = field(default_factory=dict)


@dataclass(slots=True)
class Open:
    """A transaction that has no end yet in this log."""

    epoch: int
    held: list[Piece]


class Story:
    """A log of records, or of offsets, from its start on."""

    def __init__(self, name: TopicPartition, truth: Truth) -> None:
        self.name = name
        self.end = 0
        self.open: dict[int, Open] = {}
        # What readers of committed records are to be given: by offset.
        self.visible: dict[int, Piece] = {}
        self._truth = truth
        self._epochs: dict[int, int] = {}
        self._sequences: dict[tuple[int, int], int] = {}
        self._coordinators: dict[int, int] = {}
        self._over: set[str] = set()

    @property
    def stable(self) -> int:
        """Up to where every transaction has ended."""
        return min((each.held[0].offset for each in self.open.values() if each.held),
                   default=self.end)  # fmt: skip

    def take(self, entry: Entry) -> None:
        header = entry.header
        self.end = header.last_offset + 1
        if header.producer_id < 0:
            return
        self._check_epoch(header)
        if entry.marker is not None:
            self._ended(entry.marker)
        elif not header.is_control:
            if header.base_sequence >= 0:
                self._check_sequence(header)
            if header.is_transactional:
                self._goes_on(header, pieces(self.name.topic, entry))

    def _at(self, header: BatchHeader) -> str:
        return f"{self.name}@{header.base_offset}: producer {header.producer_id}"

    def _check_epoch(self, header: BatchHeader) -> None:
        known = self._epochs.get(header.producer_id, -1)
        if header.producer_epoch < known:
            what = f"{self._at(header)} has epoch {header.producer_epoch} after {known}"
            raise Violation("I15 epochs", what)
        self._epochs[header.producer_id] = header.producer_epoch

    def _check_sequence(self, header: BatchHeader) -> None:
        key = (header.producer_id, header.producer_epoch)
        expected = self._sequences.get(key, 0)
        if header.base_sequence != expected:
            what = f"{self._at(header)} has sequence {header.base_sequence}, not {expected}"
            raise Violation("I14 sequences", what)
        self._sequences[key] = header.last_sequence + 1

    def _goes_on(self, header: BatchHeader, held: list[Piece]) -> None:
        going = self.open.setdefault(header.producer_id, Open(header.producer_epoch, []))
        if going.epoch != header.producer_epoch:
            what = f"{self._at(header)} goes on in epoch {header.producer_epoch} of {going.epoch}"
            raise Violation("I18 nothing behind its end", what)
        for each in held:
            if each.transaction in self._over:
                what = f"{self._at(header)} writes for {each.transaction}, which has ended here"
                raise Violation("I18 nothing behind its end", what)
            if going.held and going.held[0].transaction != each.transaction:
                what = (
                    f"{self._at(header)} writes for {each.transaction} into the transaction"
                    f" {going.held[0].transaction}"
                )
                raise Violation("I18 nothing behind its end", what)
            going.held.append(each)

    def _ended(self, marker: EndMarker) -> None:
        header = marker.header
        producer_id, epoch = header.producer_id, header.producer_epoch
        known = self._coordinators.get(producer_id, -1)
        if marker.coordinator_epoch < known:
            what = f"{self._at(header)} is ended by coordinator {marker.coordinator_epoch}"
            raise Violation("I19 markers", f"{what}, after {known}")
        self._coordinators[producer_id] = marker.coordinator_epoch
        decided = self._truth.decided.get((producer_id, epoch), set())
        if not any(each.committed == marker.committed for each in decided):
            what = f"{self._at(header)} ends in epoch {epoch}, committed={marker.committed}"
            raise Violation("I17 atomic", f"{what}, and that was decided: {decided}")
        going = self.open.pop(producer_id, None)
        if going is None:
            return
        if going.epoch == epoch and all(each.version >= 2 for each in decided):
            what = f"{self._at(header)} is ended in the epoch of its data, {epoch}"
            raise Violation("I19 markers", what)
        self._settle(going, marker)

    def _settle(self, going: Open, marker: EndMarker) -> None:
        for each in going.held:
            self._over.add(each.transaction)
            fate = self._truth.fates.setdefault(each.transaction, marker.committed)
            if fate != marker.committed:
                what = f"{self._at(marker.header)}: {each.transaction} is committed"
                raise Violation(
                    "I17 atomic", f"{what}={marker.committed} here and {fate} elsewhere"
                )
            if marker.committed:
                self.visible[each.offset] = each


class Decisions:
    """The log of a coordinator: a decision is followed by its own end and nothing else."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.end = 0
        self.states: dict[str, TransactionLogValue] = {}

    def take(self, entry: Entry) -> None:
        self.end = entry.header.last_offset + 1
        for each in entry.records:
            record = decode_record(each.key, each.value)
            if record is None:
                continue
            known = self.states.get(record.transactional_id)
            self._check(
                f"{self.name}@{each.offset}: {record.transactional_id}", known, record.value
            )
            if record.value is None:
                self.states.pop(record.transactional_id, None)
            else:
                self.states[record.transactional_id] = record.value

    def _check(
        self, where: str, known: TransactionLogValue | None, value: TransactionLogValue | None
    ) -> None:
        was = State.EMPTY if known is None else State(known.transaction_status)
        now = State.EMPTY if value is None else State(value.transaction_status)
        is_end = now in _ENDS.values()
        if (was in _ENDS or is_end) and _ENDS.get(was) is not now:
            raise Violation("I21 decisions stand", f"{where} goes from {was.name} to {now.name}")
        if was is State.ONGOING and (value is None or now is State.EMPTY):
            raise Violation("I21 decisions stand", f"{where} is forgotten while it is open")
        if known is None or value is None or known.producer_id != value.producer_id:
            return
        if value.producer_epoch < known.producer_epoch:
            what = f"{where} has epoch {value.producer_epoch} after {known.producer_epoch}"
            raise Violation("I15 epochs", what)

    @property
    def open(self) -> str:
        """An id with a transaction that has not come to its end."""
        for name, value in self.states.items():
            state = State(value.transaction_status)
            if state is State.ONGOING or state in _ENDS:
                return f"{name} is in {state.name}: {value}"
        return ""


def learn(truth: Truth, entry: Entry) -> None:
    """What a committed batch of a coordinator's log says for good."""
    for each in entry.records:
        record = decode_record(each.key, each.value)
        if record is None or record.value is None:
            continue
        value = record.value
        producer = (value.producer_id, value.producer_epoch)
        known = truth.recorded.setdefault(record.transactional_id, set())
        known.add(producer)
        if value.next_producer_id >= 0:
            known.add((value.next_producer_id, 0))
        state = State(value.transaction_status)
        if state in _ENDS:
            decision = Decided(state is State.PREPARE_COMMIT, value.client_transaction_version)
            truth.decided.setdefault(producer, set()).add(decision)


def story_of(name: TopicPartition, truth: Truth) -> Story | Decisions:
    return Decisions(name) if name.topic == TRANSACTIONS_TOPIC else Story(name, truth)
