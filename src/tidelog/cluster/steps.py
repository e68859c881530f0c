"""Work that is too large for one transaction, cut into several.

Promises: no step is larger than a store takes. What belongs to one change and fits into one step is
in one step; only a change that fits into none is cut. A change counts as done with the step that
has its last operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tidelog.cluster.changes import Change
from tidelog.store.port import TRANSACTION_BYTES_MAX, Operation, transaction_bytes

# Beside its own operations, a transaction has what fences it.
STEP_BYTES_MAX: Final = TRANSACTION_BYTES_MAX - 16 * 1024


@dataclass(slots=True)
class Step:
    """The operations of one transaction, and the changes that are done with it."""

    operations: list[Operation] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    size: int = 0


class Steps:
    """The steps of one round, the last of which is still open; `count` operations in all."""

    def __init__(self) -> None:
        self._done: list[Step] = []
        self._last = Step()
        self.count = 0

    @property
    def size(self) -> int:
        """What the open step weighs, or a full one where there are several."""
        return STEP_BYTES_MAX if self._done else self._last.size

    def add(self, operations: Iterable[Operation], change: Change | None = None) -> None:
        """Put the operations of a change behind the others."""
        given = list(operations)
        self.count += len(given)
        if self._last.operations and self._last.size + transaction_bytes(given) > STEP_BYTES_MAX:
            self._next()
        for operation in given:
            size = transaction_bytes((operation,))
            if self._last.operations and self._last.size + size > STEP_BYTES_MAX:
                self._next()
            self._last.operations.append(operation)
            self._last.size += size
        if change is not None:
            self._last.changes.append(change)

    def __iter__(self) -> Iterator[Step]:
        yield from self._done
        if self._last.operations:
            yield self._last

    def _next(self) -> None:
        self._done.append(self._last)
        self._last = Step()
