"""Whether a producer may end its transaction, in both versions of the protocol.

In version 1 an epoch lasts for many transactions, so a repeated request is told by the state alone.
In version 2 every end raises it, and the request names the epoch before: one that comes again finds
its own epoch plus one, and one that is late finds more than that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.coordinators.transactions.transaction import (
    EPOCH_LAST,
    Producer,
    State,
    Transaction,
)
from tidelog.errors import ErrorCode


class Ending(NamedTuple):
    """What a producer asks for, and in which version of the protocol."""

    committed: bool
    version: int


# What an end comes to where it was decided before, for a commit and an abort.
_PREPARED: Final = {
    (State.PREPARE_COMMIT, True): ErrorCode.CONCURRENT_TRANSACTIONS,
    (State.PREPARE_ABORT, False): ErrorCode.CONCURRENT_TRANSACTIONS,
}
_COMPLETED: Final = {
    (State.COMPLETE_COMMIT, True): ErrorCode.NONE,
    (State.COMPLETE_ABORT, False): ErrorCode.NONE,
}


def end_in_version_1(known: Transaction, producer: Producer, ending: Ending) -> ErrorCode | None:
    """What to answer; None where the transaction is to end now."""
    if known.latest.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.latest.epoch != producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    if known.unsettled:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known.state is State.ONGOING:
        return None
    asked = known.state, ending.committed
    return _PREPARED.get(asked) or _COMPLETED.get(asked, ErrorCode.INVALID_TXN_STATE)


def end_in_version_2(known: Transaction, producer: Producer, ending: Ending) -> ErrorCode | None:
    """What to answer; None where the transaction is to end now.

    An abort where nothing is open raises the epoch all the same: the producer may have sent records
    that never arrived, and they must not arrive in its next transaction.
    """
    if known.unsettled or known.state.is_decided:
        # Where it is carried out, who asks may be in the epoch before it, or the one behind.
        return ErrorCode.CONCURRENT_TRANSACTIONS
    latest = known.latest
    has_new_id = (
        known.previous_producer_id == producer.producer_id
        and producer.epoch == EPOCH_LAST
        and latest.epoch == 0
        and latest.producer_id != producer.producer_id
    )
    is_again = has_new_id or latest.epoch == producer.epoch + 1
    if latest.producer_id != producer.producer_id and not has_new_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_current = latest == producer
    if known.state is State.ONGOING:
        return None if is_current else ErrorCode.PRODUCER_FENCED
    if known.state is State.EMPTY:
        if not is_current:
            return ErrorCode.PRODUCER_FENCED
    elif is_again:
        return _COMPLETED.get((known.state, ending.committed), ErrorCode.INVALID_TXN_STATE)
    elif not is_current:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_TXN_STATE if ending.committed else None
