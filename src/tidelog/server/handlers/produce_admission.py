"""The stage between prepare and apply, for transactional batches alone.

The first batch of a producer's transaction in a partition is appended only after its coordinator
has said that the partition is in it; until then the connection's later requests wait. What is
looked at is the batch, its flag and its ids, never what the request says (CVE-2018-17196). What
comes back is a token that the append shows; a marker that comes in between makes it void.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.coordinators.transactions.coordinator import Codes, settled
from tidelog.coordinators.transactions.transaction import Producer
from tidelog.coordinators.transactions.verification import Question
from tidelog.errors import ErrorCode, KafkaError
from tidelog.model import TopicPartition
from tidelog.protocol import batches
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.server.tools import DataContext
from tidelog.storage.verification import Origin

if TYPE_CHECKING:
    from tidelog.server.handlers.produce import Judged

_VERSION_WITH_ABORTABLE: Final = 11
_VERSION_THAT_ADDS: Final = 12
# Older clients know how to go on after none of these. This one has them send again, and ask for no
# metadata before.
_PASSING: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def has_transactional(request: ProduceRequest) -> bool:
    """Whether a batch of the request says that it is of a transaction."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                records is not None
                and len(records) >= batches.HEADER_BYTES
                and records[batches.ATTRIBUTES_POSITION] & batches.ATTRIBUTES_TRANSACTIONAL
            ):
                return True
    return False


def admit_transactions(
    transactional_id: str,
    judged: list[Judged] | asyncio.Future[list[Judged]],
    context: DataContext,
) -> list[Judged] | asyncio.Future[list[Judged]]:
    """Verify the batches that open a transaction; what is refused is kept, not raised."""
    if isinstance(judged, asyncio.Future):
        return asyncio.ensure_future(_admit_later(transactional_id, judged, context))
    question = _question(transactional_id, judged, context)
    if question is None:
        return judged
    codes = context.tools.verifier.ask(question)
    if isinstance(codes, dict):
        return _heed(codes, judged, context)
    return asyncio.ensure_future(_heed_later(codes, judged, context))


async def _admit_later(
    transactional_id: str, waited: asyncio.Future[list[Judged]], context: DataContext
) -> list[Judged]:
    judged = await waited
    question = _question(transactional_id, judged, context)
    if question is None:
        return judged
    return _heed(await settled(context.tools.verifier.ask(question)), judged, context)


async def _heed_later(
    codes: Coroutine[Any, Any, Codes], judged: list[Judged], context: DataContext
) -> list[Judged]:
    return _heed(await codes, judged, context)


def _heed(codes: Codes, judged: list[Judged], context: DataContext) -> list[Judged]:
    for each in judged:
        if each.origin.verification is not None:
            _note(each, codes[_name(each)], context.version)
    return judged


def _question(transactional_id: str, judged: list[Judged], context: DataContext) -> Question | None:
    """What to ask the coordinator; None where all batches go on with open transactions."""
    batches = [each for each in judged if each.error is None and _is_transactional(each)]
    if not batches:
        return None
    producers = {_producer(each) for each in batches}
    if len(producers) > 1:
        _refuse_all(
            batches,
            KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "The transactional batches of a request must be of one producer",
            ),
        )
        return None
    adds = context.version >= _VERSION_THAT_ADDS
    opening = [_name(each) for each in batches if _begin(each, adds)]
    return Question(transactional_id, producers.pop(), opening, adds) if opening else None


def _is_transactional(judged: Judged) -> bool:
    return judged.admitted is not None and judged.admitted.header.is_transactional


def _producer(judged: Judged) -> Producer:
    assert judged.admitted is not None
    return Producer(judged.admitted.header.producer_id, judged.admitted.header.producer_epoch)


def _name(judged: Judged) -> TopicPartition:
    assert judged.partition is not None
    return judged.partition.topic_partition


def _refuse_all(batches: Sequence[Judged], error: KafkaError) -> None:
    for each in batches:
        each.error = error.again()


def _begin(judged: Judged, adds: bool) -> bool:
    """Whether the coordinator must be asked about a batch."""
    assert judged.partition is not None and judged.admitted is not None
    try:
        judged.partition.check_leader()
        producers = judged.partition.log.producers
        verification = producers.begin_verification(judged.admitted.header)
    except KafkaError as error:
        judged.error = error
        return False
    if verification is not None:
        verification.begins_epoch = adds
        judged.origin = Origin(verification=verification)
    return verification is not None


def _note(judged: Judged, code: ErrorCode, version: int) -> None:
    """Keep what the coordinator said, in words that a client of this version understands."""
    if code is ErrorCode.NONE:
        return
    is_passing = code in _PASSING or code is ErrorCode.CONCURRENT_TRANSACTIONS
    told = code
    if code in _PASSING or (is_passing and version < _VERSION_THAT_ADDS):
        told = ErrorCode.NOT_ENOUGH_REPLICAS
    elif code is ErrorCode.PRODUCER_FENCED:
        told = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and version < _VERSION_WITH_ABORTABLE:
        told = ErrorCode.INVALID_TXN_STATE
    judged.error = KafkaError(
        told, f"The partition could not be found in the transaction: {code.name}"
    )
    if is_passing:
        # What its producer has sent behind it must not be taken before it.
        assert judged.partition is not None and judged.admitted is not None
        judged.partition.log.producers.refuse(judged.admitted.header, told)
