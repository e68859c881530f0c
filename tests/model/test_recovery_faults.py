"""A fixed life of a data directory with the n-th call to the disk failing, for every n.

The life creates a log, appends over several segments, flushes, rolls, checkpoints, truncates, moves
the log's start, retains, deletes another log, stops, starts and goes on. Each of its calls in turn
fails (EIO, ENOSPC), writes only in part, or takes the machine down. Whatever was flushed before
must be there after a new start, nothing may be there that was not appended, and starting twice
gives what starting once gave.
"""

from __future__ import annotations

import errno
import os
import uuid

import pytest

from tests.unit.storage.helpers import (
    NOW_MS,
    PARTITION,
    TOPIC_ID,
    World,
    batch,
    create_log,
    finish_cut,
    idempotent,
    marker,
    stored_batches,
    transactional,
    truncate,
)
from tidelog.config import TopicConfig
from tidelog.errors import KafkaError, StorageError
from tidelog.model import TopicPartition
from tidelog.protocol.batches import read_header
from tidelog.storage.admission import Admitted
from tidelog.storage.data_dir import DataDir
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.storage.verification import CLIENT, COORDINATOR, Origin
from tidelog.testing.disk import CrashMode, PowerCut, SimulatedDisk

DATA = "/data"
OTHER = TopicPartition("other", 3)
CONFIG = TopicConfig(segment_bytes=700, index_interval_bytes=100, file_delete_delay_ms=0)
NEW = NewLog(TOPIC_ID, CONFIG)
OTHER_NEW = NewLog(uuid.UUID(int=0x5678), CONFIG)
LONG = bool(os.environ.get("TIDELOG_LONG"))
STRIDE = 1 if LONG else 4
FAULTS: list[int | str] = [errno.EIO, errno.ENOSPC, errno.EROFS, "short", "crash"]
SURVIVED = (KafkaError, StorageError, OSError)


class Life:
    """The scenario, and the truth about it as its caller knows it."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.world = World(disk, config=CONFIG)
        self.wanted = {PARTITION: NEW, OTHER: OTHER_NEW}
        self.deleted: list[uuid.UUID] = []
        self.sent: list[bytes] = []
        # Batches whose append raised: a crash may show them, whole, at the end.
        self.unsure: list[bytes] = []
        self.flushed = 0
        self.log_start = 0
        self.faults = 0
        self.sequence = 0
        self.data_dir: DataDir | None = None

    def run(self) -> None:
        self.start()
        for size in (10, 200, 300, 20, 100, 250):
            self.append(batch(2, size=size, fill=len(self.sent)))
        self.attempt(self.flush)
        self.append_idempotent()
        self.attempt(self.checkpoint)
        self.append(transactional(0, producer_id=8))
        self.append(marker(0, producer_id=8), COORDINATOR)
        for size in (300, 10, 300):
            self.append(batch(size=size, fill=len(self.sent)))
        self.attempt(self.truncate)
        self.append(batch(3, fill=99))
        self.attempt(self.flush)
        self.attempt(self.advance)
        self.attempt(self.retain)
        self.attempt(self.delete_other)
        self.stop()
        self.start()
        for _ in range(6):
            self.append_idempotent()
        self.attempt(self.flush)
        self.append(batch(fill=77))
        self.stop()

    # Steps; each may fail, and the life goes on

    def attempt(self, step) -> bool:
        try:
            if self.data_dir is not None and PARTITION in self.data_dir.logs:
                step()
            return True
        except SURVIVED:
            self.faults += 1
            return False

    def start(self) -> None:
        for _ in range(3):
            try:
                self.world.restart()
                self.data_dir = None
                opened = DataDir.open(DATA, self.world.context)
                try:
                    opened.identify("cluster", 1)
                    loaded = opened.load_logs(self.wanted, deleted=self.deleted)
                    assert "accept-loss" not in str(loaded.offline), "an injected fault is no loss"
                    if loaded.offline:
                        raise OSError(errno.EIO, str(loaded.offline))
                    opened.remove_retired(loaded.retired)
                    for partition, new in self.wanted.items():
                        if partition not in opened.logs:
                            create_log(opened, partition, new)
                except SURVIVED:
                    opened.abandon()
                    raise
                self.data_dir = opened
                return
            except SURVIVED:
                self.faults += 1

    def stop(self) -> None:
        if self.data_dir is None:
            return
        log = self.data_dir.logs[PARTITION]
        if self.data_dir.close({PARTITION: log.log_end_offset}):
            self.flushed = max(self.flushed, log.log_end_offset)
        else:
            self.faults += 1
        self.data_dir = None

    @property
    def log(self) -> Log:
        assert self.data_dir is not None
        return self.data_dir.logs[PARTITION]

    def append(self, item: Admitted, origin: Origin = CLIENT) -> None:
        if self.data_dir is None:
            return
        end = self.log.log_end_offset
        try:
            self.log.append(item, 1, NOW_MS, origin)
        except SURVIVED:
            self.faults += 1
            if self.log.log_end_offset == end:
                self.unsure.append(bytes(item.buffer))
                return
        except PowerCut:
            self.unsure.append(bytes(item.buffer))
            raise
        self.sent.append(bytes(item.buffer))

    def append_idempotent(self) -> None:
        before = len(self.sent)
        self.append(idempotent(self.sequence))
        self.sequence += len(self.sent) - before

    def flush(self) -> None:
        plan = self.log.flush_plan()
        plan.run()
        self.log.flushed(plan)
        self.flushed = max(self.flushed, self.log.flushed_offset)

    def checkpoint(self) -> None:
        assert self.data_dir is not None
        self.data_dir.checkpoint({PARTITION: self.log.flushed_offset}).run()

    def truncate(self) -> None:
        assert self.data_dir is not None
        end = max(self.log.log_end_offset - 2, 0)
        cut = [data for data in self.sent if _end(data) > end]
        sent, unsure = self.sent, self.unsure
        plan = self.log.cuts.truncation(end)
        assert plan is not None
        # Until a truncation has succeeded, what it cuts may be there or not.
        self.sent = [data for data in sent if _end(data) <= end]
        self.unsure = unsure + cut
        self.flushed = min(self.flushed, end)
        while True:
            try:
                finish_cut(self.log, plan, self.data_dir)
                break
            except SURVIVED:
                self.faults += 1
                if self.log.offline:
                    return
        self.unsure = unsure

    def advance(self) -> None:
        self.log.advance_log_start(6)
        self.log_start = 6
        self.checkpoint()

    def retain(self) -> None:
        try:
            self.log.apply_retention(NOW_MS, self.log.log_end_offset)
        finally:
            self.world.run_deferred()

    def delete_other(self) -> None:
        assert self.data_dir is not None
        self.wanted.pop(OTHER, None)
        self.deleted = [OTHER_NEW.topic_id]
        self.data_dir.drop(OTHER)
        retired = self.data_dir.retire_directory(OTHER, OTHER_NEW.topic_id)
        if retired is not None:
            self.data_dir.remove_retired([retired])
        self.world.run_deferred()

    # The truth

    def check(self, mode: CrashMode) -> None:
        """Start on what is left, twice."""
        disk = self.world.disk.crash(mode)
        first = _recovered(disk)
        again = disk.crash(CrashMode.LOSE_ALL)
        assert _recovered(again) == first, "recovery is not the same when done twice"
        start, found = first
        end = _end(found[-1]) if found else start
        assert end >= self.flushed, f"flushed {self.flushed}, found {end}"
        unsure = set(self.unsure) - set(self.sent)
        assert all(data in unsure for data in found if data not in self.sent)
        wanted = [data for data in self.sent if start < _end(data) <= end]
        assert [data for data in found if data not in unsure] == wanted


def _end(data: bytes) -> int:
    return read_header(data).last_offset + 1


def _recovered(disk: SimulatedDisk, *, appends: bool = True) -> tuple[int, list[bytes]]:
    world = World(disk, config=CONFIG)
    data_dir = DataDir.open(DATA, world.context)
    loaded = data_dir.load_logs({PARTITION: NEW})
    assert PARTITION not in loaded.offline
    log = loaded.logs.get(PARTITION)
    found = (0, []) if log is None else (log.log_start_offset, stored_batches(log))
    if log is not None and appends:
        assert log.append(batch(), 9, NOW_MS).base_offset == log.log_end_offset - 1
        truncate(log, log.log_end_offset - 1)
    data_dir.abandon()
    return found


def _calls_of_a_good_life() -> int:
    disk = SimulatedDisk(1)
    life = Life(disk)
    life.run()
    assert life.faults == 0
    assert life.flushed
    life.check(CrashMode.LOSE_ALL)
    return disk.calls


@pytest.mark.parametrize("fault", FAULTS)
def test_s16_the_nth_call_fails_and_nothing_flushed_is_lost(fault: int | str) -> None:
    calls = _calls_of_a_good_life()
    assert calls > 300
    struck = 0
    modes = list(CrashMode)
    # Every call is struck by some fault in the short tier, by all of them in the long one.
    for number in range(1 + FAULTS.index(fault) % STRIDE, calls + 1, STRIDE):
        for mode in modes if LONG else [modes[number // STRIDE % len(modes)]]:
            disk = SimulatedDisk(number)
            disk.fail_at(number, fault)
            life = Life(disk)
            try:
                life.run()
            except PowerCut:
                struck += 1
            struck += life.faults
            try:
                life.check(mode)
            except BaseException as error:
                error.add_note(f"call {number} of {calls}, {fault}, {mode}")
                raise
    assert struck >= (calls // STRIDE if fault != "short" else 10)


def test_s16_a_crash_during_recovery_loses_nothing_either() -> None:
    """The machine goes down in the life, and again at each call of the recovery after it."""
    cases = 0
    for stop_at in (60, 120, 200, 260):
        number = 0
        while True:
            number += STRIDE
            disk = SimulatedDisk(stop_at)
            disk.fail_at(stop_at, "crash")
            life = Life(disk)
            with pytest.raises(PowerCut):
                life.run()
            life.world.disk = disk.crash(CrashMode.RANDOM)
            life.world.disk.fail_at(number, "crash")
            try:
                _recovered(life.world.disk, appends=False)
            except PowerCut:
                cases += 1
                life.check(CrashMode.RANDOM)
                continue
            break
    assert cases >= 40
