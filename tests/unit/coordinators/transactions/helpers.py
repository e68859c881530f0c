"""A transaction shard on a virtual clock, with a log that can refuse, and commit late."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.timers import Now
from tidelog.coordinators.transactions.ends import Ending
from tidelog.coordinators.transactions.records import (
    TransactionRecord,
    decode_record,
    encode_record,
)
from tidelog.coordinators.transactions.settings import TransactionSettings
from tidelog.coordinators.transactions.shard import (
    Answer,
    Decision,
    ShardTools,
    TransactionShard,
)
from tidelog.coordinators.transactions.stats import TransactionStats
from tidelog.coordinators.transactions.transaction import NOBODY, Coming, Producer, State
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition

START_WALL_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class World:
    """One shard, the log that it is kept in, and the time."""

    def __init__(self) -> None:
        self.ms = 0
        self.wall_ms = START_WALL_MS
        self.log: list[TransactionRecord] = []
        self.stored: list[tuple[bytes, bytes | None]] = []
        self.refuses = False
        # While False, what is appended is not committed.
        self.commits = True
        self.uncommitted: list[Callable[[], None]] = []
        self.decided: list[Decision] = []
        self.completed: list[str] = []
        self.next_producer_id = 1000
        self.has_ids = True
        self.epoch = 0
        self.stats = TransactionStats()
        self.settings = TransactionSettings()
        self.shard = self._new_shard()
        self._load()

    @property
    def now(self) -> Now:
        return Now(self.ms, self.wall_ms)

    def _new_shard(self) -> TransactionShard:
        def age_of() -> Callable[[int], int]:
            return lambda written_ms: self.wall_ms - written_ms

        tools = ShardTools(
            self.settings,
            self._take_id,
            age_of,
            self.decided.append,
            self.completed.append,
            self.stats,
        )
        return TransactionShard(self.epoch, tools)

    def _take_id(self) -> int | None:
        if not self.has_ids:
            return None
        self.next_producer_id += 1
        return self.next_producer_id

    # The runtime's part

    def apply(self, outcome: Outcome) -> Any:
        if self.refuses and outcome.records:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for record in outcome.records:
            self.stored.append(encode_record(record))
            self.log.append(record)
            self.shard.replay(record)
        if outcome.then is not None:
            outcome.then()
        if outcome.committed is not None:
            self.uncommitted.append(outcome.committed)
            if self.commits:
                self.commit()
        return outcome.answer

    def commit(self) -> None:
        """What was appended is committed now."""
        waiting, self.uncommitted = self.uncommitted, []
        for committed in waiting:
            committed()

    def _work(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            try:
                self.apply(outcome)
            except KafkaError:
                continue

    def _load(self) -> None:
        for stored in self.stored:
            record = decode_record(*stored)
            assert record is not None
            self.shard.replay(record)
        self._work(self.shard.loaded(self.now))

    def fail_over(self, *, loses: int = 0) -> None:
        """Another broker loads the shard; what was not committed may be lost with its leader."""
        if loses:
            del self.stored[-loses:], self.log[-loses:]
        self.epoch += 1
        self.uncommitted.clear()
        self.decided.clear()
        self.shard = self._new_shard()
        self._load()

    def pass_time(self, ms: int) -> None:
        self.ms += ms
        self.wall_ms += ms
        self._work(self.shard.due(self.now))

    # What producers ask

    def init(
        self, transactional_id: str = "x", expected: Producer = NOBODY, timeout_ms: int = TIMEOUT_MS
    ) -> Answer:
        return self.come(Coming(timeout_ms, expected), transactional_id)

    def come(self, coming: Coming, transactional_id: str = "x") -> Answer:
        answer: Answer = self.apply(self.shard.init(transactional_id, coming, self.now))
        return answer

    def given(self, transactional_id: str = "x", expected: Producer = NOBODY) -> Producer:
        answer = self.init(transactional_id, expected)
        assert answer.code is ErrorCode.NONE
        return answer.producer

    def add(
        self, producer: Producer, *partitions: TopicPartition, transactional_id: str = "x"
    ) -> ErrorCode:
        code: ErrorCode = self.apply(
            self.shard.add_partitions(transactional_id, producer, partitions or (P0,), self.now)
        )
        return code

    def verify(self, producer: Producer, partition: TopicPartition = P0) -> ErrorCode:
        codes = self.apply(self.shard.verify("x", producer, [partition]))
        code: ErrorCode = codes[partition]
        return code

    def end(self, producer: Producer, *, committed: bool = True, version: int = 2) -> Answer:
        answer: Answer = self.apply(
            self.shard.end("x", producer, Ending(committed, version), self.now)
        )
        return answer

    def carry_out(self) -> Decision:
        """The markers of the last decision are written."""
        decision = self.decided[-1]
        assert self.apply(self.shard.complete(decision, self.now))
        return decision

    def finish(self, producer: Producer, *, committed: bool = True, version: int = 2) -> Producer:
        """A whole end of a transaction; with which id and epoch its producer goes on."""
        answer = self.end(producer, committed=committed, version=version)
        assert answer.code is ErrorCode.NONE
        self.carry_out()
        return answer.producer

    def state(self, transactional_id: str = "x") -> State:
        return self.shard.transactions[transactional_id].state

    def shard_producer(self, transactional_id: str) -> Producer:
        known = self.shard.transactions[transactional_id]
        return Producer(known.producer_id, known.producer_epoch)

    def at_epoch(self, epoch: int) -> Producer:
        """A producer that has got so far with its epochs."""
        producer = self.given()
        record = self.log[-1]
        assert record.value is not None
        record.value.producer_epoch = epoch
        self.stored[-1] = encode_record(record)
        self.fail_over()
        return Producer(producer.producer_id, epoch)
