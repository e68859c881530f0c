"""A produce that begins like one before it: from the frame to the log in one walk.

The requests of a producer for one partition differ in their correlation id and in their records.
All between the client id and the records is their *head*: who acknowledges, for how long to wait,
which topic, which partition. One that was decoded before, byte for byte the same, says the same
again: its records are admitted and appended straight from the frame, and the numbers of the answer
go into a template.

What a head means is looked up again each time: whether the client may write, where the partition
is, who leads it. Nothing is refused here before it is appended: a request that is not whole, plain
and allowed is declined, changes nothing, and goes the long way (`produce`), which says what is
wrong with it.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.cluster.names import INTERNAL_TOPICS
from tidelog.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.protocol.framing import RequestHeader, encode_response
from tidelog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.protocol.primitives import Part, encode_uvarint, part_size, read_uvarint
from tidelog.security.authorizer import Operation, Resource, ResourceType
from tidelog.server.context import RequestContext, ServedApi
from tidelog.server.dispatch import DECLINED, Pending, Result
from tidelog.server.handlers.produce_answers import (
    VERSION_WITH_LEADERS,
    VERSION_WITH_TOPIC_IDS,
    Answers,
    unanswerable,
    wait_for,
)
from tidelog.server.tools import DataTools, RequestTools
from tidelog.storage.admission import admit_plain
from tidelog.storage.log import AppendResult

if TYPE_CHECKING:
    from tidelog.protocol.apis import Api
    from tidelog.replication.waiters import CommitWait
    from tidelog.server.connection import Connection

_HEADS_MAX: Final = 1_000
_HEAD_BYTES_MAX: Final = 1_000
_VERSION_WITH_LOG_START: Final = 5
# API key, version, correlation id, and how long the client id is.
_START: Final = struct.Struct(">hhih")
_LENGTH: Final = struct.Struct(">i")
# Behind the records of a flexible version: no tagged field of partition, topic and request.
_TAIL: Final = b"\0\0\0"
# Stand for the numbers of an answer while its template is made.
_BASE_OFFSET: Final = 0x7A11_D106_0000_0001
_NUMBERS: Final = (_BASE_OFFSET, _BASE_OFFSET + 1, _BASE_OFFSET + 2)


class Head:
    """What a produce says before its records, and the answer without its numbers."""

    __slots__ = (
        "_after", "_before", "_layout", "_numbers", "_size", "acks", "index", "is_flexible",
        "timeout_ms", "topic", "topic_id", "version",
    )  # fmt: skip

    def __init__(self, api: Api, version: int, request: ProduceRequest) -> None:
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        self.version = version
        self.is_flexible = version >= api.flexible
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.topic = Resource(ResourceType.TOPIC, topic.name)
        self.topic_id = topic.topic_id
        self.index = data.index
        self._numbers = 3 if version >= _VERSION_WITH_LOG_START else 2
        (whole,) = encode_response(api, version, 0, self.answer(*_NUMBERS))
        assert isinstance(whole, bytes), "an answer of one partition is one part"
        marks = struct.pack(f">{self._numbers}q", *_NUMBERS[: self._numbers])
        self._before, _, self._after = whole[8:].partition(marks)
        self._size = len(whole) - 4
        self._layout = struct.Struct(f">ii{len(self._before)}s{self._numbers}q{len(self._after)}s")

    def answer(
        self, base_offset: int, append_time_ms: int, log_start: int, throttle_ms: int = 0
    ) -> ProduceResponse:
        part = PartitionProduceResponse(self.index, 0, base_offset, append_time_ms, log_start)
        topic = TopicProduceResponse(self.topic.name, self.topic_id, [part])
        return ProduceResponse([topic], throttle_ms)

    def throttled(self, encoded: bytes, throttle_ms: int) -> bytes:
        """An encoded answer with its throttle time: the last field, with tags behind it if any."""
        end = len(encoded) - self.is_flexible
        return encoded[: end - 4] + throttle_ms.to_bytes(4, "big") + encoded[end:]

    def encoded_answer(self, correlation_id: int, result: AppendResult) -> bytes:
        """What `answer` comes to on the wire."""
        numbers = (result.base_offset, result.log_append_time_ms, result.log_start_offset)
        return self._layout.pack(
            self._size, correlation_id, self._before, *numbers[: self._numbers], self._after
        )

    def records(self, frame: memoryview, position: int) -> memoryview | None:
        """The records, whose length stands at `position`; None where the frame is not made so."""
        if self.is_flexible:
            try:
                length, position = read_uvarint(frame, position)
            except (IndexError, ProtocolError):
                return None
            end = position + length - 1
            if end + len(_TAIL) != len(frame) or frame[end:].tobytes() != _TAIL:
                return None
        else:
            position += _LENGTH.size
            end = len(frame)
            if end < position or _LENGTH.unpack_from(frame, position - 4)[0] != end - position:
                return None
        return frame[position:end]


class Asked(NamedTuple):
    """One request while it is served."""

    head: Head
    correlation_id: int
    connection: Connection
    started_at: float
    # The client id and how large it is, where somebody has a quota.
    counted: tuple[str, int] | None


class ProduceShortcut:
    """Serves what begins like a request before it; see the module. One per broker."""

    def __init__(self, shared: RequestTools, served: ServedApi[DataTools]) -> None:
        self._shared = shared
        self._served = served
        self._tools = served.tools
        self._throttling = shared.throttling
        # By version, since several have the same bytes.
        self._heads: dict[tuple[int, bytes], Head] = {}

    def learn(
        self, frame: memoryview, version: int, request: ProduceRequest, connection: Connection
    ) -> None:
        """Remember the head of a request that was decoded; the connection keeps its length."""
        topics = request.topic_data
        if len(topics) != 1 or len(topics[0].partition_data) != 1:
            return
        records = topics[0].partition_data[0].records
        if not records or request.transactional_id is not None or request.acks not in (-1, 0, 1):
            return
        api = self._served.api
        is_flexible = version >= api.flexible
        behind = len(encode_uvarint(len(records) + 1)) + len(_TAIL) if is_flexible else _LENGTH.size
        start = _START.size + max(_START.unpack_from(frame)[3], 0)
        end = len(frame) - len(records) - behind
        if end - start > _HEAD_BYTES_MAX:
            return
        learnt = version, bytes(frame[start:end])
        if learnt not in self._heads:
            known = Head(api, version, request)
            if known.records(frame, end) != records:
                return  # It has tagged fields, bytes behind it, or a length in needless bytes.
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()
            self._heads[learnt] = known
        connection.known[api.key] = end - start

    def serve(self, frame: memoryview, connection: Connection) -> Result:
        """Append the records of a request whose head is known; else `DECLINED`."""
        recognised = self._recognise(frame, connection.known.get(self._served.api.key, 0))
        if recognised is None:
            return DECLINED
        head, records, correlation_id = recognised
        clock, tools, metrics = self._shared.clock, self._tools, self._served.metrics
        started_at, now_ms = clock.monotonic(), clock.wall_ms()
        try:
            found = tools.replicas.find(self._topic(head, connection), head.index)
        except KafkaError:
            return DECLINED
        admitted = admit_plain(records, found.config, now_ms)
        if admitted is None:
            return DECLINED
        metrics.requests += 1
        metrics.request_bytes += len(frame) + 4
        counted = _counted(frame) if self._throttling.is_on else None
        asked = Asked(head, correlation_id, connection, started_at, counted)
        try:
            result = found.append(admitted, head.acks, now_ms)
        except KafkaError as error:
            return self._refused(asked, error)
        tools.metrics.produced_bytes += len(records)
        tools.metrics.produced_records += admitted.header.record_count
        wait = wait_for(found, result.last_offset, head.acks, head.timeout_ms)
        if wait is None:
            return self._appended(asked, result)
        return Pending(wait, partial(self._ended, asked, result, wait), overlaps=True)

    def _recognise(self, frame: memoryview, head_bytes: int) -> tuple[Head, memoryview, int] | None:
        """The head, the records and the correlation id of a frame."""
        if len(frame) < _START.size:
            return None
        api_key, version, correlation_id, name_bytes = _START.unpack_from(frame)
        start = _START.size + max(name_bytes, 0)
        head = self._heads.get((version, frame[start : start + head_bytes].tobytes()))
        if head is None or api_key != self._served.api.key:
            return None
        records = head.records(frame, start + head_bytes)
        return None if records is None else (head, records, correlation_id)

    def _throttle_ms(self, asked: Asked) -> int:
        """Count the request; how long its client must wait."""
        if asked.counted is None:
            return 0
        is_silent = asked.head.acks == 0
        return self._throttling.produced(asked.connection, *asked.counted, is_silent=is_silent)

    def _topic(self, head: Head, connection: Connection) -> str:
        """The topic's name; KafkaError where it is none, or the client may not write to it."""
        topic = head.topic
        if head.version >= VERSION_WITH_TOPIC_IDS:
            name = self._shared.metadata.image.topic_names.get(head.topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            topic = Resource(ResourceType.TOPIC, name)
        if not self._shared.authorizer.authorize(
            connection.principal, connection.host, Operation.WRITE, topic
        ):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic.name in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        return topic.name

    def _appended(self, asked: Asked, result: AppendResult) -> list[Part] | None:
        """The answer to what was appended, and committed where that was asked for."""
        metrics, head = self._served.metrics, asked.head
        metrics.latency.observe(self._shared.clock.monotonic() - asked.started_at)
        throttle_ms = 0 if asked.counted is None else self._throttle_ms(asked)
        if head.acks == 0:
            return None
        answer = head.encoded_answer(asked.correlation_id, result)
        if throttle_ms:
            answer = head.throttled(answer, throttle_ms)
        metrics.response_bytes += len(answer)
        return [answer]

    def _ended(self, asked: Asked, result: AppendResult, wait: CommitWait) -> list[Part] | None:
        """A wait has ended: the records are committed, or it is not known whether they will be."""
        error = wait.exception()
        if isinstance(error, KafkaError):
            return self._refused(asked, error)
        return self._appended(asked, result)

    def _refused(self, asked: Asked, error: KafkaError) -> list[Part]:
        head, api, metrics = asked.head, self._served.api, self._served.metrics
        metrics.latency.observe(self._shared.clock.monotonic() - asked.started_at)
        if head.acks == 0:
            raise unanswerable(error.code, error.message)
        answers = Answers()
        answers.response = head.answer(-1, -1, -1, self._throttle_ms(asked))
        if head.version >= VERSION_WITH_LEADERS:
            header = RequestHeader(api.key, head.version, asked.correlation_id, None)
            answers.context = RequestContext(self._shared, self._served, asked.connection, header)
        answers.refuse(answers.each()[0], error)
        parts = encode_response(api, head.version, asked.correlation_id, answers.finished())
        metrics.response_bytes += sum(map(part_size, parts))
        return parts


def _counted(frame: memoryview) -> tuple[str, int]:
    """What a frame counts for, and for whom; an id that is no text is shown to be so."""
    *_, name_bytes = _START.unpack_from(frame)
    end = _START.size + max(name_bytes, 0)
    return str(frame[_START.size : end], "utf-8", "replace"), len(frame) + 4
