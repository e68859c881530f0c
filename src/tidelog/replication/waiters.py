"""Waiting as a value: for an offset to be committed, or for a partition to have news.

A produce waits in `CommitWaiters` for the high watermark to pass its last offset; a fetch watches
a partition through `Watchers` and hears of the next move of what it may read. Both are plain
collections owned by one partition: no lock, no thread.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from operator import attrgetter
from typing import Protocol

from tidelog.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)
_offset = attrgetter("offset")


class CommitWait(asyncio.Future[None]):
    """Done once an offset is committed; KafkaError where it cannot be, or not in time.

    It is never done and still among the waiters: whatever ends it takes it out.
    """

    def __init__(self, waiters: CommitWaiters, offset: int, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop=loop)
        self.offset = offset
        self._waiters = waiters
        self._timer = loop.call_at(deadline, self._too_late)

    def cancel(self, msg: object = None) -> bool:
        if self.done():
            return False
        self._waiters.remove(self)
        self._timer.cancel()
        return super().cancel(msg)

    def _too_late(self) -> None:
        self._waiters.remove(self)
        self.end(KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    def end(self, error: KafkaError | None = None) -> None:
        """Wake the one who waits; called by those who took it out."""
        self._timer.cancel()
        if error is None:
            self.set_result(None)
        else:
            self.set_exception(error)


class CommitWaiters:
    """Those who wait for an offset to be committed, the lowest first."""

    def __init__(self) -> None:
        self._waits: list[CommitWait] = []

    def __len__(self) -> int:
        return len(self._waits)

    def wait_beyond(self, offset: int, deadline: float) -> CommitWait:
        """Wait for the committed end to be greater than `offset`, until the loop's `deadline`."""
        wait = CommitWait(self, offset, deadline)
        if not self._waits or self._waits[-1].offset <= offset:
            # Nearly always: offsets rise with every append.
            self._waits.append(wait)
        else:
            insort(self._waits, wait, key=_offset)
        return wait

    def remove(self, wait: CommitWait) -> None:
        """Wait no more, where it has not ended yet."""
        at = bisect_left(self._waits, wait.offset, key=_offset)
        while at < len(self._waits) and self._waits[at].offset == wait.offset:
            if self._waits[at] is wait:
                del self._waits[at]
                return
            at += 1

    def advance(self, committed_end: int) -> None:
        """Wake everybody whose offset lies below `committed_end`."""
        if self._waits and self._waits[0].offset < committed_end:
            count = bisect_left(self._waits, committed_end, key=_offset)
            woken, self._waits = self._waits[:count], self._waits[count:]
            for wait in woken:
                wait.end()

    def fail(self, error: KafkaError) -> None:
        """Wake everybody with an error: the partition moved away, went offline or was deleted."""
        woken, self._waits = self._waits, []
        for wait in woken:
            wait.end(error.again())


class Watcher(Protocol):
    """One who waits for news of a partition."""

    def news(self) -> None:
        """What can be read of the partition may have changed; you are not watching any more."""
        ...

    def small_news(self) -> None:
        """There is something to tell when you speak next, not worth speaking for; watch on."""
        ...


class Watchers:
    """Those who want to hear of the next change of what can be read of a partition.

    Each is told once and has to come again to be told again: one who no longer asks costs an
    append nothing, however many there are. A fault of one is logged and reaches nobody else.
    """

    def __init__(self) -> None:
        self._watchers: dict[Watcher, None] = {}

    def __len__(self) -> int:
        return len(self._watchers)

    def add(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def discard(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def remind(self) -> None:
        """Tell them of what can wait until they speak next."""
        for watcher in self._watchers:
            watcher.small_news()

    def notify(self) -> None:
        if self._watchers:
            told, self._watchers = self._watchers, {}
            for watcher in told:
                try:
                    watcher.news()
                except Exception:
                    # The append is done, and the others want to hear of it.
                    _log.exception("a watcher failed at its news")
