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
from typing import TYPE_CHECKING, TypeVar

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
        if self.done():
            self._tell_later()

    def settle(self, value: T) -> None:
        """Set the result, if nothing ended this before, and tell the listener at once."""
        if not self.done():
            super().set_result(value)
            self._tell()

    def take_over(self, done: concurrent.futures.Future[T]) -> None:
        """As `settle`, with what the work of a thread came to."""
        if self.done():
            return
        error = None if done.cancelled() else done.exception()
        if done.cancelled():
            super().cancel()
        elif error is not None:
            super().set_exception(error)
        else:
            super().set_result(done.result())
        self._tell()

    def set_result(self, result: T) -> None:
        super().set_result(result)
        self._tell_later()

    def set_exception(self, exception: type[BaseException] | BaseException) -> None:
        super().set_exception(exception)
        self._tell_later()

    def cancel(self, msg: object = None) -> bool:
        is_cancelled = super().cancel(msg)
        self._tell_later()
        return is_cancelled

    def _tell_later(self) -> None:
        if self._listener is not None:
            self.get_loop().call_soon(self._tell)

    def _tell(self) -> None:
        """Tell the listener, unless it has been told."""
        listener, self._listener = self._listener, None
        if listener is not None:
            try:
                listener(self)
            except Exception:
                # Whoever settled this has others to tell.
                _log.exception("a listener failed")


def when_done(future: asyncio.Future[T], listener: Callable[[asyncio.Future[T]], None]) -> None:
    """Have a listener told as soon as the future can."""
    if isinstance(future, Prompt):
        future.listen(listener)
    else:
        future.add_done_callback(listener)
