"""What a coordinator knows of one transactional id, and which states follow each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.coordinators.transactions.records import (
    PartitionsSchema,
    TransactionLogValue,
    TransactionRecord,
)
from tidelog.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

# The epoch above is kept free: with it a producer in the last epoch can still be fenced.
EPOCH_LAST: Final = 32_766
NO_TIME: Final = -1
# The time-out of a transaction that no time-out ends (KIP-939); so it stands in Kafka's records.
NO_TIMEOUT_MS: Final = (1 << 31) - 1


class Producer(NamedTuple):
    """Under which id and epoch somebody writes."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NOBODY: Final = Producer()


class Coming(NamedTuple):
    """How a producer begins, or goes on after an error: then it says what it `expected` to be.

    One that is `two_phase` (KIP-939) leaves its transactions to somebody else: no time-out ends
    them. One that `keeps` does not abort what those before it left open, but takes it over.
    """

    timeout_ms: int
    expected: Producer = NOBODY
    two_phase: bool = False
    keeps: bool = False
    # Whose ids count together; empty where nobody has logged in.
    user: str = ""


class State(IntEnum):
    """The states of a transactional id, by Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def is_decided(self) -> bool:
        """Committed or aborted, and not yet in all of its partitions."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def shown(self) -> str:
        """Kafka's word for it."""
        return _SHOWN[self]


_SHOWN: Final = {
    state: "".join(part.capitalize() for part in state.name.split("_")) for state in State
}
STATES: Final = {state.shown: state for state in State}
# What clients may ask for by name and no id is ever in.
UNUSED_STATES: Final = frozenset({"Dead", "PrepareEpochFence"})

# From which states each may be reached; a new id begins empty.
_BEFORE: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
    State.ONGOING: frozenset(
        {State.ONGOING, State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}
    ),
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    # An abort of nothing raises the epoch alone.
    State.PREPARE_ABORT: frozenset(
        {State.ONGOING, State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}
    ),
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
}

_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


@dataclass(slots=True, eq=False)
class Transaction:
    """One transactional id. `replay` alone changes what is kept."""

    transactional_id: str
    producer_id: int = NO_PRODUCER_ID
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int = 0
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = _NO_PARTITIONS
    updated_ms: int = NO_TIME
    started_ms: int = NO_TIME
    client_version: int = 0
    # Which epoch a producer held that has been given this one: it may ask again. Not in the log.
    last_epoch: int = NO_PRODUCER_EPOCH
    # Records that raise the epoch and are not committed yet; and of this load's tail.
    unsettled: int = 0
    story: tuple[State, ...] = ()

    @property
    def is_exhausted(self) -> bool:
        """Whether this id of the producer has no epoch left to give out."""
        return self.producer_epoch >= EPOCH_LAST

    @property
    def writer(self) -> Producer:
        """Under which id and epoch the open transaction was written, or the next one will be."""
        return Producer(self.producer_id, self.producer_epoch)

    @property
    def latest(self) -> Producer:
        """Who may act for the transactional id: in an open transaction that was taken over, not
        its writer."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.writer
        # Where the epochs of an id are used up, its successor begins anew.
        return Producer(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def is_kept(self) -> bool:
        """Whether somebody has taken over the open transaction, to end it."""
        return self.state is State.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def has_timeout(self) -> bool:
        return self.timeout_ms != NO_TIMEOUT_MS

    def replay(self, value: TransactionLogValue, *, is_loading: bool) -> None:
        """Become what a record says.

        While a log is loaded, compaction may have taken what was in between.
        """
        state = State(value.transaction_status)
        assert is_loading or self.state in _BEFORE[state], (
            f"{self.transactional_id} goes from {self.state.name} to {state.name},"
            f" after {[each.name for each in self.story]}"
        )
        self.story = (*self.story[-4:], self.state)
        self.state = state
        self.producer_id = value.producer_id
        self.previous_producer_id = value.previous_producer_id
        self.next_producer_id = value.next_producer_id
        self.producer_epoch = value.producer_epoch
        self.next_producer_epoch = value.next_producer_epoch
        self.timeout_ms = value.transaction_timeout_ms
        named = value.transaction_partitions
        self.partitions = (
            frozenset(TopicPartition(each.topic, at) for each in named for at in each.partition_ids)
            if named
            else _NO_PARTITIONS
        )
        self.updated_ms = value.transaction_last_update_timestamp_ms
        self.started_ms = value.transaction_start_timestamp_ms
        self.client_version = value.client_transaction_version

    def value(self, state: State, now_ms: int) -> TransactionLogValue:
        """The same in another state, to be changed in what differs."""
        return TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=state,
            transaction_partitions=None if state is State.EMPTY else by_topic(self.partitions),
            transaction_last_update_timestamp_ms=now_ms,
            transaction_start_timestamp_ms=self.started_ms,
        )

    def record(self, value: TransactionLogValue) -> TransactionRecord:
        return TransactionRecord(self.transactional_id, value)


def by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    """Partitions in order, those of a topic together."""
    found: dict[str, PartitionsSchema] = {}
    for each in sorted(partitions):
        found.setdefault(each.topic, PartitionsSchema(each.topic, [])).partition_ids.append(
            each.partition
        )
    return list(found.values())
