"""What clients do in a simulated world, and the history of it that `tests/history` judges.

Every value is unique, and it is known where it belongs: to which topic, under which id. The
clients are the product's own (`client/aio`), on machines of their own. What they were told goes to
the observer as well, who knows the logs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from tests.history.events import Acknowledged, Assigned, Event, LogRead, Polled, Record, Sent
from tests.sim import invariants
from tests.sim.ghost import Violation
from tests.sim.moves import Moves
from tests.sim.observer import Observer
from tidelog.client.admin import NewTopic, create_topic, delete_records, delete_topic
from tidelog.client.aio import Client, Consumer, Producer
from tidelog.client.batching import Delivery, ProducerRecord
from tidelog.client.connection import Call
from tidelog.client.offsets import EARLIEST, LATEST, Start, list_offsets
from tidelog.client.operation import UnknownTopicError, topic_metadata
from tidelog.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model import TopicPartition
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.testing.simulation.machines import World

MAIN: Final = "main"
SHORT: Final = "short-lived"
PRUNED: Final = "pruned"
_OUTSTANDING_MAX: Final = 8
# A record that was refused with one of these is not in the log, now or ever. NOT_LEADER_OR_FOLLOWER
# is not among them: as in Kafka, a produce that waits hears it when another broker leads.
_DEFINITE: Final = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


@dataclass(slots=True)
class Counts:
    """How much was done, to be sure that something was."""

    acknowledged: int = 0
    acknowledged_by_one: int = 0
    refused: int = 0
    unknown: int = 0
    read: int = 0
    topics_created: int = 0
    topics_deleted: int = 0
    pruned: int = 0
    asked: int = 0


@dataclass(slots=True)
class Told:
    """The highest ends of a partition's log that were told, and what was deleted for good."""

    latest: int = -1
    earliest: int = -1
    deleted: int = -1
    # After how many elections of replicas that were not in sync.
    elections: int = 0


class Workload:
    """The clients of one world."""

    def __init__(self, world: World, observer: Observer, seed: int, topic_configs: dict[str, str]):
        self._world = world
        self._observer = observer
        self._chance = random.Random(f"{seed}/clients")
        self._configs = topic_configs
        # Most worlds are small: what matters happens to one partition, and more of them run.
        self._is_small = self._chance.random() < 0.6
        self._partitions = 1 if self._is_small else 2
        self.history: list[Event] = []
        self.counts = Counts()
        self._time_ns = 0
        self._value = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False
        # How much longer pauses are than they were, once the faults are over.
        self._calm = 1
        self._ends: dict[TopicPartition, int] | None = None
        self.moves: Moves | None = None
        # By value: the topic and its id, for what comes back from a log.
        self._homes: dict[int, tuple[str, UUID | None]] = {}
        self._refused: dict[int, str] = {}
        self._told: dict[TopicPartition, Told] = {}
        self._client_settings = ClientSettings(
            connect_timeout_ms=2_000, request_timeout_ms=4_000, operation_timeout_ms=20_000,
            metadata_max_age_ms=5_000,
        )  # fmt: skip

    # -- from outside -----------------------------------------------------------------------------

    async def prepare(self) -> None:
        """The topics that are there all the time, once every broker is."""
        for machine in self._world.machines.values():
            while not machine.is_serving:
                await asyncio.sleep(0.1)
        async with self._client() as client:
            await self._create(client, MAIN, self._partitions)
            if not self._is_small:
                await self._create(client, PRUNED, 1)

    def start(self) -> None:
        chance = self._chance
        self._run(self._produce("p1", self._partitions, 0.15 if self._is_small else 0.05))
        if chance.random() < 0.7:
            self._run(self._produce_one_by_one(acks=chance.choice((-1, 1))))
        self._run(self._consume("r1"))
        if self._is_small:
            return
        if chance.random() < 0.5:
            self._run(self._consume("r2"))
        if chance.random() < 0.6:
            self._run(self._ask_for_ends())
        if chance.random() < 0.4:
            self._run(self._churn())
        if chance.random() < 0.4:
            self._run(self._prune())

    def start_moves(self, seed: int) -> None:
        """Have replicas moved and leaders elected, too."""
        self.moves = Moves(self._client(), len(self._world.machines), seed)
        self._run(self.moves.run())

    def calm_down(self) -> None:
        """Go on, slowly: what must come true now must do so while there is something to do."""
        if self.moves is not None:
            self.moves.is_over = True
        self._calm = 20

    async def stop(self, timeout_s: float) -> None:
        """End the clients; L3 where a call of theirs has not ended in time."""
        self._is_over = True
        readers = [task for task in self._tasks if task.get_name() == self._consume.__qualname__]
        others = [task for task in self._tasks if task not in readers]
        _, pending = await asyncio.wait(others, timeout=timeout_s)
        if not pending:
            # What is there now is what the readers must see.
            partitions = [TopicPartition(MAIN, number) for number in range(self._partitions)]
            async with self._client() as client:
                latest = dict.fromkeys(partitions, LATEST)
                ends = await client.run(list_offsets(client.cluster, latest))
            self._ends = {partition: found.offset for partition, found in ends.items()}
            _, pending = await asyncio.wait(readers, timeout=timeout_s)
        if pending:
            where = ", ".join(sorted(task.get_name() for task in pending))
            raise Violation("L3 calls end", f"after {timeout_s} s these still wait: {where}")
        for task in self._tasks:
            task.result()

    async def drain(self, timeout_s: float) -> None:
        """Read every partition of the main topics from its start to its end."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._read_all("drain", MAIN, self._partitions)
                if not self._is_small:
                    await self._read_all("drain", PRUNED, 1)
        except TimeoutError:
            raise Violation("L1 leaders", "the logs cannot be read to their ends") from None

    # -- the clients ------------------------------------------------------------------------------

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        node = self._world.client_node()
        task = node.start(coroutine)
        task.set_name(coroutine.__qualname__)
        self._tasks.append(task)

    def _client(self) -> Client:
        return Client(self._world.servers, self._client_settings, self._world.client_host())

    async def _create(self, client: Client, topic: str, partitions: int) -> None:
        new = NewTopic(topic, partitions, configs=self._configs)
        try:
            await client.run(create_topic(client.cluster, new))
        except KafkaError as error:
            # A repeated request finds what the first one made.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        self.counts.topics_created += 1

    async def _produce(self, name: str, partitions: int, pause_s: float) -> None:
        """Sends to the main topic as an idempotent producer with acks=all does."""
        settings = ProducerSettings(
            delivery_timeout_ms=15_000, auto_create_topics=False, client=self._client_settings
        )
        producer = Producer(self._world.servers, settings, self._world.client_host())
        waits: set[asyncio.Task[None]] = set()
        while not self._is_over:
            for _ in range(self._chance.choice((1, 1, 2, 5))):
                partition = TopicPartition(MAIN, self._chance.randrange(partitions))
                value = self._new_value(MAIN)
                self._note(Sent(self._now(), name, _text(partition), value))
                record = ProducerRecord(MAIN, b"%d" % value, partition=partition.partition)
                try:
                    delivery = await producer.send(record)
                except TidelogError:
                    continue
                waiting = self._await_delivery(producer, delivery, (name, partition, value))
                waits.add(asyncio.create_task(waiting))
            await self._pause(pause_s)
            while len(waits) > _OUTSTANDING_MAX:
                _, waits = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*waits)
        await producer.close()

    async def _await_delivery(
        self, producer: Producer, delivery: Delivery, sent: tuple[str, TopicPartition, int]
    ) -> None:
        name, partition, value = sent
        try:
            offset = await producer.wait(delivery)
        except TidelogError:
            self.counts.unknown += 1
            return
        self._acknowledged(name, partition, offset, value)

    async def _produce_one_by_one(self, acks: int) -> None:
        """Sends requests by hand, one at a time and each once, so that every refusal is known."""
        client = self._client()
        while not self._is_over:
            await self._pause(0.15)
            partition = TopicPartition(MAIN, self._chance.randrange(self._partitions))
            try:
                await client.run(topic_metadata(client.cluster, [MAIN]))
            except (TidelogError, UnknownTopicError):
                continue
            leader = client.cluster.leader(*partition)
            if leader < 0:
                client.cluster.forget([MAIN])
                continue
            await self._send_once(client, partition, leader, acks)
        await client.close()

    async def _send_once(
        self, client: Client, partition: TopicPartition, leader: int, acks: int
    ) -> None:
        value = self._new_value(MAIN)
        self._note(Sent(self._now(), "once", _text(partition), value))
        call = Call(leader, "Produce", produce_request(partition, value, acks), 9)
        outcome: Any = await client.network.request(call)
        if isinstance(outcome, TidelogError):
            client.cluster.forget([MAIN])
            self.counts.unknown += 1
            return
        answer = outcome.responses[0].partition_responses[0]
        if answer.error_code:
            client.cluster.forget([MAIN])
            if answer.error_code in _DEFINITE:
                self.counts.refused += 1
                self._refused[value] = ErrorCode(answer.error_code).name
        elif acks == -1:
            self._acknowledged("once", partition, answer.base_offset, value)
        else:
            self.counts.acknowledged_by_one += 1
            self._observer.acknowledged_by_one(partition, answer.base_offset, leader)

    async def _consume(self, name: str) -> None:
        """Reads the main topic from its start, as it grows."""
        consumer = Consumer(
            self._world.servers,
            ConsumerSettings(max_wait_ms=300, client=self._client_settings),
            self._world.client_host(),
        )
        partitions = [TopicPartition(MAIN, number) for number in range(self._partitions)]
        await self._insist(lambda: consumer.assign(dict.fromkeys(partitions, Start("start"))))
        self._note(Assigned(self._now(), name, None, tuple(map(_text, partitions))))
        while self._ends is None or any(
            consumer.core.positions[each].position < end for each, end in self._ends.items()
        ):
            try:
                polled = await consumer.poll(0.5)
            except KafkaError as error:
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    # Nobody deletes from this topic: what was read is gone.
                    raise Violation("I4 consistent read", f"{name} is told {error}") from error
                continue
            except TidelogError:
                continue
            for partition, records in polled:
                self._was_given(name, partition, records, as_member=True)
        await consumer.close()

    async def _ask_for_ends(self) -> None:
        """I7, I8: the ends that clients are told never go back."""
        async with self._client() as client:
            while not self._is_over:
                await self._pause(0.3)
                partition = TopicPartition(*self._chance.choice(((MAIN, 0), (PRUNED, 0))))
                which = self._chance.choice((LATEST, EARLIEST))
                told = self._told_of(partition)
                before = told.latest if which == LATEST else told.earliest
                elections = told.elections
                try:
                    found = await client.run(list_offsets(client.cluster, {partition: which}))
                except TidelogError:
                    continue
                self.counts.asked += 1
                offset = found[partition].offset
                if which == EARLIEST:
                    self._starts(partition, offset, before, elections)
                elif offset < before:
                    what = f"{_text(partition)} went from {before} to {offset}"
                    raise Violation("I7 latest offset", what)
                else:
                    told.latest = max(told.latest, offset)

    def _told_of(self, partition: TopicPartition) -> Told:
        """What was told of a partition that must still hold."""
        told = self._told.setdefault(partition, Told())
        ghost = self._observer.find(partition)
        elections = 0 if ghost is None else ghost.elections_out_of_sync
        if elections != told.elections:
            # Who was away may lead with an earlier start: no deletion that was acknowledged is
            # undone by that, but one that only the replicas in sync had.
            told.earliest, told.elections = told.deleted, elections
        return told

    def _starts(self, partition: TopicPartition, start: int, before: int, elections: int) -> None:
        """I8: a client is told where a log starts; when it asked, another start was known."""
        told = self._told_of(partition)
        if start < before and (told.elections == elections or start < told.deleted):
            raise Violation("I8 log start", f"{_text(partition)} went from {before} to {start}")
        told.earliest = max(told.earliest, start)

    async def _churn(self) -> None:
        """Creates a topic, writes to it, reads it, deletes it, and so on: I9, I29."""
        async with self._client() as client:
            while not self._is_over:
                try:
                    await self._create(client, SHORT, 1)
                    await self._write_some(client, SHORT)
                    await self._read_all("churn", SHORT, 1)
                    await client.run(delete_topic(client.cluster, SHORT))
                    self.counts.topics_deleted += 1
                except (TidelogError, TimeoutError):
                    await asyncio.sleep(0.5)

    async def _prune(self) -> None:
        """Writes to a topic and deletes the oldest records of it."""
        partition = TopicPartition(PRUNED, 0)
        async with self._client() as client:
            while not self._is_over:
                await self._pause(0.5)
                try:
                    await self._write_some(client, PRUNED)
                    ends = await client.run(list_offsets(client.cluster, {partition: LATEST}))
                    before = self._chance.randint(0, ends[partition].offset)
                    await client.run(delete_records(client.cluster, {partition: before}))
                    self.counts.pruned += 1
                    # From now on no leader may show what lies before it.
                    told = self._told_of(partition)
                    told.deleted = max(told.deleted, before)
                    told.earliest = max(told.earliest, before)
                except TidelogError:
                    continue

    async def _write_some(self, client: Client, topic: str) -> None:
        partition = TopicPartition(topic, 0)
        await client.run(topic_metadata(client.cluster, [topic]))
        leader = client.cluster.leader(topic, 0)
        for _ in range(3):
            value = self._new_value(topic)
            request = produce_request(partition, value, -1)
            told = self._told_of(partition)
            before, elections = told.earliest, told.elections
            outcome: Any = await client.network.request(Call(leader, "Produce", request, 9))
            if topic == PRUNED and not isinstance(outcome, TidelogError):
                answer = outcome.responses[0].partition_responses[0]
                if not answer.error_code and answer.log_start_offset >= 0:
                    self._starts(partition, answer.log_start_offset, before, elections)
            if self._topic_id(topic) != self._homes[value][1]:
                # Which of the two has it is not known.
                self._homes[value] = topic, None
            if isinstance(outcome, TidelogError):
                raise outcome

    async def _read_all(self, name: str, topic: str, count: int) -> None:
        """Read a topic from its start to the end that it has when this begins."""
        settings = ConsumerSettings(
            max_wait_ms=200, out_of_range="earliest", client=self._client_settings
        )
        consumer = Consumer(self._world.servers, settings, self._world.client_host())
        partitions = [TopicPartition(topic, number) for number in range(count)]
        starts = await self._insist(
            lambda: consumer.assign(dict.fromkeys(partitions, Start("start")))
        )
        ends = await self._insist(
            lambda: consumer.run(list_offsets(consumer.cluster, dict.fromkeys(partitions, LATEST)))
        )
        left = {tp: found.offset for tp, found in ends.items() if found.offset > starts[tp]}
        while left and not (self._is_over and name == "churn"):
            try:
                polled = await consumer.poll(0.5)
            except TidelogError:
                continue
            for partition, records in polled:
                self._was_given(name, partition, records, as_member=False)
                if records and records[-1].offset + 1 >= left.get(partition, 1 << 60):
                    del left[partition]
        await consumer.close()

    async def _pause(self, seconds: float) -> None:
        # Not for longer than whoever ends the clients waits for them.
        drawn = min(self._chance.expovariate(1 / seconds), 4 * seconds)
        await asyncio.sleep(drawn * self._calm)

    async def _insist(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        while True:
            try:
                return await call()
            except (KafkaError, TidelogError):
                if self._is_over and len(self._world.machines) > 1:
                    raise
                await asyncio.sleep(0.5)

    # -- what is noted ----------------------------------------------------------------------------

    def _now(self) -> int:
        """A time in nanoseconds, another one at every call."""
        self._time_ns = max(self._time_ns + 1, int(self._world.loop.now * 1e9))
        return self._time_ns

    def _note(self, event: Event) -> None:
        self.history.append(event)

    def _new_value(self, topic: str) -> int:
        self._value += 1
        self._homes[self._value] = topic, self._topic_id(topic)
        return self._value

    def _topic_id(self, topic: str) -> UUID | None:
        found = self._observer.image.topics.get(topic)
        return None if found is None else found.topic_id

    def _acknowledged(self, name: str, partition: TopicPartition, offset: int, value: int) -> None:
        self.counts.acknowledged += 1
        self._note(Acknowledged(self._now(), name, _text(partition), offset, value))
        self._observer.acknowledged(partition, offset, value)

    def _was_given(
        self, name: str, partition: TopicPartition, records: list[Any], *, as_member: bool
    ) -> None:
        found = []
        for record in records:
            value = int(bytes(record.value))
            topic, _ = home = self._homes[value]
            invariants.i9_topic_ids(partition, value, home, self._topic_id(partition.topic))
            if value in self._refused:
                raise Violation(
                    "I13 definite errors",
                    f"{value} was refused with {self._refused[value]} and is at"
                    f" {_text(partition)}@{record.offset}",
                )
            found.append(Record(_text(partition), record.offset, value))
            if topic == MAIN:
                self._observer.given(partition, record.offset, value)
        self.counts.read += len(found)
        if partition.topic != MAIN or not found:
            return
        if as_member:
            self._note(Polled(self._now(), name, None, tuple(found)))
        else:
            self._note(LogRead(self._now(), name, tuple(found)))


def _text(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def produce_request(partition: TopicPartition, value: int, acks: int) -> ProduceRequest:
    from tidelog.protocol.batches import Record as BatchRecord
    from tidelog.protocol.batches import encode_batch

    data = encode_batch([BatchRecord(value=b"%d" % value)])
    topic = TopicProduceData(
        name=partition.topic, partition_data=[PartitionProduceData(partition.partition, data)]
    )
    return ProduceRequest(acks=acks, timeout_ms=3_000, topic_data=[topic])
