"""Producers that write in transactions while brokers fail.

Each value is unique and belongs to one transaction, which its record names. What a producer knows
of a transaction is one of three: committed, aborted, or unknown (it asked for a commit and never
heard). How that fits what readers find in the end, `transaction_readers` judges.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Final

from tests.sim.ghost import Violation
from tests.sim.observer import Observer
from tests.sim.peek import held, leads, parts_of
from tests.sim.transaction_clients import (
    PARTITIONS,
    TOPIC,
    Fate,
    Written,
    find_coordinator,
    group_of,
)
from tests.sim.transaction_observer import TransactionObserver
from tests.sim.transaction_readers import Readers, judge
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.aio import Client
from tidelog.client.connection import Call
from tidelog.client.operation import UnknownTopicError, topic_metadata
from tidelog.client.settings import ClientSettings
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.protocol.batches import Record, encode_batch
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.messages.end_txn import EndTxnRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidelog.replication.partition import Partition
from tidelog.testing.simulation.machines import World

_TIMEOUT_MS: Final = 6_000
_PATIENCE_S: Final = 8.0
_RETRY_S: Final = 0.1
_FATAL: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


class GivenUp(Exception):
    """The producer cannot go on as the one it is."""


class Transactor:
    """One producer; two of them may share a transactional id and fence each other."""

    def __init__(
        self, transactions: Transactions, name: str, transactional_id: str, version: int = 0
    ) -> None:
        self._all = transactions
        self._chance = random.Random(f"{transactions.seed}/{name}")
        self.name = name
        self._id = transactional_id
        self._version = version or self._chance.choice((1, 2, 2))
        self._client = transactions.client()
        self.producer = (-1, -1)
        self._sequences: dict[int, int] = {}

    async def run(self) -> None:
        while not self._all.is_over:
            try:
                await self.begin()
                while not self._all.is_over:
                    await self._transact()
                    await asyncio.sleep(self._chance.expovariate(20))
            except (GivenUp, TidelogError, UnknownTopicError):
                self._all.counts["given up"] += 1
                await asyncio.sleep(0.2)
        await self.close()

    async def close(self) -> None:
        await self._client.close()

    async def come(self) -> None:
        """Be given an id, and go."""
        while True:
            try:
                await self.begin()
                break
            except (GivenUp, TidelogError, UnknownTopicError):
                await asyncio.sleep(0.2)
        await self.close()

    async def begin(self) -> None:
        request = InitProducerIdRequest(self._id, self._all.timeout_ms)
        self._go_on(await self._coordinate("InitProducerId", 5, request))

    def _go_on(self, answer: Any) -> None:
        self.producer = answer.producer_id, answer.producer_epoch
        self._sequences = {}
        self._all.observer.given(self._id, self.name, self.producer)

    async def _transact(self) -> None:
        written = self.new()
        chosen = self._chance.sample(range(PARTITIONS), self._chance.randint(1, PARTITIONS))
        await self.add(chosen)
        for _ in range(self._chance.choice((1, 1, 2))):
            for partition in chosen:
                await self.produce(partition, written)
        if self._chance.random() < 0.3:
            await self.commit_offset(written)
        if self._chance.random() < 0.05:
            # It hangs: the time-out has to end it.
            await asyncio.sleep(2 * self._all.timeout_ms / 1000)
        await self.end(written, committed=self._chance.random() < 0.7)

    def new(self) -> Written:
        """Another transaction, of which nothing was written yet."""
        written = Written(f"{self.name}/{len(self._all.written)}")
        self._all.written.append(written)
        return written

    async def add(self, partitions: Sequence[int]) -> None:
        """Say where it will write; in version 2 the leaders do."""
        if self._version == 1:
            topics = [AddPartitionsToTxnTopic(TOPIC, list(partitions))]
            request = AddPartitionsToTxnRequest([], self._id, *self.producer, topics)
            await self._coordinate("AddPartitionsToTxn", 3, request)

    async def end(self, written: Written, *, committed: bool) -> None:
        if committed:
            written.fate = Fate.UNKNOWN
        answer = await self._coordinate("EndTxn", *self.end_request(committed))
        if committed:
            written.fate = Fate.COMMITTED
        self._all.counts["committed" if committed else "aborted"] += 1
        if self._version == 2:
            self._go_on(answer)

    def end_request(self, committed: bool) -> tuple[int, EndTxnRequest]:
        """What ends the transaction, and in which version it is sent."""
        request = EndTxnRequest(self._id, *self.producer, committed)
        return 5 if self._version == 2 else 4, request

    async def commit_offset(self, written: Written) -> None:
        """Commit an offset of a group in the transaction: here, its value."""
        written.group, written.offset = group_of(self._id), self._all.new_value()
        if self._version == 1:
            add = AddOffsetsToTxnRequest(self._id, *self.producer, written.group)
            await self._coordinate("AddOffsetsToTxn", 3, add)
        partition = TxnOffsetCommitRequestPartition(0, written.offset, -1, written.name)
        request = TxnOffsetCommitRequest(
            self._id, written.group, *self.producer,
            topics=[TxnOffsetCommitRequestTopic(TOPIC, [partition])],
        )  # fmt: skip
        version = 5 if self._version == 2 else 4
        await self._coordinate("TxnOffsetCommit", version, request, written.group)

    async def produce(self, partition: int, written: Written) -> None:
        version, request = self.produce_request(partition, written)
        deadline = self._all.now() + self._all.patience_s
        while self._all.now() < deadline:
            leader = await self._leader(partition)
            outcome: Any = await self._ask(leader, "Produce", version, request)
            if not isinstance(outcome, TidelogError):
                code = ErrorCode(outcome.responses[0].partition_responses[0].error_code)
                if code is ErrorCode.NONE:
                    self._sequences[partition] = self._sequences.get(partition, 0) + 1
                    return
                if code in _FATAL:
                    raise GivenUp(code.name)
            self._client.cluster.forget([TOPIC])
            await asyncio.sleep(_RETRY_S)
        raise GivenUp("produce")

    def produce_request(self, partition: int, written: Written) -> tuple[int, ProduceRequest]:
        """The next batch for a partition, and in which version it is sent."""
        value = self._all.new_value()
        written.values.append((partition, value))
        records = encode_batch(
            [Record(key=written.name.encode(), value=b"%d" % value)],
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=self._sequences.get(partition, 0),
            transactional=True,
        )
        data = TopicProduceData(
            name=TOPIC, partition_data=[PartitionProduceData(partition, records)]
        )
        request = ProduceRequest(self._id, -1, 3_000, [data])
        return 12 if self._version == 2 else 11, request

    async def _leader(self, partition: int) -> int:
        """-1 where it is not known now."""
        try:
            await self._client.run(topic_metadata(self._client.cluster, [TOPIC]))
        except (TidelogError, UnknownTopicError):
            return -1
        return self._client.cluster.leader(TOPIC, partition)

    async def _ask(self, node: int, api: str, version: int, request: object) -> Any:
        """What a broker answers; an error where there is none."""
        if node < 0:
            return TidelogError("nobody to ask")
        return await self._client.network.request(Call(node, api, request, version))

    async def _coordinate(self, api: str, version: int, request: object, group: str = "") -> Any:
        """The coordinator's answer, wherever it is; `GivenUp` where there is none that helps.

        It is the coordinator of the producer's id, or of a group.
        """
        deadline = self._all.now() + self._all.patience_s
        while self._all.now() < deadline:
            try:
                node = await find_coordinator(self._client, group or self._id, of_group=bool(group))
            except (TidelogError, UnknownTopicError):
                node = -1
            outcome: Any = await self._ask(node, api, version, request)
            if not isinstance(outcome, TidelogError):
                code = _code_of(outcome)
                if code is ErrorCode.NONE:
                    return outcome
                if code in _FATAL:
                    raise GivenUp(code.name)
            await asyncio.sleep(_RETRY_S)
        raise GivenUp(api)


def _code_of(answer: Any) -> ErrorCode:
    if isinstance(answer, AddPartitionsToTxnResponse):
        results = answer.results_by_topic_v3_and_below
        each_code = [each.partition_error_code for topic in results
                     for each in topic.results_by_partition]  # fmt: skip
        return ErrorCode(max(each_code))
    if isinstance(answer, TxnOffsetCommitResponse):
        return ErrorCode(answer.topics[0].partitions[0].error_code)
    return ErrorCode(answer.error_code)


class Transactions:
    """The transactional producers of one world."""

    def __init__(self, world: World, seed: int, observer: Observer) -> None:
        self.world = world
        self.seed = seed
        self.observer = TransactionObserver(world, observer, [TOPIC])
        self.is_over = False
        # How long a producer tries one thing before it gives up and comes again.
        self.patience_s = _PATIENCE_S
        self.timeout_ms = _TIMEOUT_MS
        self.written: list[Written] = []
        self.counts: Counter[str] = Counter()
        self._value = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._settings = ClientSettings(
            connect_timeout_ms=2_000, request_timeout_ms=4_000, operation_timeout_ms=20_000,
            metadata_max_age_ms=5_000,
        )  # fmt: skip
        self._readers = Readers(world, self._settings, self.observer)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def new_value(self) -> int:
        self._value += 1
        return self._value

    def client(self) -> Client:
        return Client(self.world.servers, self._settings, self.world.client_host())

    async def start(self, configs: dict[str, str]) -> None:
        client = self.client()
        new = NewTopic(TOPIC, PARTITIONS, configs=configs)
        try:
            await client.run(create_topic(client.cluster, new))
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        await client.close()
        # The coordinators are there before anything goes wrong, or little would be written.
        await Transactor(self, "first", "first").come()
        for name, transactional_id in (("a", "a"), ("b", "b"), ("c", "b")):
            self._run(Transactor(self, name, transactional_id).run())
        self._run(self._readers.read_on())
        self._run(self._readers.ask_for_offsets([group_of("a"), group_of("b")]))

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(self.world.client_node().start(coroutine))

    async def finish(self) -> None:
        """End the producers, let time-outs pass, and judge."""
        self.is_over = self._readers.is_over = True
        _, pending = await asyncio.wait(self._tasks, timeout=90.0)
        if pending:
            raise Violation("L3 calls end", "a transactional client still waits")
        for task in self._tasks:
            task.result()
        await self.judge()

    async def judge(self) -> None:
        """L4, and then what readers find."""
        until = self.now() + self.timeout_ms / 1000 + 10.0
        while found := self._open() or self.observer.open():
            if self.now() > until:
                raise Violation("L4 no open transaction", found)
            await asyncio.sleep(0.5)
        found_values = await self._readers.read_all()
        offsets = {each: await self._readers.offset_of(each) for each in self._groups()}
        self.counts += judge(self.written, found_values, offsets)

    async def look_at_offset(self, group: str) -> None:
        """I22: what a group is told now."""
        await self._readers.look_at_offset(group)

    def _groups(self) -> list[str]:
        return sorted({each.group for each in self.written if each.group})

    def _leaders(self) -> Iterator[Partition]:
        for machine in self.world.machines.values():
            parts = parts_of(machine.broker)
            for partitions in () if parts is None else held(parts):
                for each in partitions.values():
                    if each.topic_partition.topic == TOPIC and leads(each):
                        yield each

    def _open(self) -> str:
        leaders = list(self._leaders())
        if len(leaders) != PARTITIONS:
            return f"{len(leaders)} leaders of {PARTITIONS}"
        for each in leaders:
            if each.last_stable_offset < each.high_watermark:
                states = [s for s in each.log.producers.states.values()
                          if s.transaction_first_offset >= 0]  # fmt: skip
                return (
                    f"{each.topic_partition} is stable to {each.last_stable_offset} of"
                    f" {each.high_watermark}: {states}"
                )
        return ""
