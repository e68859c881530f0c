"""A leader asks the coordinator whether a partition is in the transaction of a producer.

In version 1 of the protocol the producer has said so before it writes, and the leader only asks; in
version 2 the leader adds the partition in the producer's name. Either way nothing that is late gets
into the log of a transaction that has ended (KIP-890).

The question has a deadline, and there is one request at a time to each other broker, with all that
waits for it. What is not known comes as NETWORK_EXCEPTION.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.coordinators.transactions.coordinator import TransactionCoordinator
from tidelog.coordinators.transactions.lines import Lines
from tidelog.coordinators.transactions.transaction import Producer
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model import TopicPartition

_TIMEOUT_SECONDS: Final = 5.0
_AT_ONCE_MAX: Final = 500

Codes = dict[TopicPartition, ErrorCode]


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

    async def ask(self, question: Question) -> Codes:
        """A code for each partition; never an exception of the network."""
        self.asked += 1
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                codes = await self._ask(question)
        except TimeoutError:
            codes = question.all(ErrorCode.NETWORK_EXCEPTION)
        except KafkaError as error:
            codes = question.all(error.code)
        except TidelogError:
            codes = question.all(ErrorCode.NETWORK_EXCEPTION)
        self.refused += any(codes.values())
        return codes

    async def _ask(self, question: Question) -> Codes:
        leader = self._coordinator.topic.leader_of(question.transactional_id)
        if leader == self._broker_id:
            return await answer(self._coordinator, question)
        answered: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        self._lines.put(leader, (question, answered))
        return await answered

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


async def answer(coordinator: TransactionCoordinator, question: Question) -> Codes:
    """What this broker's coordinator says."""
    if not question.adds:
        return await coordinator.verify(
            question.transactional_id, question.producer, question.partitions
        )
    code = await coordinator.add_partitions(
        question.transactional_id, question.producer, question.partitions
    )
    return question.all(code)
