"""The transactional ids of one partition of `__transaction_state`: a pure state machine.

Handlers look at the state and return an `Outcome`: an answer and records; `replay` applies a
record, and loading is replay of all. There is no clock here and nothing is awaited.

What is promised:

- A decision that is in the log is never taken back. Once it is committed, `decided` is called, and
  again after every load, until `complete` has written the end.
- An epoch is raised by a record, and neither given out nor raised again before that one is
  committed. The last epoch of a producer id is kept for fencing; behind it a new id follows, which
  takes over when the markers of the old one are written.
- In version 2 (KIP-890) every end raises the epoch, so that what is late can be told from what
  follows; the answer to an end that is asked for again is the same. Ends in version 1 keep it.
- A transaction that outlives its time-out is aborted, and its producer fenced. One that is
  two-phase (KIP-939) has none. Whoever takes it over gets an epoch beside that of its writer, in
  which it is ended; so the writer is fenced, and the markers still follow the epoch that wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from tidelog.cluster.changes import Change
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.producer_ids import ProducerIdMissingError
from tidelog.coordinators.shares import Shares
from tidelog.coordinators.timers import Now, TimerQueue
from tidelog.coordinators.transactions.ends import Ending, end_in_version_1, end_in_version_2
from tidelog.coordinators.transactions.records import TransactionLogValue, TransactionRecord
from tidelog.coordinators.transactions.settings import TransactionSettings
from tidelog.coordinators.transactions.standing import Standing
from tidelog.coordinators.transactions.stats import TransactionStats
from tidelog.coordinators.transactions.transaction import (
    EPOCH_LAST,
    NO_TIME,
    NO_TIMEOUT_MS,
    NOBODY,
    Coming,
    Producer,
    State,
    Transaction,
    by_topic,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

RETRY_MS: Final = 1_000
# Ids that expire at a stretch.
_EXPIRED_AT_ONCE: Final = 500


class Answer(NamedTuple):
    """What a producer is told."""

    code: ErrorCode
    producer: Producer = NOBODY
    # Who wrote the open transaction that was taken over.
    ongoing: Producer = NOBODY


@dataclass(slots=True, frozen=True)
class Decision:
    """A transaction that has to end so in every one of its partitions."""

    transactional_id: str
    producer: Producer
    committed: bool
    partitions: frozenset[TopicPartition]
    coordinator_epoch: int
    version: int


class Timer(NamedTuple):
    """One deadline: the time-out of an id's transaction or, without an id, when to look for ids
    that have expired."""

    transactional_id: str | None = None


@dataclass(slots=True, frozen=True)
class ShardTools:
    """What a shard needs of the world."""

    settings: TransactionSettings
    # None where none is at hand.
    take_producer_id: Callable[[], int | None]
    # For how long the broker has run since this wall time.
    age_of: Callable[[], Callable[[int], int]]
    decided: Callable[[Decision], None]
    # The transaction has come to its end: the next one may begin.
    completed: Callable[[str], None]
    stats: TransactionStats


class TransactionShard:
    """The coordinator of some transactional ids."""

    def __init__(self, coordinator_epoch: int, tools: ShardTools) -> None:
        self.coordinator_epoch = coordinator_epoch
        self.timers: TimerQueue[Timer] = TimerQueue()
        self.transactions: dict[str, Transaction] = {}
        self._shares = Shares(self.transactions.__contains__)
        self._tools = tools
        self._is_loaded = False

    # Producers come

    def init(self, transactional_id: str, coming: Coming, now: Now) -> Outcome:
        """A producer begins, or goes on after an error.

        The answer is CONCURRENT_TRANSACTIONS where a transaction has to end first, which it does.
        """
        refused = _refusal(coming, self._tools.settings)
        if refused is not None:
            return Outcome(Answer(refused))
        known = self.transactions.get(transactional_id)
        if known is None:
            if not self._has_room(transactional_id, coming.user):
                return Outcome(Answer(ErrorCode.POLICY_VIOLATION))
            known = Transaction(transactional_id, producer_id=self._new_producer_id())
        elif known.unsettled:
            return Outcome(Answer(ErrorCode.CONCURRENT_TRANSACTIONS))
        elif coming.expected != NOBODY and not _may_go_on(known, coming):
            return Outcome(Answer(ErrorCode.PRODUCER_FENCED))
        if known.state.is_decided:
            return Outcome(Answer(ErrorCode.CONCURRENT_TRANSACTIONS))
        if known.state is not State.ONGOING:
            return self._raise_epoch(known, coming, now)
        return self._take_over(known, now) if coming.keeps else self._fence(known, now, "fencing")

    def _has_room(self, transactional_id: str, user: str) -> bool:
        """Whether there may be another id, of all users and of this one."""
        settings = self._tools.settings
        if len(self.transactions) >= settings.ids_max:
            return False
        return not user or self._shares.take(user, transactional_id, settings.ids_of_user_max)

    def _raise_epoch(self, known: Transaction, coming: Coming, now: Now) -> Outcome:
        """An id without an open transaction goes on in a new epoch, or as a new producer."""
        expected = coming.expected
        value = known.value(State.EMPTY, now.wall_ms)
        value.transaction_timeout_ms = NO_TIMEOUT_MS if coming.two_phase else coming.timeout_ms
        value.transaction_start_timestamp_ms = NO_TIME
        last_epoch = NO_PRODUCER_EPOCH if expected == NOBODY else known.producer_epoch
        if known.is_exhausted and expected.epoch in (NO_PRODUCER_EPOCH, known.producer_epoch):
            value.producer_id, value.producer_epoch = self._new_producer_id(), 0
        elif expected == NOBODY or known.producer_epoch in (NO_PRODUCER_EPOCH, expected.epoch):
            value.producer_epoch = known.producer_epoch + 1
        elif expected.epoch == known.last_epoch:
            # The answer was lost: it is given again.
            last_epoch = known.last_epoch
        else:
            return Outcome(Answer(ErrorCode.PRODUCER_FENCED))
        assert 0 <= value.producer_epoch <= EPOCH_LAST, f"epoch {value.producer_epoch}"
        answer = Answer(ErrorCode.NONE, Producer(value.producer_id, value.producer_epoch))
        return self._change(known, value, answer, last_epoch)

    def _take_over(self, known: Transaction, now: Now) -> Outcome:
        """What is open stays so, and can be ended by whoever asks now and by nobody before."""
        value = known.value(State.ONGOING, now.wall_ms)
        value.transaction_timeout_ms = NO_TIMEOUT_MS
        value.next_producer_id, value.next_producer_epoch = taken = self._after(known.latest)
        answer = Answer(ErrorCode.NONE, taken, known.writer)
        return self._change(known, value, answer, NO_PRODUCER_EPOCH)

    def _after(self, producer: Producer) -> Producer:
        """The next epoch, or the first one of a new id."""
        if producer.epoch >= EPOCH_LAST:
            return Producer(self._new_producer_id(), 0)
        return Producer(producer.producer_id, producer.epoch + 1)

    def _new_producer_id(self) -> int:
        taken = self._tools.take_producer_id()
        if taken is None:
            raise ProducerIdMissingError
        return taken

    # Partitions

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        now: Now,
    ) -> Outcome:
        """The answer is a code for all of them."""
        known = self._find(transactional_id, producer)
        if isinstance(known, ErrorCode):
            return Outcome(known)
        if known.state.is_decided or known.unsettled:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.is_kept:
            return Outcome(ErrorCode.INVALID_TXN_STATE)
        begins = known.state is not State.ONGOING
        if not begins and known.partitions.issuperset(partitions):
            return Outcome(ErrorCode.NONE)
        value = known.value(State.ONGOING, now.wall_ms)
        value.transaction_partitions = by_topic(known.partitions.union(partitions))
        if begins:
            value.transaction_start_timestamp_ms = now.wall_ms

        def appended() -> None:
            if begins:
                self._tools.stats.begun += 1
            if begins and known.has_timeout:
                self.timers.schedule(Timer(transactional_id), now.ms + known.timeout_ms)

        return Outcome(ErrorCode.NONE, [known.record(value)], appended)

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> Outcome:
        """The answer is a code for each of them: is it in the transaction that is open?"""
        known = self._find(transactional_id, producer)
        if not isinstance(known, ErrorCode) and (known.state.is_decided or known.unsettled):
            known = ErrorCode.CONCURRENT_TRANSACTIONS
        elif not isinstance(known, ErrorCode) and known.is_kept:
            known = ErrorCode.INVALID_TXN_STATE
        if isinstance(known, ErrorCode):
            return Outcome(dict.fromkeys(partitions, known))
        held = known.partitions if known.state is State.ONGOING else ()
        return Outcome(
            {
                each: ErrorCode.NONE if each in held else ErrorCode.TRANSACTION_ABORTABLE
                for each in partitions
            }
        )

    def _find(self, transactional_id: str, producer: Producer) -> Transaction | ErrorCode:
        known = self.transactions.get(transactional_id)
        acts = None if known is None else known.latest if known.is_kept else known.writer
        if known is None or acts is None or acts.producer_id != producer.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if acts.epoch != producer.epoch:
            return ErrorCode.PRODUCER_FENCED
        return known

    # Ends

    def end(self, transactional_id: str, producer: Producer, ending: Ending, now: Now) -> Outcome:
        """A producer commits or aborts; the answer comes when the decision is committed."""
        known = self.transactions.get(transactional_id)
        if known is None:
            return Outcome(Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        judge = end_in_version_2 if ending.version >= 2 else end_in_version_1
        code = judge(known, producer, ending)
        if code is ErrorCode.NONE:
            # It was done before, and the answer was lost.
            return Outcome(Answer(code, known.latest))
        if code is not None:
            return Outcome(Answer(code))
        return self._decide(known, ending, now)

    def _decide(self, known: Transaction, ending: Ending, now: Now) -> Outcome:
        value = self._decision(known, ending.committed, now)
        value.client_transaction_version = ending.version if ending.version >= 2 else 0
        goes_on, last_epoch = known.latest, known.last_epoch
        if ending.version >= 2:
            goes_on, last_epoch = self._after(known.latest), known.producer_epoch
            value.producer_epoch = known.producer_epoch + 1
        if goes_on != (value.producer_id, value.producer_epoch):
            value.next_producer_id, value.next_producer_epoch = goes_on
        cause = "" if ending.committed else "producer"
        return self._change(known, value, Answer(ErrorCode.NONE, goes_on), last_epoch, cause)

    def _fence(self, known: Transaction, now: Now, cause: str) -> Outcome:
        """Abort what is open; its producer cannot go on, nor learn of the epoch that follows."""
        assert known.producer_epoch <= EPOCH_LAST, f"epoch {known.producer_epoch} was given out"
        value = self._decision(known, False, now)
        value.producer_epoch = known.producer_epoch + 1
        if known.is_kept:
            latest = known.latest
            value.next_producer_id, value.next_producer_epoch = latest.producer_id, latest.epoch + 1
        value.client_transaction_version = 2
        answer = Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        return self._change(known, value, answer, NO_PRODUCER_EPOCH, cause)

    def _decision(self, known: Transaction, committed: bool, now: Now) -> TransactionLogValue:
        state = State.PREPARE_COMMIT if committed else State.PREPARE_ABORT
        value = known.value(state, now.wall_ms)
        if known.state is not State.ONGOING:
            value.transaction_start_timestamp_ms = now.wall_ms
        return value

    def _change(
        self,
        known: Transaction,
        value: TransactionLogValue,
        answer: Answer,
        last_epoch: int,
        cause: str = "",
    ) -> Outcome:
        """A record that raises an epoch, or decides: nothing else until it is committed.

        `cause` tells why a transaction is aborted.
        """

        def appended() -> None:
            stats, status = self._tools.stats, value.transaction_status
            stats.committed += status == State.PREPARE_COMMIT
            if status == State.PREPARE_ABORT:
                stats.aborted_by[cause] += 1
            entry = self.transactions[known.transactional_id]
            entry.last_epoch = last_epoch
            entry.unsettled += 1
            if entry.state is not State.ONGOING or not entry.has_timeout:
                self.timers.cancel(Timer(entry.transactional_id))

        return Outcome(
            answer, [known.record(value)], appended, partial(self._settled, known.transactional_id)
        )

    def _settled(self, transactional_id: str) -> None:
        known = self.transactions[transactional_id]
        known.unsettled -= 1
        assert known.unsettled >= 0, f"{transactional_id} was settled more often than it changed"
        if known.state.is_decided and not known.unsettled:
            self._tools.decided(self._decision_of(known))

    def _decision_of(self, known: Transaction) -> Decision:
        return Decision(
            known.transactional_id,
            known.writer,
            known.state is State.PREPARE_COMMIT,
            known.partitions,
            self.coordinator_epoch,
            known.client_version,
        )

    def complete(self, decision: Decision, now: Now) -> Outcome:
        """Every partition has the marker; the answer is whether this was still to be written."""
        known = self.transactions.get(decision.transactional_id)
        if known is None or not known.state.is_decided or known.unsettled:
            return Outcome(False)
        if self._decision_of(known) != decision:
            return Outcome(False)
        state = State.COMPLETE_COMMIT if decision.committed else State.COMPLETE_ABORT
        value = known.value(state, now.wall_ms)
        value.transaction_partitions = []
        value.client_transaction_version = known.client_version
        value.producer_id, value.producer_epoch = known.latest
        last_epoch = known.producer_epoch if known.client_version >= 2 else known.last_epoch
        if known.next_producer_id != NO_PRODUCER_ID:
            last_epoch = NO_PRODUCER_EPOCH

        def appended() -> None:
            known.last_epoch = last_epoch
            self._tools.completed(decision.transactional_id)

        return Outcome(True, [known.record(value)], appended)

    # Time

    def due(self, now: Now) -> Iterator[Outcome]:
        for timer in self.timers.due(now.ms):
            if timer.transactional_id is None:
                yield from self._expire(now)
                continue
            known = self.transactions.get(timer.transactional_id)
            if known is not None and known.state is State.ONGOING:
                # Where it cannot be written now, it is tried again.
                self.timers.schedule(timer, now.ms + RETRY_MS)
                yield self._fence(known, now, "time-out")

    def _expire(self, now: Now) -> Iterator[Outcome]:
        """Forget ids that nobody has used for long; never one with a transaction open."""
        settings = self._tools.settings
        self.timers.schedule(Timer(), now.ms + settings.expiry_interval_ms)
        age_of = self._tools.age_of()
        expired = [
            TransactionRecord(each.transactional_id, None)
            for each in self.transactions.values()
            if each.state in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
            and not each.unsettled
            and age_of(each.updated_ms) >= settings.expiration_ms
        ]
        for start in range(0, len(expired), _EXPIRED_AT_ONCE):
            yield Outcome(None, expired[start : start + _EXPIRED_AT_ONCE])

    def stand(self, standing: Standing) -> None:
        """Tell how the open ones stand."""
        standing.add(self.transactions.values(), self._tools.age_of())

    # Replay

    def replay(self, record: TransactionRecord) -> None:
        """Apply one record of the log, in its order."""
        if record.value is None:
            self.transactions.pop(record.transactional_id, None)
            return
        known = self.transactions.get(record.transactional_id)
        if known is None:
            known = self.transactions[record.transactional_id] = Transaction(
                record.transactional_id
            )
        known.replay(record.value, is_loading=not self._is_loaded)

    def replay_pending(self, record: TransactionRecord, producer_id: int) -> None:
        raise AssertionError(f"producer {producer_id} wrote to the log of transactions")

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        raise AssertionError(f"a marker of producer {producer_id} in the log of transactions")

    def loaded(self, now: Now) -> Iterator[Outcome]:
        """All was replayed. Nothing is decided or raised before all that is committed, too."""
        self._is_loaded = True
        self.timers.schedule(Timer(), now.ms + self._tools.settings.expiry_interval_ms)
        age_of = self._tools.age_of()
        for each in self.transactions.values():
            each.unsettled = 1
            if each.state is State.ONGOING and each.has_timeout:
                left_ms = each.timeout_ms - min(age_of(each.started_ms), each.timeout_ms)
                self.timers.schedule(Timer(each.transactional_id), now.ms + left_ms)
        # Ids that come before the tail is committed settle by their own records.
        yield Outcome(committed=partial(self._tail_committed, list(self.transactions)))

    def _tail_committed(self, found: Sequence[str]) -> None:
        for transactional_id in found:
            self._settled(transactional_id)

    def changed(self, changes: Sequence[Change]) -> Iterator[Outcome]:
        return iter(())

    def abandon(self, error: KafkaError) -> None:
        """Another broker has these ids now; whoever waits for an end is told by its own clock."""


def _refusal(coming: Coming, settings: TransactionSettings) -> ErrorCode | None:
    """Why a producer cannot come like this, whatever its id is."""
    if coming.keeps and not coming.two_phase:
        return ErrorCode.INVALID_REQUEST
    if coming.two_phase:
        allowed = settings.is_two_phase_enabled
        return None if allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not 0 < coming.timeout_ms <= settings.timeout_max_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return None


def _may_go_on(known: Transaction, coming: Coming) -> bool:
    """Whether a producer that names itself may be the current one, or the one before it.

    One that is two-phase must be the current one: what somebody else decides about is not aborted
    by a request that was late, and nobody else is given the same epoch.
    """
    expected = coming.expected
    if coming.two_phase:
        return expected == known.latest
    if expected.producer_id == known.producer_id:
        return True
    return expected.producer_id == known.previous_producer_id and expected.epoch >= EPOCH_LAST
