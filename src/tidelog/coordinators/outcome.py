"""What a handler of a coordinator comes to: records to append, and an answer now or later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tidelog.errors import KafkaError
from tidelog.storage.verification import Verification

T = TypeVar("T")


class Reply(Generic[T]):
    """An answer that somebody waits for. The first value or error counts, later ones do not."""

    __slots__ = ("_callback", "error", "is_done", "value")

    def __init__(self) -> None:
        self.is_done = False
        self.value: T | None = None
        self.error: KafkaError | None = None
        self._callback: Callable[[], None] | None = None

    def resolve(self, value: T) -> None:
        self._finish(value, None)

    def fail(self, error: KafkaError) -> None:
        self._finish(None, error)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once, at once where the answer is there."""
        if self.is_done:
            callback()
        else:
            self._callback = callback

    def _finish(self, value: T | None, error: KafkaError | None) -> None:
        if self.is_done:
            return
        self.is_done = True
        self.value, self.error = value, error
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


@dataclass(slots=True)
class InTransaction:
    """In whose open transaction records are written: they count when it is committed."""

    producer_id: int
    producer_epoch: int
    verification: Verification | None


@dataclass(slots=True)
class Outcome:
    """`records` are appended and replayed first, then `then` runs, then the answer may leave.

    `answer` is a response, or a `Reply` that will hold one; `records` are of the shard's kind.
    `committed` runs once all that the shard has appended up to here is committed, if it ever is.
    """

    answer: Any = None
    records: list[Any] = field(default_factory=list)
    then: Callable[[], None] | None = None
    committed: Callable[[], None] | None = None
    transaction: InTransaction | None = None
