"""A future that tells one listener within the turn of the loop in which it is settled.

Any other future tells its listeners in the next turn, after everything that was ready before. Where
thousands of requests are ready, such a turn takes a tenth of a second, and an answer that passes
through four futures waits for four of them.

Only `settle` and `take_over` are prompt. Call them where it does not matter what the listener does
next, never in the middle of a change of state: elsewhere `set_result` does as ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import concurrent.futures

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Prompt(asyncio.Future[T]):
    """A future with a listener that goes first."""

    _listener: Callable[[asyncio.Future[T]], None] | None = None

    def listen(self, listener: Callable[[asyncio.Future[T]], None]) -> None:
        """Have the one listener told, however this ends."""
        assert self._listener is None, "somebody listens already"
        self._listener = listener
        self.add_done_callback(_tell)

    def settle(self, value: T) -> None:
        """Set the result, if nothing ended this before, and tell the listener at once."""
        if not self.done():
            self.set_result(value)
            _tell(self)

    def take_over(self, done: concurrent.futures.Future[T]) -> None:
        """As `settle`, with what the work of a thread came to."""
        if self.done():
            return
        error = None if done.cancelled() else done.exception()
        if done.cancelled():
            self.cancel()
        elif error is not None:
            self.set_exception(error)
        else:
            self.set_result(done.result())
        _tell(self)


def _tell(future: asyncio.Future[Any]) -> None:
    """Tell the listener, unless it has been told."""
    assert isinstance(future, Prompt)
    listener, future._listener = future._listener, None
    if listener is not None:
        try:
            listener(future)
        except Exception:
            # Whoever settled this has others to tell.
            _log.exception("a listener failed")


def when_done(future: asyncio.Future[T], listener: Callable[[asyncio.Future[T]], None]) -> None:
    """Have a listener told as soon as the future can."""
    if isinstance(future, Prompt):
        future.listen(listener)
    else:
        future.add_done_callback(listener)
