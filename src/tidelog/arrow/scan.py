"""Ranges of partitions read to their ends, as Arrow record batches, in bounded memory.

Promises: of each range every record that the broker still keeps comes once, in the order of its
partition; what the broker does not keep any more is told, never passed over: `DataLossError` names
the offsets and the reason, or with `on_loss` given that is called and the scan goes on behind the
hole. Gaps that compaction or transaction markers leave are no loss. A range that makes no progress
for `stall_timeout_ms` is an error too.

Works against Apache Kafka and Tidelog alike. One connection per leader, kept by the caller's
`Consumer` for as long as he likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa

from tidelog.arrow.decode import Decoder
from tidelog.client.blocking_consumer import Consumer
from tidelog.client.fetcher import Position
from tidelog.client.offsets import log_bounds
from tidelog.client.operation import refresh, retrying, topic_metadata
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.model import NO_TOPIC_ID, Isolation, TopicPartition

# The longest time in which nothing is looked at: a stalled or truncated partition is noticed then.
_POLL_SECONDS = 1.0
_STALL_TIMEOUT_MS = 120_000


@dataclass(slots=True, frozen=True)
class PartitionRange:
    """The records of one partition from `start` up to but not including `end`."""

    topic: str
    partition: int
    start: int
    end: int
    # The topic that was meant; another one of the same name is a loss of all that was planned.
    topic_id: UUID = NO_TOPIC_ID

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class DataLossError(TidelogError):
    """Records that were to be read are gone: which, and why."""

    def __init__(self, partition: TopicPartition, start: int, end: int, reason: str) -> None:
        super().__init__(f"{partition}: offsets {start} to {end - 1} are lost: {reason}")
        self.partition = partition
        self.start = start
        self.end = end
        self.reason = reason


@dataclass(slots=True)
class ScanPolicy:
    """What a scan does about holes and standstill."""

    on_loss: Callable[[DataLossError], None] | None = None
    stall_timeout_ms: int = _STALL_TIMEOUT_MS


class Scan:
    """One pass over some ranges; iterate over it once."""

    def __init__(
        self,
        consumer: Consumer,
        ranges: Sequence[PartitionRange],
        decoder: Decoder,
        policy: ScanPolicy | None = None,
    ) -> None:
        self._consumer = consumer
        self._decoder = decoder
        self._policy = policy or ScanPolicy()
        self._ranges = {each.topic_partition: each for each in ranges if each.start < each.end}
        assert len(self._ranges) == sum(each.start < each.end for each in ranges), (
            "one range for each partition"
        )
        self._ends = {tp: each.end for tp, each in self._ranges.items()}
        # Whether an open transaction is what a range was last seen waiting for.
        self._held = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if not self._ranges:
            return
        self._begin()
        core, clock = self._consumer.core, self._consumer.cluster.clock
        moved_at = clock.monotonic()
        while self._ends:
            progressed = False
            try:
                for chunk in self._consumer.poll_chunks(_POLL_SECONDS):
                    progressed = True
                    if self._is_another(chunk.partition):
                        self._give_up(chunk.partition, chunk.fetch_offset)
                        continue
                    end = self._ends[chunk.partition]
                    assert self._ranges[chunk.partition].start <= chunk.fetch_offset < end
                    yield from self._decoder.decode(chunk, end)
                    if chunk.next_offset >= end:
                        self._finish(chunk.partition)
            except KafkaError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                self._look_for_loss(list(self._ends))
            if progressed:
                moved_at = clock.monotonic()
                continue
            self._look_at_ends(core.positions)
            if (clock.monotonic() - moved_at) * 1000 > self._policy.stall_timeout_ms:
                raise self._stalled()

    def _begin(self) -> None:
        cluster = self._consumer.cluster
        names = sorted({tp.topic for tp in self._ranges})
        self._consumer.run(retrying(cluster, lambda: refresh(cluster, names)))
        self._consumer.run(topic_metadata(cluster, names))
        for tp, each in self._ranges.items():
            if self._is_another(tp):
                self._give_up(tp, each.start)
        self._consumer.core.assign(
            {tp: self._ranges[tp].start for tp in self._ends}, dict(self._ends)
        )

    def _is_another(self, partition: TopicPartition) -> bool:
        """Whether the topic is not the one that was meant any more, as far as brokers tell."""
        meant = self._ranges[partition].topic_id
        found = self._consumer.cluster.topic_id(partition.topic)
        return NO_TOPIC_ID not in (meant, found) and meant != found

    def _give_up(self, partition: TopicPartition, position: int) -> None:
        reason = "the topic was deleted and created again"
        self._lose(partition, position, self._ends[partition], reason)
        self._finish(partition)

    def _finish(self, partition: TopicPartition) -> None:
        del self._ends[partition]
        self._consumer.core.positions.pop(partition, None)

    def _look_at_ends(self, positions: dict[TopicPartition, Position]) -> None:
        """A log that ends before the range does was truncated; a fetch at its end just waits."""
        committed = self._consumer.settings.isolation is Isolation.READ_COMMITTED
        short, held = [], False
        for tp, state in positions.items():
            known = state.last_stable_offset if committed else state.high_watermark
            if 0 <= known <= state.position and state.position < self._ends[tp]:
                short.append(tp)
                held |= committed and known < state.high_watermark
        if short:
            self._held = held
            self._look_for_loss(short)

    def _look_for_loss(self, partitions: list[TopicPartition]) -> None:
        cluster, core = self._consumer.cluster, self._consumer.core
        bounds = self._consumer.run(log_bounds(cluster, partitions))
        for tp in partitions:
            low, high = bounds[tp]
            position = core.positions[tp].position if tp in core.positions else low
            end = self._ends[tp]
            if position < low:
                gone = min(low, end)
                self._lose(tp, position, gone, "retention or DeleteRecords has removed them")
                position = gone
            if high < end and position >= high:
                self._lose(tp, position, end, f"the log ends at {high}: it was truncated")
                position = end
            if position >= end:
                self._finish(tp)
            else:
                core.seek(tp, position)
                core.positions[tp].stop_offset = end

    def _lose(self, partition: TopicPartition, start: int, end: int, reason: str) -> None:
        loss = DataLossError(partition, start, end, reason)
        if self._policy.on_loss is None:
            raise loss
        self._policy.on_loss(loss)

    def _stalled(self) -> TidelogError:
        waiting = ", ".join(
            f"{tp} at {self._consumer.core.positions[tp].position} of {end}"
            for tp, end in self._ends.items()
        )
        trouble = self._consumer.core.trouble
        why = f"; the last trouble was: {trouble}" if trouble else ""
        if self._held:
            why = "; an open transaction stands there, and read_committed waits for its end" + why
        return TidelogError(
            f"nothing came for {self._policy.stall_timeout_ms} ms from {waiting}{why}"
        )
