"""What the coordinator answers at once, and what it has its callers wait for."""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import Any

from tidelog.coordinators.producer_ids import ProducerIdMissingError
from tidelog.coordinators.transactions.coordinator import TransactionCoordinator, settled
from tidelog.coordinators.transactions.ends import Ending
from tidelog.coordinators.transactions.shard import Answer
from tidelog.coordinators.transactions.transaction import Producer
from tidelog.coordinators.transactions.verification import Question, Verifier
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition
from tidelog.testing.virtual_loop import virtual_time

PLACE = TopicPartition("t", 0)
PRODUCER = Producer(7, 1)
DONE = Answer(ErrorCode.NONE, Producer(7, 2))
BUSY = Answer(ErrorCode.CONCURRENT_TRANSACTIONS)


class _Ids:
    """Blocks of producer ids; counts how many were asked for."""

    refills = 0

    async def refill(self) -> None:
        self.refills += 1


class _Topic:
    def leader_of(self, transactional_id: str) -> int:
        return 0


class _Coordinator(TransactionCoordinator):
    """Shards that say what the test says, one thing after another."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self._patient = {}
        self.ids = _Ids()  # type: ignore[assignment]
        self.topic = _Topic()  # type: ignore[assignment]

    def call(self, key: str, handler: Any, *, core_only: bool = False) -> Any:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def left(self) -> int:
        return len(self._answers)

    def finish(self) -> None:
        """The end of the transaction before is written down."""
        self._completed("id")


def _end(coordinator: _Coordinator) -> Any:
    return coordinator.end("id", PRODUCER, Ending(True, 2))


def _verifier(coordinator: _Coordinator) -> Verifier:
    async def nobody(*_: Any) -> Any:
        raise AssertionError("this broker coordinates the transaction itself")

    return Verifier(coordinator, 0, nobody)


def _question() -> Question:
    return Question("id", PRODUCER, [PLACE], adds=True)


def test_a_commit_that_waits_for_nothing_is_answered_without_a_task() -> None:
    # No loop runs here: nothing could be awaited.
    assert _end(_Coordinator(DONE)) == DONE


@virtual_time
async def test_a_commit_waits_until_its_record_is_committed() -> None:
    committed: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    ending = asyncio.create_task(settled(_end(_Coordinator(committed))))
    await asyncio.sleep(1)
    assert not ending.done()
    committed.set_result(DONE)
    assert await ending == DONE


@virtual_time
async def test_a_request_waits_for_the_end_of_the_transaction_before() -> None:
    coordinator = _Coordinator(BUSY, DONE)
    ending = asyncio.create_task(settled(_end(coordinator)))
    await asyncio.sleep(0.1)
    assert not ending.done() and coordinator.left == 1
    coordinator.finish()
    assert await ending == DONE


@virtual_time
async def test_a_request_does_not_wait_for_ever_for_the_end_of_the_transaction_before() -> None:
    assert await settled(_end(_Coordinator(BUSY, BUSY))) == BUSY


@virtual_time
async def test_a_commit_that_needs_a_producer_id_gets_a_block_of_them_first() -> None:
    coordinator = _Coordinator(ProducerIdMissingError(), ProducerIdMissingError(), DONE)
    assert await settled(_end(coordinator)) == DONE
    assert coordinator.ids.refills == 1


def test_a_partition_is_added_without_a_task_where_nothing_waits() -> None:
    verifier = _verifier(_Coordinator(ErrorCode.NONE))
    assert verifier.ask(_question()) == {PLACE: ErrorCode.NONE}
    assert (verifier.asked, verifier.refused) == (1, 0)


def test_a_question_that_is_refused_at_once_has_the_code_of_the_refusal() -> None:
    verifier = _verifier(_Coordinator(KafkaError(ErrorCode.NOT_COORDINATOR)))
    assert verifier.ask(_question()) == {PLACE: ErrorCode.NOT_COORDINATOR}
    assert verifier.refused == 1


@virtual_time
async def test_a_question_that_is_not_answered_in_time_has_no_known_answer() -> None:
    never: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    verifier = _verifier(_Coordinator(never))
    asked = verifier.ask(_question())
    assert isinstance(asked, CoroutineType)
    assert await asked == {PLACE: ErrorCode.NETWORK_EXCEPTION}
    assert verifier.refused == 1
