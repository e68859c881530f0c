"""A produce waits for its commits: until they are there, cannot be, or take too long."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError, PartitionBrokenError
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.replication.partition import Partition
from tidelog.replication.waiters import CommitWaiters
from tidelog.server.handlers.produce import Answers, Judged, _append_all
from tidelog.server.metrics import BrokerMetrics
from tidelog.server.tools import DataContext
from tidelog.storage.admission import Admitted
from tidelog.storage.log import AppendResult
from tidelog.testing.virtual_loop import virtual_host, virtual_time


def waiting_for(waiters: CommitWaiters, *offsets: int) -> Answers:
    """A produce to as many partitions, each of which has 30 seconds."""
    answers = Answers()
    topic = TopicProduceResponse(name="orders")
    answers.response.responses.append(topic)
    deadline = asyncio.get_running_loop().time() + 30
    for index, offset in enumerate(offsets):
        answer = PartitionProduceResponse(index=index, base_offset=offset)
        topic.partition_responses.append(answer)
        answers.waits.append((answer, waiters.wait_beyond(offset, deadline)))
    return answers


def codes(response: ProduceResponse) -> list[int]:
    return [each.error_code for each in response.responses[0].partition_responses]


@virtual_time
async def test_the_answer_comes_with_the_last_commit() -> None:
    waiters = CommitWaiters()
    answer = waiting_for(waiters, 1, 2, 3).when_committed()
    waiters.advance(3)
    await asyncio.sleep(10)
    assert not answer.done()
    waiters.advance(4)
    assert codes(await answer) == [0, 0, 0]


@virtual_time
async def test_what_is_not_committed_in_time_is_refused_and_the_rest_is_not() -> None:
    waiters = CommitWaiters()
    answer = waiting_for(waiters, 1, 2).when_committed()
    waiters.advance(2)
    response = await answer
    assert codes(response) == [0, ErrorCode.REQUEST_TIMED_OUT]
    assert len(waiters) == 0


@virtual_time
async def test_every_partition_is_told_its_own_error() -> None:
    some, others = CommitWaiters(), CommitWaiters()
    answers, more = waiting_for(some, 1), waiting_for(others, 1)
    answers.waits += more.waits
    answers.response.responses[0].partition_responses += more.each()
    answer = answers.when_committed()
    some.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    others.advance(2)
    assert codes(await answer) == [ErrorCode.KAFKA_STORAGE_ERROR, 0]


@virtual_time
async def test_a_client_that_is_gone_leaves_no_wait_behind() -> None:
    waiters = CommitWaiters()
    answer = waiting_for(waiters, 1, 2).when_committed()
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer
    await asyncio.sleep(0)
    assert len(waiters) == 0


class FsyncPartition:
    """Takes every batch and waits for its disk, or breaks."""

    config = TopicConfig(durability_fsync=True)

    def __init__(self, waiters: CommitWaiters, *, breaks: bool = False) -> None:
        self._waiters = waiters
        self._breaks = breaks

    def append(self, admitted: object, acks: int, now_ms: int, origin: object) -> AppendResult:
        if self._breaks:
            raise PartitionBrokenError("an assertion failed")
        return AppendResult(0, 0, 0, 0)

    def is_committed(self, offset: int) -> bool:
        return False

    def committed(self, offset: int, deadline: float) -> object:
        return self._waiters.wait_beyond(offset, deadline)


@virtual_time
async def test_a_partition_that_breaks_leaves_no_wait_of_its_neighbours_behind() -> None:
    waiters = CommitWaiters()
    judged = []
    for breaks in (False, True):
        one = Judged(cast(Partition, FsyncPartition(waiters, breaks=breaks)))
        one.admitted = cast(
            Admitted,
            SimpleNamespace(
                header=SimpleNamespace(size_bytes=1, record_count=1, is_transactional=False)
            ),
        )
        judged.append(one)
    data = [PartitionProduceData(index=index, records=None) for index in (0, 1)]
    request = ProduceRequest(
        acks=-1, timeout_ms=2**31 - 1, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    tools = SimpleNamespace(clock=virtual_host().clock, metrics=BrokerMetrics())
    with pytest.raises(PartitionBrokenError):
        _append_all(request, judged, cast(DataContext, SimpleNamespace(tools=tools)))
    assert len(waiters) == 0
