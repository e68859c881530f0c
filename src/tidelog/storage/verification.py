"""What an append must know of transactions beside the batch: who appends, and what was verified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.errors import ErrorCode


class Verification:
    """That a producer's transaction was looked up for its first batch in a log.

    A marker of the producer makes it void, and so does a change of who leads: what was true when
    it was asked need not be any more.
    """

    __slots__ = ("__weakref__", "begins_epoch", "epoch", "refusal")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        # In version 2 of the protocol every transaction has an epoch to itself, whose sequences
        # begin with 0: nothing that its producer sent before this batch can be missing.
        self.begins_epoch = False
        self.refusal: ErrorCode | None = None


@dataclass(slots=True, eq=False)
class Origin:
    """Who appends: a client, or a coordinator, whose batches have no sequences."""

    from_client: bool = True
    # Of a marker: which version of the transactions' protocol its producer speaks.
    transaction_version: int = 0
    # Of a transactional batch that opens a transaction.
    verification: Verification | None = None


CLIENT: Final = Origin()
COORDINATOR: Final = Origin(from_client=False)
