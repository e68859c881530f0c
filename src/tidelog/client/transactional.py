"""A producer whose records, and the offsets it commits, become visible together or not at all.

What is promised, beside what an idempotent producer promises:

- A commit succeeds only if every record and offset of the transaction is stored. After the first
  failure nothing more is sent, and only `abort` leads on.
- Nothing is sent again that could end, or get into, another transaction. In version 2 of the
  protocol every end raises the epoch. In version 1 one epoch lasts, so after any request without an
  answer the producer takes a new epoch before its next transaction: what is late is then refused.
- A producer that cannot go on says why: `transaction_faults`. Fenced, aborted by time-out and plain
  failures have the same codes on the wire, so the coordinator is asked how the id stands.

No socket, no thread: a shell drives it as any producer's core, and runs `init`, `commit`, `abort`,
`send_offsets` when nothing is under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from tidelog.client.batching import (
    Batch,
    Delivery,
    EncodedRecords,
    Identity,
    PartitionQueue,
    ProducerRecord,
)
from tidelog.client.coordinator import Coordinator
from tidelog.client.faults import ConnectError, NetworkError
from tidelog.client.group_admin import CoordinatorKind
from tidelog.client.metadata import Cluster
from tidelog.client.operation import Operation, Pause
from tidelog.client.producer import SEQUENCE_LOST, ProduceCall, ProducerCore
from tidelog.client.settings import ProducerSettings, TransactionSettings
from tidelog.client.transaction_faults import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionError,
    TransactionStateError,
)
from tidelog.client.transaction_verdict import Standing, Verdict, judge
from tidelog.client.transaction_view import try_describe
from tidelog.client.transactions import (
    REFUSED_ENDS,
    VERSION_2,
    GroupMetadata,
    Initialized,
    OffsetsToCommit,
    PreparedTransaction,
    Protocol,
    add_offsets,
    add_partitions,
    commit_transactional_offsets,
    end,
    init_producer,
    protocol_of,
)
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.host.random import Random
from tidelog.model import TopicPartition

_RENEWAL_LOOK_SECONDS: Final = 0.005
# What a broker says where the transaction is not open any more, for whatever reason.
_LOST: Final = REFUSED_ENDS | {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID}
_TIMED_OUT: Final = (
    "the coordinator aborted the transaction, which was open for longer than its time-out of {} ms:"
    " nothing of it is readable. Abort it here too and begin again, with less work in a transaction"
    " or a longer time-out"
)
_FORGOTTEN: Final = (
    "the coordinator does not know the id any more (transactional.id.expiration.ms): nothing of the"
    " transaction is readable. Abort it here too and begin again"
)


class Phase(Enum):
    """Where a transactional producer stands; the value completes `the transaction ...`."""

    NEW = "cannot begin before init"
    READY = "is not open: begin one"
    OPEN = "is open: commit or abort it first"
    # Whole and left to whoever ends it.
    PREPARED = "is prepared: commit or abort it first"
    FAILED = "has failed: abort it first"
    COMMITTING = "has a commit whose outcome is not known: commit again"
    ABORTING = "has an abort whose outcome is not known: abort again"
    FENCED = "belongs to another producer"


class TransactionalCore(ProducerCore):
    """Everything of a transactional producer but its sockets; see the module's docstring."""

    def __init__(
        self,
        transactions: TransactionSettings,
        settings: ProducerSettings,
        cluster: Cluster,
        random: Random,
    ) -> None:
        if not settings.idempotent:
            raise ValueError("a transactional producer is idempotent, and its acks are -1 (all)")
        super().__init__(settings, cluster, random)
        self.transactions = transactions
        self.phase = Phase.NEW
        self.protocol: Protocol = VERSION_2
        self._coordinator = Coordinator(transactions.transactional_id)
        # Of the group whose offsets were sent last.
        self._groups: Coordinator | None = None
        # What the coordinator may know of the open transaction: it has to be told how it ends.
        self._is_known = False
        self._added: set[TopicPartition] = set()
        self._added_groups: set[str] = set()
        self._began = 0.0
        # The first failure; what it means is found out when the transaction is to end.
        self._cause: TidelogError | None = None
        # A produce request or a batch of this transaction may come late, or is missing.
        self._has_stray = False
        # Somebody else may end it.
        self._is_left = False
        # Before anything more is sent, a new epoch is due, if we are still this producer.
        self._renews: Identity | None = None
        self._is_renewing = False

    # -- the parts of a producer that transactions change ---------------------------------------

    @property
    def needs_identity(self) -> bool:
        """False: `init` gets one, for all transactions to come."""
        return False

    def append(self, record: ProducerRecord, now: float) -> Delivery:
        """As a producer's; only while a transaction is open and whole."""
        self._require_open()
        return super().append(record, now)

    def append_encoded(
        self, partition: TopicPartition, payload: EncodedRecords, now: float
    ) -> None:
        """As a producer's; only while a transaction is open and whole."""
        self._require_open()
        super().append_encoded(partition, payload, now)

    def _open_batch(self, queue: PartitionQueue, now: float) -> Batch:
        batch = super()._open_batch(queue, now)
        batch.transactional = True
        return batch

    def prepare(self) -> Operation[None]:
        """Have what the next calls need; where that fails, the transaction has failed."""
        partitions = self._partitions_to_add()
        is_due = self._renews is not None and self.phase is Phase.OPEN and not self.idle
        if partitions or is_due:
            try:
                yield from self._renew()
                if partitions:
                    self._is_known = True
                    yield from add_partitions(
                        self.cluster, self._coordinator, self._producer, partitions
                    )
                    self._added |= partitions
            except TidelogError as error:
                self._fail(error)
        yield from super().prepare()

    def _partitions_to_add(self) -> set[TopicPartition]:
        if not self.protocol.adds_partitions or self.phase is not Phase.OPEN:
            return set()
        wanted = {tp for tp, queue in self._queues.items() if queue.waiting or queue.retries}
        return wanted - self._added

    def calls(self, now: float) -> list[ProduceCall]:
        """The requests to send now. Once the transaction has failed, what waits is dropped."""
        if self.phase is not Phase.OPEN:
            self._drop()
        return super().calls(now)

    def _ready(self, queue: PartitionQueue, now: float) -> Batch | None:
        if self.phase is not Phase.OPEN or self._renews is not None:
            return None
        if self.protocol.adds_partitions and queue.partition not in self._added:
            return None
        return super()._ready(queue, now)

    def _call(self, node: int, batches: list[Batch]) -> ProduceCall:
        self._is_known = True
        produce = super()._call(node, batches)
        call, versions = produce.call, self.protocol.produce
        call.message.transactional_id = self.transactions.transactional_id  # type: ignore[attr-defined]
        call.min_version = versions.oldest
        call.max_version = min(call.max_version, versions.newest)
        return produce

    def finish(self, produce: ProduceCall, outcome: object, now: float) -> None:
        """Report what became of a request."""
        if isinstance(outcome, NetworkError) and not isinstance(outcome, ConnectError):
            self._has_stray = True
        super().finish(produce, outcome, now)

    def _refused(self, batch: Batch, error: KafkaError, now: float) -> None:
        came_too_soon = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._queues[
            batch.partition
        ].precedes(batch)
        if error.code in SEQUENCE_LOST and not came_too_soon:
            # No fresh identity here: the transaction is bound to the one that it has.
            self._complete(batch, error)
        else:
            super()._refused(batch, error, now)

    def _retry(self, batch: Batch, error: TidelogError, now: float) -> None:
        if self.phase is Phase.OPEN:
            super()._retry(batch, error, now)
        else:
            self._complete(batch, error)

    def _complete(self, batch: Batch, error: TidelogError | None = None) -> None:
        super()._complete(batch, error)
        if error is not None:
            self._has_stray = True
            self._fail(error)

    def _drop(self) -> None:
        dropped = TransactionAbortableError(
            self.transactions.transactional_id, self._cause or "it is being aborted"
        )
        for queue in self._queues.values():
            unsent = [*queue.retries, *queue.waiting]
            queue.retries.clear()
            queue.waiting.clear()
            for batch in unsent:
                self._complete(batch, dropped)

    # -- the course of transactions ----------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True where a transaction waits for its end, and has not been left to others."""
        return self.phase in (Phase.OPEN, Phase.FAILED, Phase.ABORTING)

    @property
    def _producer(self) -> Identity:
        assert self.identity is not None, "init comes first"
        return self.identity

    @property
    def _transaction(self) -> PreparedTransaction:
        producer = self._producer
        return PreparedTransaction(
            self.transactions.transactional_id, producer.producer_id, producer.producer_epoch
        )

    def _require(self, *phases: Phase) -> None:
        if self.phase is Phase.FENCED and isinstance(self._cause, ProducerFencedError):
            raise ProducerFencedError(
                self.transactions.transactional_id,
                commit_unanswered=self._cause.committed is None,
            )
        if self.phase not in phases:
            raise TransactionStateError(
                self.transactions.transactional_id, f"the transaction {self.phase.value}"
            )

    def _require_open(self) -> None:
        if self.phase is Phase.FAILED:
            raise self._failure()
        self._require(Phase.OPEN)

    def _fail(self, error: TidelogError) -> None:
        if self.phase is Phase.OPEN:
            self.phase = Phase.FAILED
            self._cause = error

    def _failure(self) -> TransactionError:
        """The failure as it is raised; the one that it came from is its cause."""
        failure = self._cause
        if isinstance(failure, TransactionAbortedError):
            return failure
        raised = TransactionAbortableError(self.transactions.transactional_id, failure)
        raised.__cause__ = failure
        return raised

    def init(self, *, keep_prepared: bool = False) -> Operation[Initialized]:
        """Become the producer of the transactional id; who was it before is fenced.

        What that left open is aborted, or with `keep_prepared` ours to commit or abort.
        """
        if keep_prepared and not self.transactions.two_phase:
            raise ValueError("only a two-phase producer can keep what was prepared")
        if self.phase is not Phase.FENCED:
            self._require(Phase.NEW, Phase.READY)
        assert self.idle, "what a fenced producer had under way is waited for first"
        found = yield from init_producer(
            self.cluster, self._coordinator, self.transactions, keep_prepared=keep_prepared
        )
        self.protocol = yield from protocol_of(self.cluster, self._coordinator)
        self.identity = found.producer
        self._renews = None
        self._rest()
        if found.ongoing is not None:
            self.phase, self._is_known = Phase.PREPARED, True
        return found

    def resume(self, producer: Identity) -> Operation[None]:
        """Go on as the producer that another process has become, with `init_transactional_id`."""
        self._require(Phase.NEW)
        self.protocol = yield from protocol_of(self.cluster, self._coordinator)
        self.identity = producer
        self._rest()

    def begin(self) -> None:
        """Open a transaction; the brokers learn of it with its first record or offset."""
        self._require(Phase.READY)
        self.phase = Phase.OPEN
        self._began = self.cluster.clock.monotonic()

    def give_up(self) -> None:
        """The open transaction is to be aborted: send nothing more of it."""
        self._require(Phase.OPEN, Phase.PREPARED, Phase.FAILED, Phase.ABORTING)
        if self.phase is Phase.OPEN:
            self.phase = Phase.FAILED

    def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: GroupMetadata
    ) -> Operation[None]:
        """Commit offsets, the next ones to read, with the transaction."""
        self._require_open()
        if not offsets:
            return
        groups = self._groups
        if groups is None or groups.key != group.group:
            groups = self._groups = Coordinator(group.group, CoordinatorKind.GROUP)
        groups.has_unanswered = False
        try:
            yield from self._renew()
            self._is_known = True
            if self.protocol.adds_partitions and group.group not in self._added_groups:
                yield from add_offsets(self.cluster, self._coordinator, self._producer, group.group)
                self._added_groups.add(group.group)
            yield from commit_transactional_offsets(
                self.cluster,
                groups,
                OffsetsToCommit(self._transaction, group, offsets),
                self.protocol.commit_offsets,
            )
        except (NetworkError, KafkaError) as error:
            self._has_stray = True
            self._fail(error)
            yield from self._look_into_failure()
            raise self._failure() from error
        finally:
            self._has_stray |= groups.has_unanswered

    def settle(self) -> Operation[PreparedTransaction | None]:
        """All of it is stored: leave the transaction for whoever ends it; None where it is empty.

        Raises as `commit` where something of it failed.
        """
        yield from self._require_whole()
        if not self._is_known:
            self._rest()
            return None
        self.phase, self._is_left = Phase.PREPARED, True
        return self._transaction

    def commit(self) -> Operation[None]:
        """Make the transaction visible; TransactionUncertainError where nobody answers."""
        if self.phase not in (Phase.PREPARED, Phase.COMMITTING):
            yield from self._require_whole()
        if self._is_known:
            self.phase = Phase.COMMITTING
            try:
                yield from self._end(commit=True)
            except KafkaError as error:
                self.phase, self._cause = Phase.FAILED, error
                yield from self._look_into_failure(commit_unanswered=True)
                raise self._failure() from error
        self._rest()

    def abort(self) -> Operation[None]:
        """Have nothing of the transaction visible; where it is so already, go on."""
        self._require(Phase.PREPARED, Phase.FAILED, Phase.ABORTING)
        assert self.idle, "what is under way is waited for first"
        yield from self._look_into_failure()
        if self._is_known:
            self.phase = Phase.ABORTING
            try:
                yield from self._end(commit=False)
            except KafkaError as error:
                self.phase, self._cause = Phase.FAILED, error
                yield from self._look_into_failure()
                if error.code not in _LOST:
                    raise
                if self._renews is None:
                    self._goes_on_as(self._producer)
        self._rest()

    def _require_whole(self) -> Operation[None]:
        """Raise what went wrong, if anything did."""
        if self.phase is Phase.FAILED:
            yield from self._look_into_failure()
            raise self._failure()
        self._require(Phase.OPEN)
        assert self.idle, "all is flushed first"

    def _end(self, *, commit: bool) -> Operation[None]:
        goes_on = yield from end(
            self.cluster, self._coordinator, self._transaction, self.protocol.end, commit=commit
        )
        late = self._has_stray or self._coordinator.has_unanswered
        if self.protocol.adds_partitions and late:
            self._renews = goes_on
        self.identity = goes_on

    def _rest(self) -> None:
        """No transaction is open, and nothing of the last one is left."""
        self.phase = Phase.READY
        self._is_known = self._has_stray = self._is_left = False
        self._coordinator.has_unanswered = False
        self._cause = None
        self._added.clear()
        self._added_groups.clear()

    def _renew(self) -> Operation[None]:
        """Take the new epoch that is due; PRODUCER_FENCED where somebody else has come.

        Only one task asks: a second answer would come after the first has been used, and fence us.
        """
        while self._is_renewing:
            yield Pause(_RENEWAL_LOOK_SECONDS)
        if self._renews is None:
            return
        self._is_renewing = True
        try:
            found = yield from init_producer(
                self.cluster, self._coordinator, self.transactions, self._renews
            )
            self.identity = found.producer
            self._renews = None
        finally:
            self._is_renewing = False

    def _look_into_failure(self, *, commit_unanswered: bool = False) -> Operation[None]:
        """Find out what a refusal means: raised where the producer is fenced, else the cause."""
        error = self._cause
        if not isinstance(error, KafkaError) or error.code not in _LOST:
            return
        name = self.transactions.transactional_id
        found = yield from try_describe(self.cluster, name)
        ours = Standing(self._producer, self._is_late(), self._is_left)
        verdict = judge(error.code, ours, found)
        if verdict is Verdict.FENCED:
            unanswered = commit_unanswered and self._coordinator.has_unanswered
            self.phase = Phase.FENCED
            self._cause = ProducerFencedError(name, commit_unanswered=unanswered or self._is_left)
            raise self._cause from error
        if verdict is Verdict.TIMED_OUT:
            assert found is not None
            self._goes_on_as(found.producer)
            late = _TIMED_OUT.format(self.transactions.timeout_ms)
            self._cause = TransactionAbortedError(name, late)
        elif verdict is Verdict.FORGOTTEN:
            self._goes_on_as(self._producer)
            self._cause = TransactionAbortedError(name, _FORGOTTEN)
        elif verdict is Verdict.ABSENT:
            # Nothing of it has arrived, so nothing may arrive any more.
            self._goes_on_as(self._producer)

    def _goes_on_as(self, producer: Identity) -> None:
        """The transaction is over at the coordinator; the next one has an epoch of its own."""
        self._is_known = False
        self._renews = producer

    def _is_late(self) -> bool:
        """Whether the coordinator may have lost its patience; its clock starts later than ours."""
        open_s = self.cluster.clock.monotonic() - self._began
        has_timeout = not self.transactions.two_phase
        return has_timeout and open_s * 1000 >= self.transactions.timeout_ms
