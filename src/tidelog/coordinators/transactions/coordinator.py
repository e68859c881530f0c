"""The coordinator of transactions: the runtime over shards of `__transaction_state`.

What a shard answers with CONCURRENT_TRANSACTIONS, because a decision is being carried out, mostly
passes within milliseconds: requests wait for that here, briefly, before their client is told to ask
again.

Where nothing has to be waited for, the answer is there when the call returns: a commit then costs
no task and no turn of the loop. Else the call returns a coroutine that brings the answer.

What shards are made of is imported with the first one, as with groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import cache, partial
from importlib import import_module
from types import CoroutineType, ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from tidelog.cluster.commands import Command, CreateTopic
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.names import TRANSACTIONS_TOPIC
from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinators.internal_topic import InternalTopic, creation_of
from tidelog.coordinators.kind import ShardKind
from tidelog.coordinators.outcome import Outcome
from tidelog.coordinators.producer_ids import ProducerIdMissingError, ProducerIds
from tidelog.coordinators.runtime import CoordinatorRuntime
from tidelog.coordinators.timers import Now
from tidelog.coordinators.transactions.stats import TransactionStats
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.host import Host
from tidelog.model import TopicPartition
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import Replicas

if TYPE_CHECKING:
    from tidelog.coordinators.transactions.ends import Ending
    from tidelog.coordinators.transactions.shard import Answer, Decision, TransactionShard
    from tidelog.coordinators.transactions.transaction import Coming, Producer

    Handler = Callable[[TransactionShard, Now], Outcome]

# How long a request waits for the end of the transaction before.
_PATIENCE_SECONDS: Final = 0.25
_COMMIT_TIMEOUT_MS: Final = 5_000
# An id of a new block may be gone before its taker has its turn.
_BLOCKS_TRIED: Final = 3

T = TypeVar("T")
Codes = dict[TopicPartition, ErrorCode]


class TransactionCoordinator(CoordinatorRuntime["TransactionShard"]):
    """All transactional ids that this broker coordinates."""

    def __init__(
        self,
        replicas: Replicas,
        host: Host,
        image: Callable[[], MetadataImage],
        submit: Callable[[Command], Awaitable[object]],
        ids: ProducerIds,
    ) -> None:
        self.transaction_stats = TransactionStats()
        self.ids = ids
        # Who carries out what is decided.
        self.on_decided: Callable[[Decision], None] = lambda decision: None
        # Requests that wait for the end of a transaction.
        self._patient: dict[str, list[asyncio.Future[None]]] = {}

        def creation(image: MetadataImage) -> CreateTopic:
            return transactions_topic(replicas.config, len(image.brokers))

        def new_shard(partition: Partition) -> TransactionShard:
            from tidelog.coordinators.transactions.settings import transaction_settings
            from tidelog.coordinators.transactions.shard import ShardTools, TransactionShard

            clock = partition.log.context.running_clock
            tools = ShardTools(
                transaction_settings(replicas.config),
                ids.take,
                lambda: clock.ages().age_ms,
                self._decided,
                self._completed,
                self.transaction_stats,
            )
            return TransactionShard(partition.leader_epoch, tools)

        kind = ShardKind(
            InternalTopic(TRANSACTIONS_TOPIC, image, submit, creation),
            new_shard,
            lambda record: _records().encode_record(record),
            lambda key, value: _records().decode_record(key, value),
            lambda: _COMMIT_TIMEOUT_MS,
        )
        super().__init__(kind, replicas.standing.broker_id, replicas, host)

    # -- what producers ask -----------------------------------------------------------------------

    async def init(self, transactional_id: str, coming: Coming) -> Answer:
        """An id and epoch for a producer; KafkaError where this is not the coordinator."""

        def init(shard: TransactionShard, now: Now) -> Outcome:
            return shard.init(transactional_id, coming, now)

        return await settled(self._ask(transactional_id, init, lambda answer: answer.code))

    def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> ErrorCode | Coroutine[Any, Any, ErrorCode]:
        def add(shard: TransactionShard, now: Now) -> Outcome:
            return shard.add_partitions(transactional_id, producer, partitions, now)

        return self._ask(transactional_id, add, lambda code: code)

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> Codes | Coroutine[Any, Any, Codes]:
        """Whether each is in the open transaction of the producer."""

        def verify(shard: TransactionShard, _: Now) -> Outcome:
            return shard.verify(transactional_id, producer, partitions)

        return self._ask(
            transactional_id, verify, lambda codes: next(iter(codes.values()), ErrorCode.NONE)
        )

    def end(
        self, transactional_id: str, producer: Producer, ending: Ending
    ) -> Answer | Coroutine[Any, Any, Answer]:
        def end(shard: TransactionShard, now: Now) -> Outcome:
            return shard.end(transactional_id, producer, ending, now)

        return self._ask(transactional_id, end, lambda answer: answer.code)

    def _ask(
        self, transactional_id: str, handler: Handler, code_of: Callable[[T], ErrorCode]
    ) -> T | Coroutine[Any, Any, T]:
        """The shard's answer, or a coroutine that waits for what it needs."""
        first: Awaitable[T] | None = None
        try:
            answer = self.call(transactional_id, handler)
        except ProducerIdMissingError:
            first = self._answer(transactional_id, handler)
        else:
            if isinstance(answer, asyncio.Future):
                first = answer
            elif code_of(answer) is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return cast(T, answer)
        return self._ask_patiently(transactional_id, handler, code_of, first)

    async def _ask_patiently(
        self,
        transactional_id: str,
        handler: Handler,
        code_of: Callable[[T], ErrorCode],
        first: Awaitable[T] | None,
    ) -> T:
        """The answer; where another end is under way, what it is once that is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_SECONDS
        while True:
            if first is None:
                await self._ended(transactional_id, deadline - loop.time())
                first = self._answer(transactional_id, handler)
            answer = await first
            is_busy = code_of(answer) is ErrorCode.CONCURRENT_TRANSACTIONS
            if not is_busy or loop.time() >= deadline:
                return answer
            first = None

    async def _answer(self, transactional_id: str, handler: Handler) -> Any:
        for _ in range(_BLOCKS_TRIED):
            try:
                answer = self.call(transactional_id, handler)
                return await answer if isinstance(answer, asyncio.Future) else answer
            except ProducerIdMissingError:
                await self.ids.refill()
        raise ProducerIdMissingError

    async def _ended(self, transactional_id: str, seconds: float) -> None:
        """Return when the id's transaction has ended, or the time is up."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._patient.setdefault(transactional_id, [])
        waiting.append(ended)
        try:
            await asyncio.wait((ended,), timeout=seconds)
        finally:
            waiting.remove(ended)
            if not waiting and self._patient.get(transactional_id) is waiting:
                del self._patient[transactional_id]

    def _decided(self, decision: Decision) -> None:
        self.on_decided(decision)

    def _completed(self, transactional_id: str) -> None:
        for waiting in self._patient.get(transactional_id, ()):
            if not waiting.done():
                waiting.set_result(None)

    # -- carrying out what is decided -------------------------------------------------------------

    def is_ours(self, decision: Decision) -> bool:
        """Whether this broker still has to see to it, in the epoch in which it was decided."""
        try:
            index = self.topic.partition_of(decision.transactional_id)
        except KafkaError:
            return False
        return self.topic.led_by(self._broker_id).get(index) == decision.coordinator_epoch

    def complete(self, decision: Decision) -> None:
        """Every partition has the marker: write that down. KafkaError where that failed."""

        def complete(shard: TransactionShard, now: Now) -> Outcome:
            return shard.complete(decision, now)

        answer = self.call(decision.transactional_id, complete)
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(partial(_look_at, decision))


async def settled(answer: T | Coroutine[Any, Any, T]) -> T:
    """An answer that is there, or that a coroutine brings."""
    return await answer if isinstance(answer, CoroutineType) else cast(T, answer)


def _look_at(decision: Decision, answer: asyncio.Future[Any]) -> None:
    """The record is in the log; if it is lost with its leader, the next one writes it again."""
    if not answer.cancelled():
        answer.exception()


@cache
def _records() -> ModuleType:
    """What shards write, imported with the first record."""
    return import_module("tidelog.coordinators.transactions.records")


def transactions_topic(config: BrokerConfig, brokers: int) -> CreateTopic:
    """The topic as it is created when a transactional id is first asked for."""
    settings = "transaction.state.log"
    return creation_of(TRANSACTIONS_TOPIC, settings, "uncompressed", config, brokers)
