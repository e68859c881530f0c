"""One partition on one disk, as its leader and its followers use it: open and append.

Everything is synchronous and belongs to one owner; only syncing and unlinking are handed out, as a
`FlushPlan` and through `LogContext.run_later`. Promises:

- A batch is readable only when all its bytes were written. A full disk, or a process without free
  descriptors, refuses the batch with KAFKA_STORAGE_ERROR and leaves the log as it was; the log
  works again when that has passed. Any other fault of the disk takes the log offline for good: a
  failed sync is never tried again.
- Offsets rise and are not used twice for different content that anybody could have read.
- A retry of one of a producer's last five batches is answered with the offsets of the first try.
- `flushed_offset` moves only when all below it, the directory entries of its files, and the leader
  epochs are synced; it is the recovery point.

Reading is `log_read`, keeping is `log_upkeep`, cleaning is `compaction`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from tidelog.config.topic_config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.model import LogPosition, TimestampType, TopicPartition
from tidelog.protocol.batches import (
    ATTRIBUTES_LOG_APPEND_TIME,
    ATTRIBUTES_TRANSACTIONAL,
    LOG_OVERHEAD,
    BatchHeader,
    check_crc,
    iterate_batches,
    stamp,
)
from tidelog.storage.admission import Admitted
from tidelog.storage.faults import OUT_OF_DESCRIPTORS
from tidelog.storage.flush import FlushPlan
from tidelog.storage.log_context import LogContext
from tidelog.storage.log_upkeep import LogOfflineError, LogUpkeep
from tidelog.storage.losses import Expectation
from tidelog.storage.producers import EndMarker, ProducerBatch
from tidelog.storage.recovery import Opened, Opening, load
from tidelog.storage.replay import read_marker
from tidelog.storage.segment import DiskFullError, Segment
from tidelog.storage.slices import FileSlice, Slices
from tidelog.storage.transaction_index import aborted_transaction

__all__ = [
    "AppendResult",
    "FileSlice",
    "FlushPlan",
    "Log",
    "LogContext",
    "LogOfflineError",
    "NewLog",
    "Slices",
]


class NewLog(NamedTuple):
    """What a partition's log belongs to, and the settings that it goes by."""

    topic_id: UUID
    config: TopicConfig


@dataclass(slots=True)
class AppendResult:
    """Where an appended batch lies."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class Log(LogUpkeep):
    """The records of one partition on this broker."""

    __slots__ = ()

    @classmethod
    def open(  # noqa: PLR0913 - each is a fact about the one log
        cls,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: TopicConfig,
        context: LogContext,
        *,
        clean: bool,
        expected: Expectation | None = None,
    ) -> Log:
        """Open a partition's directory, recovering what is in it unless the last stop was clean.

        PartitionDamagedError where it is not what was expected. Nothing is synced; see `recovery`.
        """
        expected = expected or Expectation(directory)
        opening = Opening(directory, context, clean, expected, config.index_interval_bytes)
        log = cls(opening, load(opening), config)
        log.topic_partition = topic_partition
        log.topic_id = topic_id
        return log

    @classmethod
    def created(
        cls, directory: str, topic_partition: TopicPartition, new: NewLog, context: LogContext
    ) -> Log:
        """A log whose empty first segment is on disk; touches no file."""
        opening = Opening(
            directory, context, True, Expectation(directory), new.config.index_interval_bytes
        )
        opened = Opened([Segment(context, directory, 0)], untouched=True)
        log = cls(opening, opened, new.config)
        log.topic_partition = topic_partition
        log.topic_id = new.topic_id
        return log

    # Appending

    def append(
        self,
        admitted: Admitted,
        leader_epoch: int,
        now_ms: int,
        *,
        from_client: bool = True,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append as the leader: check the producer, stamp offset and epoch, write.

        `from_client` is False for the batches of coordinators: no sequences, control batches too.
        """
        self._check_batches(admitted, leader_epoch)
        headers = admitted.headers
        header = headers[0]
        marker: EndMarker | None = None
        if header.producer_id >= 0:
            if header.is_control:
                marker = self._check_marker(admitted, transaction_version)
            else:
                duplicate = self.producers.check(header, from_client=from_client)
                if duplicate is not None:
                    return self._repeated(duplicate)
        offset = first_offset = self.segments[-1].next_offset
        for position, header in zip(admitted.positions, headers, strict=True):
            stamp(admitted.buffer, position, offset, leader_epoch)
            header.base_offset = offset
            header.leader_epoch = leader_epoch
            offset += header.last_offset_delta + 1
        segment = self._write(headers, admitted.buffer, now_ms)
        self.producers.now_ms = now_ms
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, first_offset)
        for header in headers:
            self._note(segment, header, marker)
        append_time_ms = (
            header.max_timestamp if header.attributes & ATTRIBUTES_LOG_APPEND_TIME else -1
        )
        return AppendResult(first_offset, offset - 1, append_time_ms, self.log_start_offset)

    def append_as_follower(self, records: memoryview) -> None:
        """Append what a leader sent, unchanged; a partial batch at the end is left out."""
        if self._offline is not None:
            raise self._offline_error()
        batches = list(iterate_batches(records))
        if not batches:
            return
        expected = self.log_end_offset
        for position, header in batches:
            if header.base_offset < expected:
                raise StorageError(
                    f"{self.topic_partition} ends at {expected}; the leader sent offset"
                    f" {header.base_offset}"
                )
            if not check_crc(records, position, header.size_bytes):
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"replicated batch at offset {header.base_offset}"
                )
            expected = header.last_offset + 1
        headers = [header for _, header in batches]
        size_bytes = batches[-1][0] + headers[-1].size_bytes
        now_ms = self._context.clock.wall_ms()
        segment = self._write(headers, records[:size_bytes], now_ms)
        self.producers.now_ms = now_ms
        for position, header in batches:
            if header.leader_epoch > self.epochs.latest:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            marker = None
            if header.is_control and header.producer_id >= 0:
                marker = read_marker(records[position : position + header.size_bytes], header)
            self._note(segment, header, marker)

    def _check_batches(self, admitted: Admitted, leader_epoch: int) -> None:
        if self._offline is not None:
            raise self._offline_error()
        if admitted.size_bytes > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{admitted.size_bytes} bytes do not fit a segment of {self.config.segment_bytes}",
            )
        if len(admitted.headers) > 1 and admitted.headers[0].producer_id >= 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, "more than one batch of a producer")
        if leader_epoch < self.epochs.latest:
            # Recovery takes a falling epoch for the end of the log.
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"leader epoch {leader_epoch} is older than the log's {self.epochs.latest}",
            )

    def _check_marker(self, admitted: Admitted, transaction_version: int) -> EndMarker | None:
        marker = read_marker(admitted.buffer, admitted.headers[0])
        if marker is not None:
            marker.transaction_version = transaction_version
            self.producers.check_marker(marker)
        return marker

    def _repeated(self, batch: ProducerBatch) -> AppendResult:
        stamped = self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        return AppendResult(
            batch.first_offset,
            batch.last_offset,
            batch.timestamp if stamped else -1,
            self.log_start_offset,
            duplicate=True,
        )

    def _write(self, headers: list[BatchHeader], buffer: memoryview, now_ms: int) -> Segment:
        """Write stamped batches; the segment that they are in now."""
        size_bytes = len(buffer)
        try:
            segment = self._segment_for(headers, size_bytes, now_ms)
            if headers[-1].is_control:
                # Noting the marker of an aborted transaction must not have to open a file.
                segment.aborted.load()
            segment.write(buffer, size_bytes)
        except (DiskFullError, KafkaError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in OUT_OF_DESCRIPTORS:
                self._fail(error)
            # The log is as it was; what the producer sent behind this batch hears the same.
            if headers[0].producer_id >= 0:
                self.producers.refuse(headers[0], ErrorCode.KAFKA_STORAGE_ERROR)
            if isinstance(error, KafkaError):
                raise
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._flush.wrote(segment)
        return segment

    def _note(self, segment: Segment, header: BatchHeader, marker: EndMarker | None) -> None:
        position = segment.size_bytes
        try:
            segment.note(
                header, header.batch_length + LOG_OVERHEAD, self.config.index_interval_bytes
            )
            if header.producer_id < 0:
                return
            if marker is not None:
                self._end_transaction(segment, marker)
            elif not header.is_control:
                place = None
                if header.attributes & ATTRIBUTES_TRANSACTIONAL:
                    place = LogPosition(header.base_offset, segment.base_offset, position)
                self.producers.update(header, place)
            else:
                self.producers.take_epoch(header)
        except OSError as error:
            self._fail(error)

    def _end_transaction(self, segment: Segment, marker: EndMarker) -> None:
        completed = self.producers.end_transaction(marker)
        if completed is not None and completed.aborted:
            stable = self.producers.last_stable_offset_after(completed)
            segment.aborted.append(aborted_transaction(completed, stable))
