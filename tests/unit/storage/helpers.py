"""Logs on a simulated disk, and batches to put into them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.config import TopicConfig
from tidelog.model import Codec, LogPosition, TopicPartition
from tidelog.protocol.batches import (
    Record,
    decode_records,
    encode_batch,
    encode_control_batch,
    iterate_batches,
    read_header,
)
from tidelog.storage.admission import Admitted
from tidelog.storage.data_dir import DataDir
from tidelog.storage.file_cache import FileCache
from tidelog.storage.log import AppendResult, Log
from tidelog.storage.log_context import LogContext, NewLog
from tidelog.storage.losses import Expectation
from tidelog.storage.recovery import Opening
from tidelog.storage.running_clock import RunningClock
from tidelog.storage.slices import FileSlice
from tidelog.storage.timestamp_search import FoundRecord, newest_timestamp, timestamp_searches
from tidelog.storage.truncation import Truncation
from tidelog.storage.verification import COORDINATOR
from tidelog.testing.disk import SimulatedDisk
from tidelog.testing.virtual_loop import SeededRandom

TOPIC_ID = uuid.UUID(int=0x1234)
PARTITION = TopicPartition("orders", 0)
DIRECTORY = "/data/orders-0"
NOW_MS = 1_700_000_000_000


class ManualClock:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.seconds = 1000.0

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.seconds += ms / 1000


@dataclass
class World:
    """A disk, a clock, and what a log asked of its surroundings."""

    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    clock: ManualClock = field(default_factory=ManualClock)
    deferred: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    offline: list[tuple[str, OSError]] = field(default_factory=list)
    emptied: list[str] = field(default_factory=list)
    config: TopicConfig = field(default_factory=lambda: TopicConfig(segment_bytes=4096))
    descriptors: int = 64
    # How often a broker has started here: no two of its lives draw the same.
    lives: int = 0

    def __post_init__(self) -> None:
        self.disk._now_ms = self.clock.wall_ms
        self.running_clock = RunningClock(self.clock)
        self.restart()

    def restart(self) -> None:
        self.lives += 1
        self.context = LogContext(
            self.disk,
            self.clock,
            FileCache(self.disk, self.descriptors),
            SeededRandom(self.lives),
            lambda delay_s, function: self.deferred.append((delay_s, function)),
            lambda path, error: self.offline.append((path, error)),
            self.emptied.append,
        )
        # A broker keeps it in its data directory.
        self.context.running_clock = self.running_clock

    def run_for(self, ms: int) -> None:
        """Let time pass on both clocks while the broker runs and looks at them."""
        while ms > 0:
            step_ms = min(ms, 30_000)
            self.clock.advance(step_ms)
            self.running_clock.observe()
            ms -= step_ms

    def open(self, *, clean: bool = False, recovery_point: int = 0, log_start: int = 0) -> Log:
        if not self.disk.exists(DIRECTORY):
            self.disk.make_dir(DIRECTORY)
            self.disk.sync_dir("/")
            self.disk.sync_dir("/data")
        expected = Expectation(DIRECTORY, recovery_point, log_start, listed=log_start > 0)
        log = Log.open(
            Opening(PARTITION, NewLog(TOPIC_ID, self.config), self.context, expected, clean)
        )
        # As the data directory does once all its logs are open.
        for path in log.repairs.left_over:
            self.disk.unlink(path)
        self.disk.sync_all("/data")
        return log

    def reopen_after(self, disk: SimulatedDisk, **known: int) -> Log:
        """Start anew on what a crash left."""
        self.disk = disk
        self.restart()
        return self.open(**known)

    def run_deferred(self) -> None:
        pending, self.deferred = self.deferred, []
        for _, function in pending:
            function()
        # As the data directory does once it has written down where the log starts.
        for path in self.emptied:
            if self.disk.exists(path):
                self.disk.unlink(path)
        self.emptied.clear()


def admitted(data: bytearray) -> Admitted:
    view = memoryview(data)
    return Admitted(view, read_header(view))


def batch(
    count: int = 1,
    *,
    size: int = 20,
    timestamp: int = NOW_MS,
    fill: int = 0,
    codec: Codec = Codec.NONE,
    **fields: int,
) -> Admitted:
    """A batch of `count` records with distinct content where `fill` differs."""
    records = [
        Record(timestamp=timestamp + number, key=b"%06d" % fill, value=bytes([fill % 256]) * size)
        for number in range(count)
    ]
    return admitted(encode_batch(records, codec=codec, **fields))


def idempotent(sequence: int, *, count: int = 1, producer_id: int = 7, epoch: int = 0) -> Admitted:
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def transactional(
    sequence: int, *, count: int = 1, producer_id: int = 7, epoch: int = 0
) -> Admitted:
    return batch(
        count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


def marker(control_type: int, *, producer_id: int = 7, epoch: int = 0) -> Admitted:
    return admitted(
        encode_control_batch(
            control_type,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=1,
            timestamp=NOW_MS,
        )
    )


def append(log: Log, item: Admitted | None = None, *, epoch: int = 0) -> AppendResult:
    return log.append(item or batch(), epoch, NOW_MS)


def append_marker(log: Log, item: Admitted) -> AppendResult:
    return log.append(item, 0, NOW_MS, COORDINATOR)


def flush(log: Log) -> None:
    plan = log.flush_plan()
    plan.run()
    log.flushed(plan)


def close(log: Log) -> None:
    """Stop a log as its data directory does, cleanly unless that raises."""
    try:
        if log.write_for_stop():
            log.sync()
    finally:
        log.abandon()


def truncate(log: Log, offset: int, data_dir: DataDir | None = None) -> None:
    """Cut a log, memory and disk."""
    finish_cut(log, log.cuts.truncation(offset), data_dir)


def start_over(log: Log, offset: int) -> None:
    finish_cut(log, log.cuts.start_over(offset))


def finish_cut(log: Log, cut: Truncation | None, data_dir: DataDir | None = None) -> None:
    """The steps behind the first, as a broker takes them."""
    if cut is not None:
        if data_dir is not None:
            data_dir.checkpoint(None).run()
        cut.run()
        log.cuts.done(cut)


def create_log(data_dir: DataDir, partition: TopicPartition, new: NewLog) -> Log:
    """Make one partition and take it into service."""
    outcome = data_dir.create_logs({partition: new})[partition]
    if not isinstance(outcome, Log):
        raise outcome
    data_dir.add(outcome)
    return outcome


def offset_for_timestamp(log: Log, timestamp: int) -> FoundRecord | None:
    """Offset, timestamp and leader epoch of the first record that is at least so new."""
    for search in timestamp_searches(log, timestamp):
        try:
            found = search.run()
        finally:
            search.release()
        if found is not None:
            return found
    return None


def offset_of_max_timestamp(log: Log) -> FoundRecord | None:
    """Offset, timestamp and leader epoch of the first of the newest records."""
    newest = newest_timestamp(log)
    return None if newest < 0 else offset_for_timestamp(log, newest)


def _as_stored(piece: FileSlice) -> bytes:
    with piece.segment.log_file as fd:
        return piece.segment.disk.pread(fd, piece.length, piece.position)


def stored_batches(log: Log, max_bytes: int = 1 << 20) -> list[bytes]:
    """Every batch of the log as it is on the disk, though it may be damaged there."""
    found: list[bytes] = []
    offset = log.log_start_offset
    limit: LogPosition = log.end_position
    while offset < limit.offset:
        slices = log.read(offset, max_bytes, limit)
        data = b"".join(map(_as_stored, slices.slices))
        slices.release()
        assert data, f"nothing at {offset} below {limit}"
        for position, header in iterate_batches(data):
            found.append(data[position : position + header.size_bytes])
            offset = header.last_offset + 1
    return found


def offsets(log: Log) -> list[int]:
    return [record.offset for data in stored_batches(log) for record in decode_records(data)]
