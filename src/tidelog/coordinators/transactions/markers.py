"""Carrying out decisions: every partition of a transaction gets its marker.

A decision is sent until each partition has it committed or its topic is gone; only then is the end
of the transaction written down. There is one request at a time to each broker, with all that waits
for it. What fails is tried again after a pause that grows to a bound, and at once when the metadata
says that somebody else leads. Nothing is kept here that a new coordinator could not find in its
log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.cluster.backoff import Backoff
from tidelog.cluster.image import MetadataImage
from tidelog.coordinators.transactions.lines import Lines
from tidelog.coordinators.transactions.stats import TransactionStats
from tidelog.errors import ErrorCode, KafkaError
from tidelog.host.random import Random
from tidelog.model import TopicPartition

if TYPE_CHECKING:
    from tidelog.coordinators.transactions.shard import Decision

_log = logging.getLogger(__name__)

# Markers in one request.
_AT_ONCE_MAX: Final = 1_000
# The partition has seen a newer epoch of the producer: no transaction of this one is open there.
_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH})
_WORTH_A_LINE: Final = 20


class Marker(NamedTuple):
    """The end of a transaction in one of its partitions."""

    decision: Decision
    partition: TopicPartition


class MarkerLinks(NamedTuple):
    """What is needed of the broker."""

    image: Callable[[], MetadataImage]
    # Has a broker write markers: a code for each. KafkaError or NetworkError where it cannot.
    write: Callable[[int, Sequence[Marker]], Awaitable[list[ErrorCode]]]
    is_ours: Callable[[Decision], bool]
    # Writes down that a decision was carried out; KafkaError where that failed.
    complete: Callable[[Decision], None]
    random: Random


class MarkerSender:
    """Carries out decisions; one per broker."""

    def __init__(self, links: MarkerLinks, stats: TransactionStats) -> None:
        self._links = links
        self._stats = stats
        # Partitions that are still without their marker.
        self._open: dict[Decision, set[TopicPartition]] = {}
        self._lines: Lines[Marker] = Lines("markers", _AT_ONCE_MAX, self._write)
        # What has to be tried again: markers, and ends that could not be written down.
        self._later: dict[Marker, None] = {}
        self._unwritten: dict[Decision, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._backoff = Backoff(links.random, 0.01, 0.5)
        self._failures = 0
        self._is_closed = False

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def send(self, decision: Decision) -> None:
        """Take up a decision that is committed."""
        if self._is_closed or decision in self._open:
            return
        self._open[decision] = set(decision.partitions)
        # The shard that decided is in the middle of telling so.
        asyncio.get_running_loop().call_soon(self._route, decision, decision.partitions)

    def image_changed(self, *_: object) -> None:
        """Somebody else may lead now."""
        if self._later:
            self._try_again()

    async def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._lines.close()
        self._open.clear()

    # -- who gets what ----------------------------------------------------------------------------

    def _route(self, decision: Decision, partitions: Iterable[TopicPartition]) -> None:
        left = self._open.get(decision)
        if left is None or self._is_closed:
            return
        if not self._links.is_ours(decision):
            # The next coordinator finds the decision in its log.
            del self._open[decision]
            return
        topics = self._links.image().topics
        brokers = self._links.image().brokers
        for each in sorted(partitions):
            topic = topics.get(each.topic)
            if topic is None or each.partition >= len(topic.partitions):
                left.discard(each)
                continue
            leader = topic.partitions[each.partition].leader
            if leader in brokers:
                self._lines.put(leader, Marker(decision, each))
            else:
                self._retry(Marker(decision, each))
        if not left:
            self._finish(decision)

    async def _write(self, broker_id: int, markers: list[Marker]) -> None:
        try:
            codes = await self._links.write(broker_id, markers)
        except Exception as error:
            # Whatever it is: a marker that is not tried again holds up readers for ever.
            self._failed(markers, error)
            return
        for marker, code in zip(markers, codes, strict=True):
            self._answered(marker, code)

    def _failed(self, markers: Sequence[Marker], error: Exception) -> None:
        self._failures += 1
        if self._failures % _WORTH_A_LINE == 1:
            _log.warning("markers not written, will be tried again reason=%s", error)
        for marker in markers:
            self._retry(marker)

    def _answered(self, marker: Marker, code: ErrorCode) -> None:
        left = self._open.get(marker.decision)
        if left is None:
            return
        if code not in _DONE:
            self._failed([marker], KafkaError(code, f"partition {marker.partition}"))
            return
        self._stats.markers_sent += 1
        self._failures = 0
        self._backoff.reset()
        left.discard(marker.partition)
        if not left:
            self._finish(marker.decision)

    def _finish(self, decision: Decision) -> None:
        try:
            self._links.complete(decision)
        except KafkaError as error:
            if self._links.is_ours(decision):
                _log.warning(
                    "end of a transaction not written, will be tried again id=%r reason=%s",
                    decision.transactional_id, error,
                )  # fmt: skip
                self._unwritten[decision] = None
                self._arm()
                return
        self._open.pop(decision, None)

    # -- once more --------------------------------------------------------------------------------

    def _retry(self, marker: Marker) -> None:
        self._stats.markers_retried += 1
        self._later[marker] = None
        self._arm()

    def _arm(self) -> None:
        if self._timer is None and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._backoff.next_s(), self._try_again)

    def _try_again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_closed:
            return
        later, self._later = self._later, {}
        unwritten, self._unwritten = self._unwritten, {}
        by_decision: dict[Decision, list[TopicPartition]] = {}
        for marker in later:
            by_decision.setdefault(marker.decision, []).append(marker.partition)
        for decision, partitions in by_decision.items():
            self._route(decision, partitions)
        for decision in unwritten:
            self._finish(decision)
