"""A fetch that waits for news of its partitions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.errors import TidelogError
from tidelog.model import Isolation
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.server.fetch_sessions import FetchTarget, FetchWaiter
from tidelog.server.pieces import Work

if TYPE_CHECKING:
    from tidelog.server.handlers.fetch import FetchAttempt


class FetchWait(FetchWaiter):
    """Sums what has become readable while a fetch waits."""

    def __init__(self, attempt: FetchAttempt, future: asyncio.Future[FetchResponse]) -> None:
        self._attempt = attempt
        self._future = future
        self._available: dict[FetchTarget, int] = {}
        self._total = 0
        # Is about to look again, or does so.
        self._is_due = self._is_finishing = False

    def start(self, with_data: list[FetchTarget]) -> None:
        session = self._attempt.session
        if session.waiting is not None:
            # The client has given up on its last fetch, or it would not have sent another.
            session.waiting.finish()
        session.waiting = self
        for target in with_data:
            self.news(target)

    def stop(self) -> None:
        if self._attempt.session.waiting is self:
            self._attempt.session.waiting = None

    def finish(self) -> None:
        """Look again and answer with whatever there is now."""
        if self._is_finishing or self._future.done():
            return
        self._is_finishing = True
        work = Work(self._attempt.answer_again())
        try:
            is_done = work.run_piece()
        except Exception as error:
            # It belongs to those who wait, not to the append that woke them.
            self._future.set_exception(error)
            return
        if is_done:
            self._future.set_result(work.result)
        else:
            task = asyncio.ensure_future(self._finish_in_pieces(work))
            self._future.add_done_callback(lambda _: task.cancel())

    async def _finish_in_pieces(self, work: Work[FetchResponse]) -> None:
        try:
            answer = await self._attempt.turns.finish(work)
        except Exception as error:
            if not self._future.done():
                self._future.set_exception(error)
        else:
            if not self._future.done():
                self._future.set_result(answer)

    def news(self, target: FetchTarget) -> None:
        if self._is_due or self._is_finishing:
            return
        attempt = self._attempt
        if attempt.isolation == Isolation.REPLICA and attempt.min_bytes <= 1:
            # An append, or what it must hear of anyway. It is answered after what has come in by
            # now is appended as well: other partitions, other connections.
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.finish)
            return
        try:
            partition = attempt.partition(target)
            partition.check_reader(target.known_epoch, attempt.reader)
            partition.check_offset(target.fetch_offset)
            if target.position is None:
                target.position = partition.log.locate(target.fetch_offset)
        except (TidelogError, OSError):
            self.finish()
            return
        if partition is not target.partition:
            self.finish()
            return
        readable = partition.readable_bytes(target.position, attempt.isolation)
        available = min(target.max_bytes, readable)
        self._total += available - self._available.get(target, 0)
        self._available[target] = available
        if self._total >= attempt.min_bytes:
            self.finish()
        else:
            attempt.session.watch(target, partition)
