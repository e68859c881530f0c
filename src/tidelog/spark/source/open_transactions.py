"""Partitions that a transaction holds back: said in the log, where a query would just stand still.

With `read_committed` a query reads up to the last stable offset, where the oldest open transaction
begins. One that nobody ends keeps all that comes behind it from the query, which looks idle. It is
not: this looks now and then, and tells of a partition that has not moved for a while, once, and
again when it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tidelog.host.clock import Clock
from tidelog.model import TopicPartition

LOOK_INTERVAL_S = 5.0
# Transactions that are under way are no news.
PATIENCE_S = 15.0


class Ends(Protocol):
    def behind_stable(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """How many offsets stand behind these ends, where any do."""


@dataclass(slots=True)
class _Hold:
    offset: int
    since: float
    told: bool = False


class OpenTransactions:
    """What holds the partitions of one query back."""

    def __init__(self, topics: Ends, clock: Clock, log: Callable[[str], None]) -> None:
        self._topics, self._clock, self._log = topics, clock, log
        self._holds: dict[TopicPartition, _Hold] = {}
        self._next_look = float("-inf")

    def look(self, ends: Mapping[TopicPartition, int]) -> None:
        """See where the partitions stand; `ends` are their last stable offsets."""
        now = self._clock.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_INTERVAL_S
        behind = self._topics.behind_stable(ends)
        for tp, hold in list(self._holds.items()):
            if tp not in behind or ends.get(tp) != hold.offset:
                del self._holds[tp]
                if hold.told:
                    self._log(f"{tp}: the transaction at offset {hold.offset} has ended; going on")
        for tp, count in behind.items():
            hold = self._holds.setdefault(tp, _Hold(ends[tp], now))
            if not hold.told and now - hold.since >= PATIENCE_S:
                hold.told = True
                self._log(
                    f"{tp}: an open transaction at offset {hold.offset} holds back {count} offsets,"
                    f" for {now - hold.since:.0f} s now; read_committed waits for its end"
                )
