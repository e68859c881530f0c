"""Producers that write in transactions while brokers fail, and what must hold of what they wrote.

Each value is unique and belongs to one transaction. What a producer knows of a transaction is one
of three: committed, aborted, or unknown (it asked for a commit and never heard). In the end readers
of committed records must find committed ones entirely, unknown ones entirely or not at all, others
never. The logs themselves are looked at as well: sequences, epochs, and that nothing stays open.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from tests.sim.ghost import Violation
from tests.sim.peek import held, leads, parts_of
from tidelog.client.admin import NewTopic, create_topic
from tidelog.client.aio import Client, Consumer
from tidelog.client.connection import Call
from tidelog.client.metadata import ANY
from tidelog.client.offsets import LATEST, Start, list_offsets
from tidelog.client.operation import UnknownTopicError, ask, topic_metadata
from tidelog.client.settings import ClientSettings, ConsumerSettings
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model import Isolation, TopicPartition
from tidelog.protocol.batches import BatchHeader, Record, encode_batch, iterate_batches
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.messages.end_txn import EndTxnRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.replication.partition import Partition
from tidelog.storage.producers import read_marker
from tidelog.testing.simulation.machines import World

TOPIC: Final = "bank"
PARTITIONS: Final = 3
TIMEOUT_MS: Final = 6_000
# How long a producer tries one thing before it gives up and comes again.
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


class Fate(Enum):
    """What a producer knows of its transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class GivenUp(Exception):
    """The producer cannot go on as the one it is."""


@dataclass(slots=True, eq=False)
class Written:
    """One transaction: its values by partition, and its fate."""

    name: str
    values: list[tuple[int, int]] = field(default_factory=list)
    fate: Fate = Fate.ABORTED


class Transactor:
    """One producer; two of them may share a transactional id and fence each other."""

    def __init__(self, transactions: Transactions, name: str, transactional_id: str) -> None:
        self._all = transactions
        self._chance = random.Random(f"{transactions.seed}/{name}")
        self.name = name
        self._id = transactional_id
        self._version = self._chance.choice((1, 2, 2))
        self._client = transactions.client()
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}

    async def run(self) -> None:
        while not self._all.is_over:
            try:
                await self._begin()
                while not self._all.is_over:
                    await self._transact()
                    await asyncio.sleep(self._chance.expovariate(20))
            except (GivenUp, TidelogError, UnknownTopicError):
                self._all.counts["given up"] += 1
                await asyncio.sleep(0.2)
        await self._client.close()

    async def come(self) -> None:
        """Be given an id, and go."""
        while True:
            try:
                await self._begin()
                break
            except (GivenUp, TidelogError, UnknownTopicError):
                await asyncio.sleep(0.2)
        await self._client.close()

    async def _begin(self) -> None:
        request = InitProducerIdRequest(self._id, TIMEOUT_MS)
        answer = await self._coordinate("InitProducerId", 5, request)
        self._producer = answer.producer_id, answer.producer_epoch
        self._sequences = {}

    async def _transact(self) -> None:
        written = Written(self.name)
        self._all.written.append(written)
        chosen = self._chance.sample(range(PARTITIONS), self._chance.randint(1, PARTITIONS))
        if self._version == 1:
            topics = [AddPartitionsToTxnTopic(TOPIC, chosen)]
            request = AddPartitionsToTxnRequest([], self._id, *self._producer, topics)
            await self._coordinate("AddPartitionsToTxn", 3, request)
        for _ in range(self._chance.choice((1, 1, 2))):
            for partition in chosen:
                await self._produce(partition, written)
        if self._chance.random() < 0.05:
            # It hangs: the time-out has to end it.
            await asyncio.sleep(2 * TIMEOUT_MS / 1000)
        await self._end(written, committed=self._chance.random() < 0.7)

    async def _end(self, written: Written, *, committed: bool) -> None:
        request = EndTxnRequest(self._id, *self._producer, committed)
        if committed:
            written.fate = Fate.UNKNOWN
        answer = await self._coordinate("EndTxn", 5 if self._version == 2 else 4, request)
        if committed:
            written.fate = Fate.COMMITTED
        self._all.counts["committed" if committed else "aborted"] += 1
        if self._version == 2:
            self._producer = answer.producer_id, answer.producer_epoch
            self._sequences = {}

    async def _produce(self, partition: int, written: Written) -> None:
        value = self._all.new_value()
        written.values.append((partition, value))
        sequence = self._sequences.get(partition, 0)
        records = encode_batch(
            [Record(value=b"%d" % value)],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData(
            name=TOPIC, partition_data=[PartitionProduceData(partition, records)]
        )
        request = ProduceRequest(self._id, -1, 3_000, [data])
        version = 12 if self._version == 2 else 11
        deadline = self._all.now() + _PATIENCE_S
        while self._all.now() < deadline:
            leader = await self._leader(partition)
            outcome: Any = await self._client.network.request(
                Call(leader, "Produce", request, version)
            )
            if not isinstance(outcome, TidelogError):
                code = ErrorCode(outcome.responses[0].partition_responses[0].error_code)
                if code is ErrorCode.NONE:
                    self._sequences[partition] = sequence + 1
                    return
                if code in _FATAL:
                    raise GivenUp(code.name)
            self._client.cluster.forget([TOPIC])
            await asyncio.sleep(_RETRY_S)
        raise GivenUp("produce")

    async def _leader(self, partition: int) -> int:
        await self._client.run(topic_metadata(self._client.cluster, [TOPIC]))
        return self._client.cluster.leader(TOPIC, partition)

    async def _coordinate(self, api: str, version: int, request: object) -> Any:
        """The coordinator's answer, wherever it is; `GivenUp` where there is none that helps."""
        deadline = self._all.now() + _PATIENCE_S
        while self._all.now() < deadline:
            await self._client.run(topic_metadata(self._client.cluster, [TOPIC]))
            find = FindCoordinatorRequest(key_type=1, coordinator_keys=[self._id])
            found: Any = await self._client.run(ask(Call(ANY, "FindCoordinator", find, 4)))
            node = found.coordinators[0].node_id
            if node >= 0:
                outcome: Any = await self._client.network.request(Call(node, api, request, version))
                if not isinstance(outcome, TidelogError):
                    code = _code_of(outcome)
                    if code is ErrorCode.NONE:
                        return outcome
                    if code in _FATAL:
                        raise GivenUp(code.name)
            await asyncio.sleep(_RETRY_S)
        raise GivenUp(api)


def _code_of(answer: Any) -> ErrorCode:
    results = getattr(answer, "results_by_topic_v3_and_below", None)
    if results is None:
        return ErrorCode(answer.error_code)
    codes = [each.partition_error_code for topic in results for each in topic.results_by_partition]
    return ErrorCode(max(codes))


class Transactions:
    """The transactional producers of one world."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.is_over = False
        self.written: list[Written] = []
        self.counts: Counter[str] = Counter()
        self._value = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._settings = ClientSettings(
            connect_timeout_ms=2_000, request_timeout_ms=4_000, operation_timeout_ms=20_000,
            metadata_max_age_ms=5_000,
        )  # fmt: skip

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
            transactor = Transactor(self, name, transactional_id)
            self._tasks.append(self.world.client_node().start(transactor.run()))

    async def finish(self) -> None:
        """End the producers, let time-outs pass, and judge."""
        self.is_over = True
        _, pending = await asyncio.wait(self._tasks, timeout=90.0)
        if pending:
            raise Violation("L3 calls end", "a transactional producer still waits")
        for task in self._tasks:
            task.result()
        until = self.now() + TIMEOUT_MS / 1000 + 10.0
        while found := self._open():
            if self.now() > until:
                raise Violation("L4 no open transaction", found)
            await asyncio.sleep(0.5)
        for partition in self._leaders():
            check_log(partition.topic_partition, list(_batches(partition)))
        self._judge(await self._read())

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

    async def _read(self) -> dict[int, list[int]]:
        """All that readers of committed records find, by partition."""
        settings = ConsumerSettings(
            max_wait_ms=200, isolation=Isolation.READ_COMMITTED, client=self._settings
        )
        consumer = Consumer(self.world.servers, settings, self.world.client_host())
        partitions = [TopicPartition(TOPIC, each) for each in range(PARTITIONS)]
        await consumer.assign(dict.fromkeys(partitions, Start("start")))
        ends = await consumer.run(list_offsets(consumer.cluster, dict.fromkeys(partitions, LATEST)))
        found: dict[int, list[int]] = {each: [] for each in range(PARTITIONS)}
        async with asyncio.timeout(60):
            while any(
                consumer.core.positions[each].position < ends[each].offset for each in partitions
            ):
                for partition, records in await consumer.poll(0.5):
                    found[partition.partition] += [int(bytes(each.value)) for each in records]
        await consumer.close()
        return found

    def _judge(self, found: dict[int, list[int]]) -> None:
        counts = Counter((place, value) for place, values in found.items() for value in values)
        for written in self.written:
            if not written.values:
                continue
            seen = [counts.pop(each, 0) for each in written.values]
            if any(each > 1 for each in seen):
                raise Violation("I14 once", f"{written} is there {seen} times")
            if written.fate is Fate.ABORTED and any(seen):
                raise Violation("I20 aborted read", f"{written} shows: {seen}")
            if written.fate is Fate.COMMITTED and not all(seen):
                raise Violation("I17 lost commit", f"{written} is there {seen} times")
            if any(seen) != all(seen):
                raise Violation("I17 torn", f"{written} is there {seen} times")
            self.counts[f"fate {written.fate.value}"] += 1
        if +counts:
            raise Violation("I20", f"nobody wrote {+counts}")


def _batches(partition: Partition) -> Iterator[tuple[BatchHeader, bool | None]]:
    """The batches of a log; for a marker, whether it commits."""
    log = partition.log
    offset, end = log.log_start_offset, log.end_position
    while offset < end.offset:
        slices = log.read(offset, 1 << 20, end)
        data = slices.read_all()
        slices.release()
        for position, header in iterate_batches(data):
            marker = None
            if header.is_control:
                batch = data[position : position + header.size_bytes]
                ended = read_marker(batch, header)
                marker = None if ended is None else ended.committed
            yield header, marker
            offset = header.last_offset + 1


def check_log(name: TopicPartition, batches: list[tuple[BatchHeader, bool | None]]) -> None:
    """I14, I15, I18: sequences without gap, epochs that do not fall, nothing behind its end."""
    epochs: dict[int, int] = {}
    sequences: dict[tuple[int, int], int] = {}
    for header, marker in batches:
        if header.producer_id < 0:
            continue
        epoch = epochs.get(header.producer_id, -1)
        if header.producer_epoch < epoch:
            where = f"{name}@{header.base_offset}"
            raise Violation("I15 epochs", f"{where}: {header.producer_epoch} after {epoch}")
        epochs[header.producer_id] = header.producer_epoch
        if marker is not None or header.is_control:
            continue
        key = (header.producer_id, header.producer_epoch)
        expected = sequences.get(key, 0)
        if header.base_sequence != expected:
            where = f"{name}@{header.base_offset}"
            raise Violation("I14 sequences", f"{where}: {header.base_sequence}, not {expected}")
        sequences[key] = header.last_sequence + 1
