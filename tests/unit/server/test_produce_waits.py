"""A produce waits for its commits: until they are there, cannot be, or take too long."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.replication.waiters import CommitWaiters
from tidelog.server.handlers.produce import Answers
from tidelog.testing.virtual_loop import virtual_time


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
    answers = waiting_for(some, 1)
    answers.waits += waiting_for(others, 1).waits
    answer = answers.when_committed()
    some.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    others.advance(2)
    assert codes(await answer) == [ErrorCode.KAFKA_STORAGE_ERROR]


@virtual_time
async def test_a_client_that_is_gone_leaves_no_wait_behind() -> None:
    waiters = CommitWaiters()
    answer = waiting_for(waiters, 1, 2).when_committed()
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer
    await asyncio.sleep(0)
    assert len(waiters) == 0
