"""What a refusal means for a transaction: fenced, timed out and failed have the same codes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from tidelog.client.batching import Identity
from tidelog.client.transaction_view import (
    ABORTED_STATES,
    COMMITTED_STATES,
    DescribedTransaction,
)
from tidelog.client.transactions import FENCED
from tidelog.errors import ErrorCode


class Verdict(Enum):
    """How a transaction stands that a broker has refused something of."""

    # It is as it was: its producer can abort it.
    OPEN = auto()
    # The coordinator has nothing of it.
    ABSENT = auto()
    TIMED_OUT = auto()
    # The coordinator does not know the id any more.
    FORGOTTEN = auto()
    # Somebody else has the id, or has ended the transaction.
    FENCED = auto()


@dataclass(slots=True)
class Standing:
    """What the producer knows of its transaction."""

    producer: Identity
    # It is open for longer than its time-out.
    is_late: bool
    # Somebody else was given the numbers to end it.
    is_left: bool


def judge(code: ErrorCode, ours: Standing, found: DescribedTransaction | None) -> Verdict:
    """`found` is what the coordinator says of the id, None where it cannot be asked."""
    if found is None:
        if code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return Verdict.FORGOTTEN
        return Verdict.FENCED if code in FENCED else Verdict.OPEN
    if found.producer == ours.producer:
        if found.state == "Ongoing":
            # Open, and not ours to end: it was taken over.
            return Verdict.FENCED if code in FENCED else Verdict.OPEN
        # In version 1 the state may be that of the transaction before.
        is_ended = ours.is_left and found.state in COMMITTED_STATES
        return Verdict.FENCED if is_ended else Verdict.ABSENT
    was_aborted = found.producer == next_epoch(ours.producer) and found.state in ABORTED_STATES
    return Verdict.TIMED_OUT if was_aborted and ours.is_late else Verdict.FENCED


def next_epoch(producer: Identity) -> Identity:
    """What a producer is once its transaction has ended, or was aborted over its head."""
    return Identity(producer.producer_id, producer.producer_epoch + 1)
