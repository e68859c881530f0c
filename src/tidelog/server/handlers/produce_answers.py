"""The answer to a produce: what each partition came to, and the commits that it waits for."""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.errors import ErrorCode, InvalidRecordsError, KafkaError
from tidelog.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
)
from tidelog.replication.partition import Partition
from tidelog.replication.waiters import CommitWait
from tidelog.server.dispatch import CloseConnection
from tidelog.server.handlers.leaders import CurrentLeaders
from tidelog.server.tools import DataContext

VERSION_WITH_LEADERS: Final = 10
VERSION_WITH_TOPIC_IDS: Final = 13


def wait_for(partition: Partition, offset: int, acks: int, timeout_ms: int) -> CommitWait | None:
    """What the answer for an offset that was appended has to wait for; None where it need not."""
    if acks == -1:
        if not partition.is_committed(offset):
            return partition.committed(offset, _deadline(timeout_ms))
    elif acks == 1 and partition.config.durability_fsync and not partition.is_on_disk(offset):
        return partition.on_disk(offset, _deadline(timeout_ms))
    return None


def _deadline(timeout_ms: int) -> float:
    return asyncio.get_running_loop().time() + timeout_ms / 1000


def unanswerable(code: ErrorCode, message: str | None) -> CloseConnection:
    """How a client that wants no answer (acks=0) learns to look again."""
    return CloseConnection(f"produce with acks=0 failed: {code.name} {message}")


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
