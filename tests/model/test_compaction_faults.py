"""A clean and its swaps with the n-th call to the disk failing, for every n.

The log has several groups of segments to be written anew, with tombstones, aborted and committed
transactions and every codec. Whatever fails, and whatever of the unsynced a crash leaves, each
group is found as it was before or as it is after, the groups before it being done; readers see the
same newest records; and the next clean comes to the same end as an undisturbed one.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest

from tests.unit.storage.compaction_helpers import COMPACT, clean, keyed, seal, stored, visible
from tests.unit.storage.helpers import (
    DIRECTORY,
    NOW_MS,
    World,
    append_marker,
    flush,
    marker,
    stored_batches,
)
from tidelog.errors import KafkaError, StorageError
from tidelog.model import Codec
from tidelog.storage.log import Log
from tidelog.storage.segment import DiskFullError
from tidelog.testing.disk import CrashMode, PowerCut, SimulatedDisk

LONG = bool(os.environ.get("TIDELOG_LONG"))
CONFIG = replace(COMPACT, segment_bytes=900)
FAULTS: list[int | str] = [errno.EIO, errno.ENOSPC, "short", "crash"]
SURVIVED = (KafkaError, StorageError, OSError, DiskFullError)


def filled(disk: SimulatedDisk) -> tuple[World, Log]:
    """A log of small segments, all flushed, that a clean makes fewer and smaller."""
    world = World(disk, config=replace(CONFIG, segment_bytes=400))
    log = world.open()
    sequence = 0
    for number in range(24):
        value = None if number % 5 == 4 else f"{number}" * 30
        item = keyed([(f"k{number % 7}", value), ("same", "x")], codec=list(Codec)[number % 5])
        log.append(item, 0, NOW_MS)
        if number % 4 == 0:
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            item = keyed([(f"t{number % 3}", "in transaction")], transactional=True, **fields)
            log.append(item, 0, NOW_MS)
            append_marker(log, marker(number // 4 % 2))
            sequence += 1
    seal(log)
    world.config = CONFIG
    log.reconfigure(CONFIG)
    return world, log


class Truth:
    """The log before a clean and after an undisturbed one."""

    def __init__(self) -> None:
        world, log = filled(SimulatedDisk(1))
        self.before = stored_batches(log)
        self.newest = newest_by_key(log)
        began = world.disk.calls
        clean(log)
        flush(log)
        world.run_deferred()
        self.calls = world.disk.calls - began
        self.after = stored_batches(log)
        self.records = stored(log)
        self.bases = [segment.base_offset for segment in log.segments]
        assert len(self.bases) >= 4
        assert newest_by_key(log) == self.newest
        assert len(self.after) < len(self.before)

    def expected(self) -> list[list[bytes]]:
        """The log with none, the first, the first two, ... of its groups replaced."""
        return [
            [data for data in self.after if first_offset(data) < base]
            + [data for data in self.before if first_offset(data) >= base]
            for base in self.bases
        ]


def first_offset(data: bytes) -> int:
    return int.from_bytes(data[:8], "big")


def newest_by_key(log: Log) -> dict[bytes, tuple[int, bytes | None]]:
    return {record.key or b"": (record.offset, record.value) for record in visible(log)}


def run_clean(world: World, log: Log) -> bool:
    """A clean as the broker runs it; False where it was struck."""
    try:
        clean(log)
        flush(log)
        world.run_deferred()
    except SURVIVED:
        return False
    return True


def check_found(truth: Truth, world: World, mode: CrashMode) -> None:
    """Start on what is left, twice, and clean again."""
    disk = world.disk.crash(mode)
    known = {"recovery_point": first_offset(truth.before[-1])}
    log = world.reopen_after(disk, **known)
    found = stored_batches(log)
    assert found in truth.expected()
    assert newest_by_key(log) == truth.newest
    assert log.repairs.truncated_bytes == 0
    suffixes = (".cleaned", ".swap", ".deleted")
    assert not [name for name in disk.list_dir(DIRECTORY) if name.endswith(suffixes)]
    log = world.reopen_after(disk.crash(CrashMode.LOSE_ALL), recovery_point=0)
    assert stored_batches(log) == found
    seal(log)
    clean(log)
    assert stored(log) == truth.records
    assert newest_by_key(log) == truth.newest


@pytest.mark.parametrize("fault", FAULTS)
def test_s16_the_nth_call_of_a_clean_fails_and_nothing_is_lost(fault: int | str) -> None:
    truth = Truth()
    assert truth.calls > 200
    struck = 0
    modes = list(CrashMode)
    stride = 1 if LONG or isinstance(fault, str) else 3
    for number in range(1, truth.calls + 1, stride):
        for mode in modes if LONG else [modes[number // stride % len(modes)]]:
            world, log = filled(SimulatedDisk(1))
            world.disk.fail_at(world.disk.calls + number, fault)
            try:
                if not run_clean(world, log):
                    struck += 1
                    check_still_used(truth, world, log)
            except PowerCut:
                struck += 1
            try:
                check_found(truth, world, mode)
            except BaseException as error:
                error.add_note(f"call {number} of {truth.calls}, {fault}, {mode}")
                raise
    # A short write is only one where something is written.
    assert struck >= (truth.calls // stride // 2 if fault != "short" else 10)


def check_still_used(truth: Truth, world: World, log: Log) -> None:
    """A log that a fault did not take offline serves on, and is cleaned at the next try."""
    if log.offline:
        return
    assert stored_batches(log) in truth.expected()
    assert newest_by_key(log) == truth.newest


def test_s16_a_crash_while_a_swap_is_finished_loses_nothing_either() -> None:
    """The machine goes down in the renames of a swap, and again at each call of the recovery."""
    truth = Truth()
    cases = 0
    for stop_at in range(20, truth.calls, 1 if LONG else 11):
        world, log = filled(SimulatedDisk(1))
        world.disk.fail_at(world.disk.calls + stop_at, "crash")
        with pytest.raises(PowerCut):
            run_clean(world, log)
        crashed = world.disk
        names = crashed.crash(CrashMode.KEEP_ALL).list_dir(DIRECTORY)
        number = 0
        while any(name.endswith(".log.swap") for name in names):
            number += 1 if LONG else 3
            disk = crashed.crash(CrashMode.KEEP_ALL)
            disk.fail_at(disk.calls + number, "crash")
            try:
                world.reopen_after(disk, recovery_point=first_offset(truth.before[-1]))
            except PowerCut:
                cases += 1
                check_found(truth, world, list(CrashMode)[number % 3])
                continue
            break
    assert cases >= 40
