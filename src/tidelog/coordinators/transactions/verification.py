"""A leader asks the coordinator whether a partition is in the transaction of a producer.

In version 1 of the protocol the producer has said so before it writes, and the leader only asks; in
version 2 the leader adds the partition in the producer's name. Either way nothing that is late gets
into the log of a transaction that has ended (KIP-890).

The question has a deadline, and there is one request at a time to each other broker, with all that
waits for it. What is not known comes as NETWORK_EXCEPTION.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidelog.coordinators.transactions.coordinator import Codes, TransactionCoordinator
from tidelog.coordinators.transactions.lines import Lines
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model import TopicPartition

if TYPE_CHECKING:
    from tidelog.coordinators.transactions.transaction import Producer

_TIMEOUT_SECONDS: Final = 5.0
_AT_ONCE_MAX: Final = 500


@dataclass(slots=True, eq=False)
class Question:
    """What is asked about one transaction."""

    transactional_id: str
    producer: Producer
    partitions: Sequence[TopicPartition]
    # Whether the partitions are added where they are not in it.
    adds: bool

    def all(self, code: ErrorCode) -> Codes:
        return dict.fromkeys(self.partitions, code)


_Asked = tuple[Question, asyncio.Future[Codes]]


class Verifier:
    """Asks coordinators, wherever they are; one per broker."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        broker_id: int,
        ask_peer: Callable[[int, Sequence[Question], float], Awaitable[list[Codes]]],
    ) -> None:
        self._coordinator = coordinator
        self._broker_id = broker_id
        self._ask_peer = ask_peer
        self._lines: Lines[_Asked] = Lines("verifications", _AT_ONCE_MAX, self._send)
        self.asked = 0
        self.refused = 0

    def ask(self, question: Question) -> Codes | Coroutine[Any, Any, Codes]:
        """A code for each partition, or a coroutine that brings them.

        Neither ends in an exception of the network.
        """
        self.asked += 1
        try:
            asked = self._ask(question)
        except TidelogError as error:
            return self._count(_refusal(question, error))
        return self._count(asked) if isinstance(asked, dict) else self._wait(question, asked)

    def _ask(self, question: Question) -> Codes | Awaitable[Codes]:
        leader = self._coordinator.topic.leader_of(question.transactional_id)
        if leader == self._broker_id:
            return answer(self._coordinator, question)
        answered: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        self._lines.put(leader, (question, answered))
        return answered

    async def _wait(self, question: Question, asked: Awaitable[Codes]) -> Codes:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                return self._count(await asked)
        except TimeoutError:
            return self._count(question.all(ErrorCode.NETWORK_EXCEPTION))
        except TidelogError as error:
            return self._count(_refusal(question, error))

    def _count(self, codes: Codes) -> Codes:
        self.refused += any(codes.values())
        return codes

    async def _send(self, broker_id: int, some: list[_Asked]) -> None:
        # A client that has gone does not ask any more.
        still = [(question, answered) for question, answered in some if not answered.done()]
        codes = _unknown(still)
        try:
            if still:
                questions = [question for question, _ in still]
                codes = await self._ask_peer(broker_id, questions, _TIMEOUT_SECONDS)
        except TidelogError:
            pass
        finally:
            _answer(still, codes)

    async def close(self) -> None:
        """Ask no more; whoever waits hears that nothing is known."""
        left = await self._lines.close()
        _answer(left, _unknown(left))


def _unknown(asked: Sequence[_Asked]) -> list[Codes]:
    return [question.all(ErrorCode.NETWORK_EXCEPTION) for question, _ in asked]


def _answer(asked: Sequence[_Asked], codes: Sequence[Codes]) -> None:
    for (_, answered), each in zip(asked, codes, strict=True):
        if not answered.done():
            answered.set_result(each)


def _refusal(question: Question, error: TidelogError) -> Codes:
    code = error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
    return question.all(code)


def answer(
    coordinator: TransactionCoordinator, question: Question
) -> Codes | Coroutine[Any, Any, Codes]:
    """What this broker's coordinator says, or a coroutine that brings it."""
    asked = question.transactional_id, question.producer, question.partitions
    if not question.adds:
        return coordinator.verify(*asked)
    code = coordinator.add_partitions(*asked)
    return question.all(code) if isinstance(code, ErrorCode) else _later(question, code)


async def _later(question: Question, code: Coroutine[Any, Any, ErrorCode]) -> Codes:
    return question.all(await code)
