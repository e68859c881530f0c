"""The driver's side of a streaming query: where it begins, how far the next micro-batch goes.

Promises, beyond the connector's: offsets once handed to Spark describe their batch completely, so a
batch that is run again after a crash reads the same records; a query that began at `latest` begins
there again, however soon it was killed after its first micro-batch; what Spark has committed is
committed to the query's group too, the last batch of an AvailableNow run included. Records that
retention, truncation or a new topic of the same name has taken away stop the query, or are logged.

No pyspark in here: `source` puts it behind Spark's interface.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID, uuid4

from tidelog.arrow.scan import DataLossError, PartitionRange
from tidelog.client.faults import NetworkError
from tidelog.client.operation import UnknownTopicError
from tidelog.errors import KafkaError
from tidelog.host.clock import Clock, SystemClock
from tidelog.model import NO_TOPIC_ID
from tidelog.spark.source.limits import DEFAULT_BYTES_PER_BATCH, share_out
from tidelog.spark.source.offsets import Offsets, StreamOffset
from tidelog.spark.source.open_transactions import OpenTransactions
from tidelog.spark.source.read_options import ReadOptions
from tidelog.spark.source.topics import Topics

# An idle query asks some ninety times a second; this long it is kept waiting for news instead.
IDLE_WAIT_MS = 200
_GONE = "the partition is gone"


def log_line(text: str) -> None:
    """A line for the driver's log; Spark collects what Python writes to standard error."""
    sys.stderr.write(f"tidelog: {text}\n")
    sys.stderr.flush()


class QueryProgress:
    """The state of one streaming query in its driver."""

    def __init__(
        self,
        options: ReadOptions,
        topics: Topics,
        clock: Clock | None = None,
        log: Callable[[str], None] = log_line,
    ) -> None:
        self._options = options
        self._topics = topics
        self._clock = clock or SystemClock()
        self._log = log
        self._initial: StreamOffset | None = None
        self._committed: Offsets = {}
        self._bound: Offsets | None = None
        self._newest: Offsets = {}
        self._last_batch_at = self._clock.monotonic()
        self._transactions = OpenTransactions(topics, self._clock, log)

    def initial(self) -> StreamOffset:
        """Where a query without a checkpoint begins; the same whenever it is asked."""
        if self._initial is None:
            partitions = self._topics.partitions(fresh=True)
            offsets = self._topics.resolve(self._options.starting, partitions, "startingOffsets")
            self._initial = StreamOffset(
                offsets,
                topic_ids=self._topics.topic_ids({tp.topic for tp in partitions}),
                group=self._group_name(),
                initial=True,
            )
        return self._initial

    def _group_name(self) -> str:
        return self._options.group or f"{self._options.group_prefix}-{uuid4()}"

    def bound_now(self) -> None:
        """From now on nothing that comes later is read (AvailableNow)."""
        # Those that are gone are for `advance` to tell, and `initial` tells of a wrong name.
        self._bound = self._topics.latest(self._topics.known_partitions(fresh=True))

    def newest(self) -> StreamOffset | None:
        """Where the logs ended when last looked at."""
        return StreamOffset(self._newest) if self._newest else None

    def advance(self, start: StreamOffset, *, unlimited: bool) -> StreamOffset:
        """Where the micro-batch that starts at `start` ends; `start` itself if there is none."""
        if not start.initial:
            self._commit(start)
        try:
            return self._advance(start, unlimited=unlimited)
        except UnknownTopicError:
            # Deleted since the partitions were listed last; listed anew they are without it.
            self._topics.known_partitions(fresh=True)
            return self._advance(start, unlimited=unlimited)

    def _advance(self, start: StreamOffset, *, unlimited: bool) -> StreamOffset:
        origin = self._origin(start)
        ends = self._ends(origin)
        self._transactions.look(self._newest)
        if self._is_idle(start, origin, ends):
            if self._bound is None:
                self._topics.wait_for_more(ends, IDLE_WAIT_MS)
            return start
        self._check_holes(origin, ends)
        if not unlimited:
            ends = self._limit(origin, ends)
        assert all(origin.next[tp] <= end for tp, end in ends.items()), "a batch goes backwards"
        self._last_batch_at = self._clock.monotonic()
        moved = {
            tp: offset
            for tp, offset in origin.next.items()
            if start.initial or start.next.get(tp) != offset
        }
        return replace(origin, next={**origin.next, **ends}, start=moved, initial=False)

    def _origin(self, start: StreamOffset) -> StreamOffset:
        """`start` with what has changed since: partitions that came or went, topics made anew."""
        known = self._topics.known_partitions()
        ids = self._topics.topic_ids({tp.topic for tp in known})
        offsets = dict(start.next)
        for tp in sorted(set(offsets) - set(known)):
            self._lose(DataLossError(tp, offsets[tp], offsets[tp] + 1, _GONE))
            del offsets[tp]
        anew = {name for name, each in start.topic_ids.items() if ids.get(name, each) != each}
        for name in sorted(anew):
            tp = next(tp for tp in known if tp.topic == name)
            reason = "the topic was deleted and created again"
            self._lose(DataLossError(tp, 0, offsets.get(tp, 0), reason))
        fresh = [tp for tp in known if tp not in offsets or tp.topic in anew]
        offsets |= self._topics.earliest(fresh)
        group = self._options.group or start.group or self._group_name()
        return StreamOffset(offsets, {}, ids, group, start.initial)

    def _ends(self, origin: StreamOffset) -> Offsets:
        ends = self._topics.latest(origin.next)
        # A query may have come further than read_committed reaches now, by reading uncommitted ones
        # before: nothing is lost then, it waits.
        beyond = {tp: end for tp, end in ends.items() if end < origin.next[tp]}
        for tp, more in self._topics.behind_stable(beyond).items():
            ends[tp] = min(origin.next[tp], ends[tp] + more)
        self._newest = dict(ends)
        if self._bound is not None:
            bound = self._bound
            ends = {tp: min(end, bound.get(tp, origin.next[tp])) for tp, end in ends.items()}
        return ends

    def _is_idle(self, start: StreamOffset, origin: StreamOffset, ends: Offsets) -> bool:
        if start.initial or origin.next != start.next or origin.topic_ids != start.topic_ids:
            return False
        waiting = sum(max(0, end - origin.next[tp]) for tp, end in ends.items())
        least = self._options.limits.min_rows
        if waiting and least is not None and waiting < least and self._bound is None:
            waited_ms = (self._clock.monotonic() - self._last_batch_at) * 1000
            return waited_ms < self._options.limits.max_delay_ms
        return not waiting and not any(end < origin.next[tp] for tp, end in self._newest.items())

    def _check_holes(self, origin: StreamOffset, ends: Offsets) -> None:
        """Move `origin` behind what is lost, or stop."""
        firsts = self._topics.earliest(origin.next)
        for tp, offset in origin.next.items():
            first, end = firsts[tp], ends[tp]
            if offset < first:
                reason = "retention or DeleteRecords has removed them"
                self._lose(DataLossError(tp, offset, first, reason))
                origin.next[tp] = first
                ends[tp] = max(end, first)
            elif self._newest[tp] < offset:
                end = self._newest[tp]
                reason = f"the log ends at {end}: it was truncated"
                self._lose(DataLossError(tp, end, offset, reason))
                origin.next[tp] = ends[tp] = end
            else:
                ends[tp] = max(end, offset)

    def _limit(self, origin: StreamOffset, ends: Offsets) -> Offsets:
        limits = self._options.limits
        max_bytes = limits.max_bytes
        if max_bytes is None and limits.max_rows is None:
            max_bytes = DEFAULT_BYTES_PER_BATCH
        ends = share_out(origin.next, ends, limits.max_rows)
        return (
            ends if max_bytes is None else self._topics.within_bytes(origin.next, ends, max_bytes)
        )

    def _lose(self, loss: DataLossError) -> None:
        if self._options.fail_on_data_loss:
            raise loss
        self._log(f"{loss}; going on, because failOnDataLoss is false")

    def _commit(self, start: StreamOffset) -> None:
        """Spark has committed `start`, so the group may; a failure costs the lag shown, no data."""
        group = self._options.group or start.group
        if not group or start.next == self._committed:
            return
        # A commit for a topic that was just deleted would be tried again for a minute.
        alive = set(self._topics.known_partitions(fresh=True))
        offsets = {tp: offset for tp, offset in start.next.items() if tp in alive}
        try:
            self._topics.commit(group, offsets)
        except (KafkaError, NetworkError) as error:
            self._log(f"the offsets of group '{group}' were not committed: {error}")
        self._committed = dict(start.next)

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[PartitionRange]:
        """What the micro-batch between two offsets reads."""
        known = set(self._topics.known_partitions())
        missing = [tp for tp in end.next if tp not in start.next and tp not in end.start]
        # Only a checkpoint of the connector's leaves out where a new partition began.
        earliest = self._topics.earliest(tp for tp in missing if tp in known)
        ranges = [
            PartitionRange(
                tp.topic,
                tp.partition,
                end.start.get(tp, start.next.get(tp, earliest.get(tp, 0))),
                offset,
                UUID(end.topic_ids[tp.topic]) if tp.topic in end.topic_ids else NO_TOPIC_ID,
            )
            for tp, offset in end.next.items()
        ]
        # Planned before the topic was deleted: no task could ever read it.
        for each in ranges:
            if each.topic_partition not in known and each.start < each.end:
                self._lose(DataLossError(each.topic_partition, each.start, each.end, _GONE))
        return [each for each in ranges if each.topic_partition in known]
