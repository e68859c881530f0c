"""A shard in its place: the partition that keeps it, and what it has written there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic

from tidelog.coordinators.gathering import Answer, Gathered
from tidelog.coordinators.kind import S, ShardKind
from tidelog.coordinators.loading import Stored
from tidelog.coordinators.outcome import InTransaction
from tidelog.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.protocol.batches import Record, encode_batch, read_header
from tidelog.replication.partition import Partition
from tidelog.replication.waiters import CommitWait
from tidelog.storage.admission import Admitted
from tidelog.storage.producers import read_marker
from tidelog.storage.verification import CLIENT, Origin

# How long to wait at a time for what is committed some day.
_SETTLE_SECONDS: Final = 60.0
_SETTLE_RETRY_SECONDS: Final = 0.5
# What is wrong with a transaction is its producer's business, and no failure of the shard's log.
_OF_TRANSACTIONS: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE})


@dataclass(slots=True, eq=False)
class Slot(Generic[S]):
    """A partition of the kind's topic that this broker leads."""

    partition: Partition
    leader_epoch: int
    shard: S
    last_offset: int = -1
    last_core_offset: int = -1
    error: KafkaError | None = None
    loading: asyncio.Task[None] | None = None
    # Replies that came while something was handled: they rest on what it appends too.
    answered: list[Answer] = field(default_factory=list)
    # Changes that are to be appended together.
    gathered: Gathered[S] = field(default_factory=Gathered)
    # What the shard wants to hear of once it is committed, in the order of the log.
    unsettled: deque[tuple[int, Callable[[], None]]] = field(default_factory=deque)
    settling: CommitWait | asyncio.TimerHandle | None = None

    def check(self, kind: ShardKind[S]) -> None:
        """KafkaError where the shard cannot speak for the cluster."""
        if self.error is not None:
            raise self.error.again()
        try:
            self.partition.check_leader()
        except KafkaError as error:
            # The metadata will say so in a moment; another broker may have newer answers already.
            raise kind.refusal(error) from error
        if self.partition.leading.may_be_deposed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "other brokers are out of reach")

    def append(
        self,
        kind: ShardKind[S],
        records: Sequence[Any],
        transaction: InTransaction | None,
        now_ms: int,
    ) -> None:
        """Append records of the shard, as one batch; KafkaError where they cannot be."""
        origin, producer = CLIENT, (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        if transaction is not None:
            origin = Origin(from_client=False, verification=transaction.verification)
            producer = transaction.producer_id, transaction.producer_epoch
        try:
            batch = encode_batch(
                [Record(0, now_ms, *kind.encode(record), []) for record in records],
                producer_id=producer[0],
                producer_epoch=producer[1],
                transactional=transaction is not None,
            )
        except ProtocolError as error:
            # Kept where it came from: whoever asked is refused, and nobody else is disturbed.
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"cannot be written: {error}") from error
        try:
            self.take(Admitted(memoryview(batch), read_header(batch)), now_ms, origin)
        except KafkaError as error:
            if transaction is not None and error.code in _OF_TRANSACTIONS:
                raise
            raise kind.refusal(error) from error

    def take(self, admitted: Admitted, now_ms: int, origin: Origin) -> None:
        """Append a batch to the shard's log."""
        result = self.partition.append(admitted, -1, now_ms, origin)
        assert result.last_offset > self.last_offset, "somebody else writes to the shard's log"
        self.last_offset = result.last_offset

    def replay(self, record: Any, transaction: InTransaction | None) -> None:
        """Apply a record that was appended."""
        if transaction is None:
            self.shard.replay(record)
        else:
            self.shard.replay_pending(record, transaction.producer_id)

    def replay_stored(self, kind: ShardKind[S], stored: Stored) -> None:
        """Apply what was found in the log."""
        if stored.ends is not None:
            self.shard.end_transaction(stored.producer_id, stored.ends)
            return
        decoded = kind.decode(stored.key, stored.value)
        if decoded is None:
            return
        if stored.producer_id < 0:
            self.shard.replay(decoded)
        else:
            self.shard.replay_pending(decoded, stored.producer_id)

    def ended(self, marker: Admitted) -> None:
        """Apply a marker that was appended."""
        end = read_marker(marker.buffer, marker.header)
        assert end is not None, "not a marker"
        self.shard.end_transaction(marker.header.producer_id, end.committed)

    def when_committed(self, told: Callable[[], None], failed: Callable[[], None]) -> None:
        """Call back once all that was appended so far is committed, if it ever is.

        `failed` is called where that raises.
        """
        self.unsettled.append((self.last_offset, told))
        self._settle(failed)

    def _settle(self, failed: Callable[[], None]) -> None:
        while self.unsettled and self.partition.is_committed(self.unsettled[0][0]):
            self.unsettled.popleft()[1]()
        if self.unsettled and self.settling is None and self.error is None:
            deadline = asyncio.get_running_loop().time() + _SETTLE_SECONDS
            self.settling = self.partition.committed(self.unsettled[0][0], deadline)
            self.settling.add_done_callback(partial(self._settled, failed))

    def _settled(self, failed: Callable[[], None], wait: asyncio.Future[None]) -> None:
        self.settling = None
        if wait.cancelled() or self.error is not None:
            return
        if wait.exception() is None:
            self._settle_again(failed)
            return
        # The partition leads no more, and the metadata will say so; or it only might have been
        # deposed.
        loop = asyncio.get_running_loop()
        self.settling = loop.call_later(_SETTLE_RETRY_SECONDS, self._settle_again, failed)

    def _settle_again(self, failed: Callable[[], None]) -> None:
        self.settling = None
        try:
            self._settle(failed)
        except Exception:
            failed()

    def abandon(self, error: KafkaError) -> None:
        """Another broker has the shard, or will load it: tell whoever waits."""
        if self.loading is not None:
            self.loading.cancel()
        if self.settling is not None:
            self.settling.cancel()
        self.unsettled.clear()
        self.shard.abandon(error)
        for answer in self.answered:
            answer.leave()
        self.answered.clear()
        self.gathered.fail(error)


@dataclass(slots=True)
class RuntimeStats:
    """Counters since the start."""

    timeouts: int = 0
    loads: int = 0
    load_seconds: float = 0.0
    load_seconds_max: float = 0.0
