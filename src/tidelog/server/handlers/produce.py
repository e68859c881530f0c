"""Produce (key 0), advertised from version 0, served from 3 to 13.

Behaviour: the broker checks every partition of the request (checksum, records, limits), appends in
arrival order, and then answers: for acks=all once the records are committed; for acks=1 immediately
or, on a topic with `durability=fsync`, once they are on this broker's disk. A refused partition
does not delay the others. acks=0 has no answer, so a failure closes the connection, and the client
refreshes its metadata.
Versions: 0 to 2 are advertised because librdkafka tests for them, and close the connection; 7
allows zstd; 8 carries record errors (KIP-467); 10 names the new leader (KIP-951); 13 topic ids. A
batch of a transaction is first verified with the coordinator, see `produce_admission`; from 12,
this adds the partition to the transaction (KIP-890).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tidelog.cluster.names import INTERNAL_TOPICS
from tidelog.errors import ErrorCode, InvalidRecordsError, KafkaError
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.protocol.primitives import Buffer
from tidelog.replication.partition import Partition
from tidelog.security.authorizer import Operation, Resource, ResourceType
from tidelog.server.handlers.produce_admission import admit_transactions, has_transactional
from tidelog.server.handlers.produce_again import ProduceShortcut
from tidelog.server.handlers.produce_answers import (
    VERSION_WITH_LEADERS,
    VERSION_WITH_TOPIC_IDS,
    Answers,
    unanswerable,
    wait_for,
)
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
from tidelog.storage.verification import CLIENT

_VERSION_WITH_ZSTD = 7


class Judged:
    """One partition of a request after the prepare stage."""

    __slots__ = ("admitted", "error", "origin", "partition", "records", "takes_a_codec")

    def __init__(self, partition: Partition | None, error: KafkaError | None = None) -> None:
        self.partition = partition
        self.error = error
        self.records: Buffer | None = None
        self.takes_a_codec = False
        self.admitted: Admitted | None = None
        self.origin = CLIENT


class _TakesLong(Exception):
    """A small batch inflates to more than the loop has time for."""


def prepare(
    request: ProduceRequest, context: DataContext
) -> list[Judged] | asyncio.Future[list[Judged]]:
    """Find the partitions and admit their batches, on a thread where that may take long."""
    now_ms = context.tools.clock.wall_ms()
    refusal = _refusal(request, context)
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
    admitted: list[Judged] | asyncio.Future[list[Judged]] | None = None
    if checked_bytes <= LOOP_CHECKED_BYTES and codec_bytes <= LOOP_CODEC_BYTES:
        with suppress(_TakesLong):
            admitted = _judge_all(found, now_ms, allow_zstd, on_loop=True)
    if admitted is None:
        admitted = context.tools.offload.run(_judge_all, found, now_ms, allow_zstd)
    if request.transactional_id is None:
        return admitted
    return admit_transactions(request.transactional_id, admitted, context)


def _refusal(request: ProduceRequest, context: DataContext) -> KafkaError | None:
    """Why nothing of the request is appended, if so.

    Whether it is of a transaction its batches say, not the request (CVE-2018-17196).
    """
    if has_transactional(request):
        transactional_id = request.transactional_id
        if transactional_id is None or not context.authorize(
            Operation.WRITE, Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)
        ):
            return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.acks not in (-1, 0, 1):
        return KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it can be 0, 1 or -1 (all)"
        )
    return None


@served(
    prepare=prepare,
    overlaps=True,
    waits=True,
    is_brief=True,
    parts=(split, join),
    shortcut=ProduceShortcut,
)
def produce(
    request: ProduceRequest, context: DataContext
) -> ProduceResponse | asyncio.Future[ProduceResponse] | None:
    judged: list[Judged] = context.prepared  # type: ignore[assignment]
    context.prepared = None
    answers = _append_all(request, judged, context)
    answers.context = context if context.version >= VERSION_WITH_LEADERS else None
    if request.acks == 0:
        failed = next((answer for answer in answers.each() if answer.error_code), None)
        if failed is not None:
            raise unanswerable(ErrorCode(failed.error_code), failed.error_message)
        return None
    if not answers.waits:
        return answers.finished()
    return answers.when_committed()


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
                result = one.partition.append(one.admitted, request.acks, now_ms, one.origin)
            except KafkaError as error:
                answers.refuse(answer, error)
                continue
            answer.base_offset = result.base_offset
            answer.log_append_time_ms = result.log_append_time_ms
            answer.log_start_offset = result.log_start_offset
            metrics.produced_bytes += one.admitted.header.size_bytes
            metrics.produced_records += one.admitted.header.record_count
            wait = wait_for(one.partition, result.last_offset, request.acks, request.timeout_ms)
            if wait is not None:
                answers.waits.append((answer, wait))


def _topic_name(topic: TopicProduceData, context: DataContext) -> str | KafkaError:
    if context.version < VERSION_WITH_TOPIC_IDS:
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
        except KafkaError as error:
            if limited and error.code is ErrorCode.MESSAGE_TOO_LARGE:
                raise _TakesLong from None
            judged.error = error
        judged.records = None
    return found
