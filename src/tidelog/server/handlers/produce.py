"""Produce (key 0), advertised from version 0, served from 3 to 13.

Behaviour: every partition of the request is admitted (checksum, records, limits), then appended in
arrival order, then answered: once committed for acks=all, at once for acks=1 or, on a topic with
`durability=fsync`, once it is on this broker's disk. A refused partition does not hold up the
others. acks=0 has no answer, so a failure closes the connection, which is how the client learns to
look again.
Versions: 0 to 2 are advertised since librdkafka tests for them, and close the connection; 7 allows
zstd; 8 carries record errors (KIP-467); 10 who leads instead (KIP-951); 13 topic ids.
Gaps: transactional batches are refused until there is a transaction coordinator.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tidelog.cluster.names import INTERNAL_TOPICS
from tidelog.errors import ErrorCode, InvalidRecordsError, KafkaError
from tidelog.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.protocol.primitives import Buffer
from tidelog.replication.partition import Partition
from tidelog.replication.waiters import CommitWait
from tidelog.security.authorizer import Operation
from tidelog.server.dispatch import CloseConnection
from tidelog.server.handlers.leaders import CurrentLeaders
from tidelog.server.handlers.produce_large import join, split
from tidelog.server.routes import served
from tidelog.server.tools import DataContext
from tidelog.storage.admission import (
    LOOP_CHECKED_BYTES,
    LOOP_CODEC_BYTES,
    Admitted,
    admit,
    takes_a_codec,
)

_VERSION_WITH_ZSTD = 7
_VERSION_WITH_LEADERS = 10
_VERSION_WITH_TOPIC_IDS = 13


class Judged:
    """One partition of a request after the prepare stage."""

    __slots__ = ("admitted", "error", "partition", "records", "takes_a_codec")

    def __init__(self, partition: Partition | None, error: KafkaError | None = None) -> None:
        self.partition = partition
        self.error = error
        self.records: Buffer | None = None
        self.takes_a_codec = False
        self.admitted: Admitted | None = None


class _TakesLong(Exception):
    """A small batch inflates to more than the loop has time for."""


def prepare(
    request: ProduceRequest, context: DataContext
) -> list[Judged] | asyncio.Future[list[Judged]]:
    """Find the partitions and admit their batches, on a thread where that may take long."""
    now_ms = context.tools.clock.wall_ms()
    refusal: KafkaError | None = None
    if request.acks not in (-1, 0, 1):
        refusal = KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it can be 0, 1 or -1 (all)"
        )
    allow_zstd = context.version >= _VERSION_WITH_ZSTD
    found: list[Judged] = []
    checked_bytes = codec_bytes = 0
    for topic in request.topic_data:
        name = _topic_name(topic, context)
        for data in topic.partition_data:
            judged = Judged(None, refusal) if refusal else _find(name, data, context)
            found.append(judged)
            if judged.partition is not None and data.records is not None:
                judged.records = data.records
                checked_bytes += len(data.records)
                if takes_a_codec(data.records, judged.partition.config, now_ms):
                    judged.takes_a_codec = True
                    codec_bytes += len(data.records)
    if checked_bytes <= LOOP_CHECKED_BYTES and codec_bytes <= LOOP_CODEC_BYTES:
        with suppress(_TakesLong):
            return _judge_all(found, now_ms, allow_zstd, on_loop=True)
    return context.tools.offload.run(_judge_all, found, now_ms, allow_zstd)


@served(prepare=prepare, overlaps=True, waits=True, is_brief=True, parts=(split, join))
def produce(
    request: ProduceRequest, context: DataContext
) -> ProduceResponse | asyncio.Future[ProduceResponse] | None:
    judged: list[Judged] = context.prepared  # type: ignore[assignment]
    context.prepared = None
    answers = _append_all(request, judged, context)
    answers.context = context if context.version >= _VERSION_WITH_LEADERS else None
    if request.acks == 0:
        failed = next((answer for answer in answers.each() if answer.error_code), None)
        if failed is not None:
            name = ErrorCode(failed.error_code).name
            raise CloseConnection(f"produce with acks=0 failed: {name} {failed.error_message}")
        return None
    if not answers.waits:
        return answers.finished()
    return answers.when_committed()


class Answers:
    """The answer of a produce, and the commits that it waits for."""

    __slots__ = ("_future", "_left", "context", "is_moved", "response", "waits")

    def __init__(self) -> None:
        self.response = ProduceResponse()
        self.waits: list[tuple[PartitionProduceResponse, CommitWait]] = []
        # Some partition was refused because another broker leads it.
        self.is_moved = False
        # Where the client understands who.
        self.context: DataContext | None = None

    def each(self) -> list[PartitionProduceResponse]:
        return [part for topic in self.response.responses for part in topic.partition_responses]

    def when_committed(self) -> asyncio.Future[ProduceResponse]:
        """The answer once every append is committed, has failed, or its time is up."""
        self._future: asyncio.Future[ProduceResponse]
        self._future = asyncio.get_running_loop().create_future()
        self._future.add_done_callback(self._client_left)
        self._left = len(self.waits)
        for _, wait in self.waits:
            wait.add_done_callback(self._one_ended)
        return self._future

    def _one_ended(self, _: object) -> None:
        self._left -= 1
        if self._left or self._future.done():
            return
        for answer, wait in self.waits:
            error = wait.exception()
            # Where the time is up the records are in the log and may yet be committed: a retry is
            # told apart by its sequence number.
            if isinstance(error, KafkaError):
                self.refuse(answer, error)
        self._future.set_result(self.finished())

    def refuse(self, answer: PartitionProduceResponse, error: KafkaError) -> None:
        _refuse(answer, error)
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.is_moved = True

    def finished(self) -> ProduceResponse:
        if self.is_moved and self.context is not None:
            _name_leaders(self.response, self.context)
        return self.response

    def _client_left(self, future: asyncio.Future[ProduceResponse]) -> None:
        if future.cancelled():
            self.let_go()

    def let_go(self) -> None:
        """Wait no more."""
        for _, wait in self.waits:
            wait.cancel()


def _append_all(request: ProduceRequest, judged: list[Judged], context: DataContext) -> Answers:
    answers = Answers()
    try:
        _append_each(request, judged, answers, context)
    except BaseException:
        # Nobody will be answered, so nobody waits.
        answers.let_go()
        raise
    return answers


def _append_each(
    request: ProduceRequest, judged: list[Judged], answers: Answers, context: DataContext
) -> None:
    now_ms = context.tools.clock.wall_ms()
    metrics = context.tools.metrics
    remaining = iter(judged)
    for topic in request.topic_data:
        topic_answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        answers.response.responses.append(topic_answer)
        for data in topic.partition_data:
            answer = PartitionProduceResponse(index=data.index, base_offset=-1)
            topic_answer.partition_responses.append(answer)
            one = next(remaining)
            try:
                if one.error is not None:
                    raise one.error
                assert one.partition is not None and one.admitted is not None
                wait = _append(one.partition, one.admitted, request, now_ms, answer)
            except KafkaError as error:
                answers.refuse(answer, error)
                continue
            metrics.produced_bytes += one.admitted.header.size_bytes
            metrics.produced_records += one.admitted.header.record_count
            if wait is not None:
                answers.waits.append((answer, wait))


def _append(
    partition: Partition,
    admitted: Admitted,
    request: ProduceRequest,
    now_ms: int,
    answer: PartitionProduceResponse,
) -> CommitWait | None:
    acks = request.acks
    result = partition.append(admitted, acks, now_ms)
    answer.base_offset = result.base_offset
    answer.log_append_time_ms = result.log_append_time_ms
    answer.log_start_offset = result.log_start_offset
    last = result.last_offset
    if acks == -1:
        if not partition.is_committed(last):
            return partition.committed(last, _deadline(request))
    elif acks == 1 and partition.config.durability_fsync and not partition.is_on_disk(last):
        return partition.on_disk(last, _deadline(request))
    return None


def _deadline(request: ProduceRequest) -> float:
    return asyncio.get_running_loop().time() + request.timeout_ms / 1000


def _topic_name(topic: TopicProduceData, context: DataContext) -> str | KafkaError:
    if context.version < _VERSION_WITH_TOPIC_IDS:
        return topic.name
    found = context.topic_by_id(topic.topic_id)
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID) if found is None else found.name


def _find(name: str | KafkaError, data: PartitionProduceData, context: DataContext) -> Judged:
    if isinstance(name, KafkaError):
        return Judged(None, name)
    if not context.authorize_topic(Operation.WRITE, name):
        return Judged(None, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    if name in INTERNAL_TOPICS:
        return Judged(None, KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal"))
    replicas = context.tools.replicas
    try:
        partition = replicas.find(name, data.index)
    except KafkaError as error:
        return Judged(None, error)
    return Judged(partition)


def _judge_all(
    found: list[Judged], now_ms: int, allow_zstd: bool, *, on_loop: bool = False
) -> list[Judged]:
    """Admit the records of every partition; what is wrong is kept, not raised.

    On the loop it may raise `_TakesLong`. A second call, on a thread, then goes on from there.
    """
    for judged in found:
        if judged.error is not None or judged.partition is None or judged.admitted is not None:
            continue
        records = judged.records
        partition = judged.partition
        limited = on_loop and judged.takes_a_codec
        try:
            if records is None:
                raise InvalidRecordsError(ErrorCode.INVALID_RECORD, "the request holds no records")
            judged.admitted = admit(
                memoryview(records),
                partition.config_on_loop if limited else partition.config,
                now_ms,
                allow_zstd=allow_zstd,
            )
            if judged.admitted.header.is_transactional:
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE, "transactions are not supported by this broker"
                )
        except KafkaError as error:
            if limited and error.code is ErrorCode.MESSAGE_TOO_LARGE:
                raise _TakesLong from None
            judged.error = error
        judged.records = None
    return found


def _name_leaders(response: ProduceResponse, context: DataContext) -> None:
    leaders = CurrentLeaders(context)
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                answer.current_leader = leaders.of(
                    topic.name, topic.topic_id, answer.index, LeaderIdAndEpoch
                )
    response.node_endpoints = leaders.endpoints(NodeEndpoint)


def _refuse(answer: PartitionProduceResponse, error: KafkaError) -> None:
    answer.error_code = error.code
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.error_message = error.message
    if isinstance(error, InvalidRecordsError):
        answer.record_errors = [
            BatchIndexAndErrorMessage(record.batch_index, record.message)
            for record in error.records
        ]
