"""Why a transaction, or its producer, cannot go on; each error says what to do about it."""

from __future__ import annotations

from tidelog.errors import TidelogError


class TransactionError(TidelogError):
    """A transaction did not go as asked; what to do is in the text."""

    def __init__(self, transactional_id: str, text: str) -> None:
        super().__init__(f"transactional id '{transactional_id}': {text}")
        self.transactional_id = transactional_id


class ProducerFencedError(TransactionError):
    """Somebody else has the transactional id, or ended the transaction. This producer is over.

    `committed` is False, or None where a commit had been asked for and nobody can tell any more
    how that ended.
    """

    def __init__(self, transactional_id: str, *, commit_unanswered: bool) -> None:
        outcome = (
            "whether the commit that was under way succeeded cannot be told: look at the output"
            if commit_unanswered
            else "its open transaction is aborted"
        )
        super().__init__(
            transactional_id,
            f"another producer has taken over, or ended the transaction; {outcome}. "
            "Stop this producer: each one that runs needs an id of its own",
        )
        self.committed = None if commit_unanswered else False


class TransactionAbortedError(TransactionError):
    """The coordinator aborted the transaction by itself: nothing of it is readable."""


class TransactionAbortableError(TransactionError):
    """Something in the transaction failed, so it cannot be committed: abort and begin again."""

    def __init__(self, transactional_id: str, reason: object) -> None:
        super().__init__(
            transactional_id,
            f"the transaction cannot be committed: {reason}. Abort it and begin again",
        )


class TransactionUncertainError(TransactionError):
    """An end was asked for and no answer came: the same end may be asked for again."""

    def __init__(self, transactional_id: str, commit: bool, reason: object) -> None:
        word = "commit" if commit else "abort"
        super().__init__(
            transactional_id,
            f"no broker has confirmed the {word} in time, it may have happened or not ({reason}). "
            f"Ask for the {word} again: that never ends another transaction",
        )


class TwoPhaseUnsupportedError(TransactionError):
    """The broker has no transactions that outlive their time-out; Apache Kafka has none yet."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            transactional_id,
            "the broker cannot leave transactions to others (InitProducerId 6, KIP-939). "
            "Do without two_phase, and end them within their time-out",
        )


class TransactionStateError(TransactionError):
    """A method was called at a moment that does not allow it."""
