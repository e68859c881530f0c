"""The producer's decisions: where records go, when batches leave, what a failure means.

Promises, with `idempotent` (the default): records of a partition are stored in the order of
`append`, each at most once, however often a batch is sent again, and with up to `in_flight_max`
requests under way per broker. How: a batch gets its sequence numbers when it is first sent and
keeps its bytes across retries; the first batch of an identity goes alone; after a failure the
partition goes one batch at a time until what failed has been settled; a batch that was sent once
and refused for its sequence was not stored, so when nothing before it is outstanding it may take a
fresh identity without becoming a duplicate.

No socket, no thread, no clock: a shell calls `append`, sends what `calls` returns, reports with
`finish`, and runs `prepare` before, which fetches metadata and producer ids where need be.
Left out: transactions, which `transactional` adds; queue-weighted partitions (rest of KIP-794).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.client.batching import (
    Batch,
    Delivery,
    EncodedRecords,
    Identity,
    PartitionQueue,
    ProducerRecord,
    split,
)
from tidelog.client.connection import Call
from tidelog.client.faults import (
    ConnectError,
    NetworkError,
    RequestTimeoutError,
    error_code,
    raise_for,
)
from tidelog.client.metadata import ANY, Cluster
from tidelog.client.operation import (
    Action,
    Operation,
    UnknownPartitionError,
    action_for,
    ask,
    backoff_seconds,
    retried,
    try_refresh,
)
from tidelog.client.partitioner import StickyPartitioner, partition_for_key
from tidelog.client.settings import ProducerSettings
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.host.random import Random
from tidelog.model import NO_TOPIC_ID, TopicPartition
from tidelog.protocol.batches import Record

if TYPE_CHECKING:
    from tidelog.protocol.messages.produce import ProduceResponse

# From this version on a produce request names topics by id only.
_TOPIC_ID_VERSION = 13
SEQUENCE_LOST = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_MAY_WRITE_NOTHING = (
    "an idempotent producer needs Write on a topic, or IdempotentWrite on the cluster"
)
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


@dataclass(slots=True, eq=False)
class ProduceCall:
    """A produce request under way, and the batches in it."""

    call: Call
    batches: list[Batch]


class ProducerCore:
    """Everything of a producer but its sockets; see the module's docstring."""

    def __init__(self, settings: ProducerSettings, cluster: Cluster, random: Random) -> None:
        self.settings = settings
        self.cluster = cluster
        self.identity: Identity | None = None
        self.buffered_bytes = 0
        # The smallest batch that a topic has refused as too large.
        self.refused_bytes: dict[str, int] = {}
        self.batch_filled = False
        self.flushing = False
        self._random = random
        self._sticky: dict[str, StickyPartitioner] = {}
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._in_flight: dict[int, int] = {}
        self._order = 0
        self._completed: list[Batch] = []
        self._stale: set[str] = set()

    @property
    def needs_identity(self) -> bool:
        """True where batches wait for a producer id (`init_producer_id`)."""
        return (
            self.settings.idempotent
            and self.identity is None
            and any(queue.waiting or queue.retries for queue in self._queues.values())
        )

    @property
    def idle(self) -> bool:
        """True where nothing waits and nothing is under way."""
        return not any(
            queue.waiting or queue.retries or queue.in_flight for queue in self._queues.values()
        )

    @property
    def unsent_records(self) -> int:
        """How many of the records that wait are surely not stored by any broker."""
        return sum(
            batch.record_count
            for queue in self._queues.values()
            for batches in (queue.waiting, queue.retries)
            for batch in batches
            if not batch.maybe_stored
        )

    def ready_for(self, topic: str) -> bool:
        """False where the topic must be looked up before `append`; an old look is renewed later."""
        if self.cluster.is_fresh(topic):
            return True
        self._stale.add(topic)
        return self.cluster.knows(topic)

    def has_room(self, size_bytes: int) -> bool:
        """True where a record of that size fits in the buffer; a lone record always does."""
        buffered = self.buffered_bytes
        return not buffered or buffered + size_bytes <= self.settings.buffer_bytes

    def append(self, record: ProducerRecord, now: float) -> Delivery:
        """Put a record in a batch. The topic's metadata must be known."""
        size = record.size_bytes
        number = self._choose(record, size)
        queue = self._queues.get((record.topic, number))  # type: ignore[call-overload]
        if queue is None:
            queue = self._new_queue(TopicPartition(record.topic, number))
        batch = queue.waiting[-1] if queue.waiting else None
        limit = self.settings.batch_bytes
        if batch is None or batch.payload is not None or batch.size_bytes + size > limit:
            self.batch_filled |= batch is not None
            batch = self._open_batch(queue, now)
        timestamp = record.timestamp_ms
        if timestamp is None:
            timestamp = self.cluster.clock.wall_ms()
        records = batch.records
        records.append(Record(0, timestamp, record.key, record.value, list(record.headers)))
        batch.size_bytes += size
        self.buffered_bytes += size
        if batch.size_bytes >= limit:
            self.batch_filled = True
        return Delivery(batch, len(records) - 1)

    def append_encoded(
        self, partition: TopicPartition, payload: EncodedRecords, now: float
    ) -> None:
        """Queue records that are a batch of their own, due at once. The topic must be known."""
        queue = self._queues.get(partition) or self._new_queue(partition)
        batch = self._open_batch(queue, now)
        batch.payload = payload
        self.buffered_bytes += payload.size_bytes - batch.size_bytes
        batch.size_bytes = payload.size_bytes
        self.batch_filled = True

    def _new_queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues[partition] = PartitionQueue(partition)
        return queue

    def _open_batch(self, queue: PartitionQueue, now: float) -> Batch:
        self._order += 1
        deadline = now + self.settings.delivery_timeout_ms / 1000
        batch = Batch(queue.partition, (self._order,), now, deadline)
        self.buffered_bytes += batch.size_bytes
        queue.waiting.append(batch)
        return batch

    def _choose(self, record: ProducerRecord, size_bytes: int) -> int:
        topic = record.topic
        partitions = self.cluster.topics[topic].partitions
        if record.partition is not None:
            if record.partition not in partitions:
                raise UnknownPartitionError(TopicPartition(topic, record.partition))
            return record.partition
        if record.key is not None:
            return partition_for_key(record.key, len(partitions))
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = StickyPartitioner(self._random, self.settings.batch_bytes)
            self._sticky[topic] = sticky
        available = [number for number, state in partitions.items() if state.leader >= 0]
        return sticky.choose(available or list(partitions), size_bytes)

    def calls(self, now: float) -> list[ProduceCall]:
        """The requests to send now; each is reported with `finish` when it is over."""
        self._expire(now)
        self.batch_filled = False
        calls: list[ProduceCall] = []
        while True:
            round_calls = self._round(now)
            if not round_calls:
                return calls
            calls += round_calls

    def _round(self, now: float) -> list[ProduceCall]:
        """At most one batch per partition and one request per leader."""
        batches: dict[int, list[Batch]] = {}
        sizes: dict[int, int] = {}
        for queue in self._queues.values():
            batch = self._ready(queue, now)
            if batch is None:
                continue
            node = self.cluster.leader(*queue.partition)
            if node < 0:
                self._stale.add(queue.partition.topic)
                queue.searches += 1
                queue.blocked_until = now + backoff_seconds(self.cluster, queue.searches)
                continue
            if queue.in_flight and queue.node != node:
                continue
            full = sizes.get(node, 0) + batch.size_bytes > self.settings.request_bytes
            if self._in_flight.get(node, 0) >= self.settings.in_flight_max or (
                full and node in batches
            ):
                continue
            self._start(queue, batch, node)
            batches.setdefault(node, []).append(batch)
            sizes[node] = sizes.get(node, 0) + batch.size_bytes
        return [self._call(node, group) for node, group in batches.items()]

    def _ready(self, queue: PartitionQueue, now: float) -> Batch | None:
        if queue.blocked_until > now:
            return None
        if queue.retries:
            batch = queue.retries[0]
            unnamed = self.settings.idempotent and batch.identity is None and not self.identity
            return None if queue.in_flight or batch.retry_at > now or unnamed else batch
        if not queue.waiting:
            return None
        if self.settings.idempotent:
            # Only within one identity do sequences keep the order, so a change waits for answers;
            # and a leader takes any sequence from an identity new to it, so its first goes alone.
            others = any(batch.identity != self.identity for batch in queue.in_flight)
            alone = queue.in_flight and queue.known_as != self.identity
            if self.identity is None or others or alone:
                return None
        batch = queue.waiting[0]
        due = (
            self.flushing
            or len(queue.waiting) > 1
            or batch.payload is not None
            or batch.size_bytes >= self.settings.batch_bytes
            or now >= batch.created + self.settings.linger_ms / 1000
            or self.buffered_bytes * 2 > self.settings.buffer_bytes
        )
        return batch if due else None

    def _start(self, queue: PartitionQueue, batch: Batch, node: int) -> None:
        if queue.retries:
            queue.retries.pop(0)
        else:
            queue.waiting.popleft()
        if self.settings.idempotent and batch.identity is None:
            assert self.identity is not None
            queue.stamp(batch, self.identity)
        batch.attempts += 1
        queue.node = node
        queue.searches = 0
        queue.in_flight.append(batch)

    def _call(self, node: int, batches: list[Batch]) -> ProduceCall:
        from tidelog.protocol.messages.produce import (
            PartitionProduceData,
            ProduceRequest,
            TopicProduceData,
        )

        self._in_flight[node] = self._in_flight.get(node, 0) + 1
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name, number = batch.partition
            topic = topics.get(name)
            if topic is None:
                topic = TopicProduceData(name=name, topic_id=self.cluster.topic_id(name))
                topics[name] = topic
            records = batch.encode(self.settings.codec, self.settings.compression_level)
            topic.partition_data.append(PartitionProduceData(index=number, records=records))
        request = ProduceRequest(
            acks=self.settings.acks,
            timeout_ms=self.cluster.settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        call = Call(node, "Produce", request, answered=self.settings.acks != 0)
        if any(topic.topic_id == NO_TOPIC_ID for topic in topics.values()):
            call.max_version = _TOPIC_ID_VERSION - 1
        return ProduceCall(call, batches)

    def finish(self, produce: ProduceCall, outcome: object, now: float) -> None:
        """Report what became of a request: its response, None for acks=0, or its error."""
        self._in_flight[produce.call.node] -= 1
        for batch in produce.batches:
            self._queues[batch.partition].in_flight.remove(batch)
        if outcome is None:
            for batch in produce.batches:
                self._complete(batch)
        elif isinstance(outcome, NetworkError):
            for batch in produce.batches:
                self._stale.add(batch.partition.topic)
                batch.unsure |= not isinstance(outcome, ConnectError)
                self._retry(batch, outcome, now)
        elif isinstance(outcome, TidelogError):
            for batch in produce.batches:
                self._complete(batch, outcome)
        else:
            self._take_response(produce, outcome, now)  # type: ignore[arg-type]

    def _take_response(self, produce: ProduceCall, response: ProduceResponse, now: float) -> None:
        results = {}
        for topic in response.responses:
            name = topic.name or self.cluster.topic_names.get(topic.topic_id, "")
            for result in topic.partition_responses:
                results[TopicPartition(name, result.index)] = result
        for batch in produce.batches:
            if batch.partition not in results:
                missing = KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker left {batch.partition} unanswered"
                )
                self._complete(batch, missing)
                continue
            result = results[batch.partition]
            if result.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                batch.base_offset = result.base_offset
                batch.append_time_ms = result.log_append_time_ms
                self._complete(batch)
            else:
                code = error_code(result.error_code)
                message = result.error_message or code.message
                self._refused(batch, KafkaError(code, f"{batch.partition}: {message}"), now)

    def _refused(self, batch: Batch, error: KafkaError, now: float) -> None:
        queue = self._queues[batch.partition]
        action = action_for(error.code)
        if error.code in SEQUENCE_LOST and self.settings.idempotent:
            self._out_of_sequence(batch, error, now)
        elif error.code in _TOO_LARGE and batch.record_count > 1:
            refused = self.refused_bytes.get(batch.partition.topic, batch.size_bytes)
            self.refused_bytes[batch.partition.topic] = min(refused, batch.size_bytes)
            for half in split(batch):
                queue.put_back(half)
        elif action is Action.FAIL:
            self._complete(batch, error)
        else:
            if action is Action.REFRESH:
                self._stale.add(batch.partition.topic)
            self._retry(batch, error, now)

    def _out_of_sequence(self, batch: Batch, error: KafkaError, now: float) -> None:
        """Refused for its sequence, so not stored now: it came too soon, or must start afresh."""
        came_too_soon = error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._queues[
            batch.partition
        ].precedes(batch)
        if batch.unsure and not came_too_soon:
            # An earlier try may have been stored, and the broker cannot tell: it has forgotten us,
            # or our older batches (a restart leaves it the last one). Again could be twice.
            self._complete(batch, error)
            return
        again_at = None
        if not self._queues[batch.partition].precedes(batch):
            if self.identity == batch.identity:
                self.identity = None
            batch.stamp(None, -1)
            if not batch.renewed:
                # Nothing is wrong with the broker, so there is nothing to wait for.
                again_at = now
            batch.renewed = True
        self._retry(batch, error, now)
        if again_at is not None:
            batch.retry_at = again_at

    def _retry(self, batch: Batch, error: TidelogError, now: float) -> None:
        if now >= batch.deadline:
            self._complete(batch, error)
            return
        batch.retry_at = now + backoff_seconds(self.cluster, batch.attempts)
        batch.error = error
        batch.unsure = batch.maybe_stored
        self._queues[batch.partition].put_back(batch)

    def _complete(self, batch: Batch, error: TidelogError | None = None) -> None:
        batch.done = True
        batch.error = error
        if error is None:
            self._queues[batch.partition].known_as = batch.identity
        batch.encoded = None
        self.buffered_bytes -= batch.size_bytes
        self._completed.append(batch)

    def _expire(self, now: float) -> None:
        for queue in self._queues.values():
            for batches in (queue.retries, queue.waiting):
                while batches and batches[0].deadline <= now:
                    batch = batches[0]
                    del batches[0]
                    waited = self.settings.delivery_timeout_ms
                    late = RequestTimeoutError(
                        str(batch.partition), f"not delivered within {waited} ms"
                    )
                    self._complete(batch, batch.error or late)

    def take_completed(self) -> list[Batch]:
        """The batches that were delivered or given up since the last call."""
        completed, self._completed = self._completed, []
        return completed

    def prepare(self) -> Operation[None]:
        """Have what the next calls need: a producer id, and metadata that is not stale."""
        if self.needs_identity:
            self.identity = yield from init_producer_id(self.cluster)
        stale = self.take_stale_topics()
        if stale:
            yield from try_refresh(self.cluster, stale, create=self.settings.auto_create_topics)

    def take_stale_topics(self) -> set[str]:
        """The topics whose metadata must be fetched before their batches can move on."""
        stale, self._stale = self._stale, set()
        self.cluster.forget(stale)
        return stale

    def next_wakeup(self, now: float) -> float | None:
        """When `calls` may have something new though nothing was appended or answered.

        What is due already waits for an answer, not for the time.
        """
        times: list[float] = []
        for queue in self._queues.values():
            times.append(queue.blocked_until)
            if queue.retries:
                times += (queue.retries[0].retry_at, queue.retries[0].deadline)
            elif queue.waiting:
                linger = self.settings.linger_ms / 1000
                times += (queue.waiting[0].created + linger, queue.waiting[0].deadline)
        return min((moment for moment in times if moment > now), default=None)


@retried
def init_producer_id(cluster: Cluster) -> Operation[Identity]:
    """A producer id of our own from any broker."""
    from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest

    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    response = yield from ask(Call(ANY, "InitProducerId", request))
    if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        # The code names the cluster, though it is about topics as a rule.
        raise_for(response.error_code, _MAY_WRITE_NOTHING)
    raise_for(response.error_code)
    return Identity(response.producer_id, response.producer_epoch)
