"""What must be true of a log is asserted where it could stop being true, and only there.

A wrong call ends in AssertionError before anything is lost. Damaged files do not: they are errors.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from tests.unit.storage.compaction_helpers import COMPACT, clean, keyed
from tests.unit.storage.helpers import (
    DIRECTORY,
    NOW_MS,
    PARTITION,
    TOPIC_ID,
    World,
    append,
    append_marker,
    batch,
    close,
    create_log,
    flush,
    idempotent,
    marker,
    stored_batches,
    transactional,
    truncate,
)
from tidelog.config import TopicConfig
from tidelog.errors import KafkaError, StorageError
from tidelog.protocol.batches import CONTROL_ABORT, CONTROL_COMMIT
from tidelog.storage.compaction import Clean
from tidelog.storage.data_dir import DataDir
from tidelog.storage.dirt import CleanAbandonedError, measure
from tidelog.storage.log import Log
from tidelog.storage.log_context import NewLog
from tidelog.storage.segment import CLEANED_SUFFIX
from tidelog.storage.segments import create_segment
from tidelog.storage.verification import COORDINATOR

DAMAGED = 400


def three_segments() -> tuple[World, Log]:
    world = World(config=TopicConfig(segment_bytes=400))
    log = world.open()
    for _ in range(9):
        append(log, batch(2, size=50))
    assert len(log.segments) >= 3
    return world, log


WRONG: dict[str, Callable[[World, Log], object]] = {
    "a segment inside another": lambda world, log: log.segments.begin(log.log_end_offset - 1),
    "a hole in the middle": lambda world, log: log.segments.retire(log.segments[1], 0),
    "a batch below the end": lambda world, log: log.segments.active.note(
        batch(2).header, 100, 4096
    ),
    "a cut beyond the end": lambda world, log: log.segments.active.forget_from(1 << 20, 0),
    "an epoch that falls": lambda world, log: (log.epochs.assign(5, 18), log.epochs.assign(4, 18)),
    "an end below zero": lambda world, log: truncate(log, -1),
    "a reader that leaves twice": lambda world, log: log.segments[0].reader_left(),
    "a file let go of twice": lambda world, log: log.segments[0].log_file.unpin(),
    "an index entry that falls": lambda world, log: (
        log.segments[0].offsets.append(7, 70),
        log.segments[0].offsets.append(6, 80),
    ),
    "a clean of what is not synced": lambda world, log: Clean(
        log, measure(log, log.log_end_offset, NOW_MS), 1 << 20, threading.Event()
    ),
    "a segment that holds less than those it stands for": lambda world, log: log.replace_segments(
        [log.segments[0]], create_segment(world.context, "/data", 0, CLEANED_SUFFIX)
    ),
    "an append to a closed log": lambda world, log: (log.abandon(), append(log)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_call_is_stopped_before_it_changes_the_log(wrong: str) -> None:
    world, log = three_segments()
    before = stored_batches(log)
    names = sorted(world.disk.list_dir(DIRECTORY))
    with pytest.raises(AssertionError):
        WRONG[wrong](world, log)
    assert stored_batches(log) == before
    assert sorted(world.disk.list_dir(DIRECTORY)) == names


def test_a_partition_has_one_owner() -> None:
    world = World()
    data_dir = DataDir.open("/data", world.context)
    data_dir.load_logs({})
    log = create_log(data_dir, PARTITION, NewLog(TOPIC_ID, world.config))
    with pytest.raises(AssertionError):
        data_dir.add(log)
    with pytest.raises(AssertionError):
        data_dir.load_logs({})
    data_dir.close()
    with pytest.raises(AssertionError):
        data_dir.checkpoint(None)


def lived(chance: random.Random) -> World:
    """A compacted log of a few segments with producers and transactions, closed."""
    world = World(config=COMPACT)
    log = world.open()
    for number in range(30):
        epoch = number // 10
        if number % 5 == 0:
            log.append(transactional(number // 5, producer_id=9), epoch, NOW_MS)
        elif number % 5 == 3:
            kind = chance.choice((CONTROL_ABORT, CONTROL_COMMIT))
            log.append(marker(kind, producer_id=9), epoch, NOW_MS, COORDINATOR)
        else:
            pairs = [(f"k{chance.randrange(6)}", "v" * chance.randrange(90)) for _ in range(3)]
            log.append(keyed(pairs), epoch, NOW_MS)
    append(log, idempotent(0), epoch=3)
    flush(log)
    close(log)
    return world


def damage(world: World, chance: random.Random) -> None:
    """What a bad disk or a careless hand may do to the files of a log."""
    disk = world.disk
    names = sorted(disk.list_dir(DIRECTORY))
    for _ in range(chance.randrange(1, 4)):
        path = f"{DIRECTORY}/{chance.choice(names)}"
        fd = disk.open(path)
        size = disk.size(fd)
        kind = chance.randrange(4)
        if kind == 0:
            disk.truncate(fd, chance.randrange(size + 1))
        elif kind == 1 and path.endswith(".log"):
            # As a segment that lies over others.
            data = disk.pread(fd, size, 0)
            other = disk.open(f"{DIRECTORY}/{chance.randrange(60):020d}.log", create=True)
            disk.pwritev(other, (data,), 0)
            disk.close(other)
        elif size:
            for _ in range(chance.randrange(1, 4)):
                # The heads of batches and entries are where numbers are believed.
                place = chance.choice((chance.randrange(size), chance.randrange(min(size, 61))))
                disk.pwritev(fd, (bytes([chance.randrange(256)]),), place)
        disk.close(fd)


def read(log: Log, chance: random.Random) -> None:
    start = chance.randrange(log.log_start_offset, log.log_end_offset + 1)
    slices = log.read(start, chance.choice((1, 300, 1 << 20)), log.end_position)
    slices.read_all()
    slices.release()


def use(world: World, chance: random.Random) -> None:
    cleanly = chance.random() < 0.5
    log = world.open(clean=cleanly, recovery_point=chance.choice((0, 20)))
    epoch = max(log.epochs.latest, 4)
    steps: list[Callable[[], object]] = [
        lambda: read(log, chance),
        lambda: log.append(keyed([("k1", "w")]), epoch, NOW_MS),
        lambda: append_marker(log, marker(CONTROL_ABORT, producer_id=9)),
        lambda: flush(log),
        lambda: clean(log),
        lambda: log.apply_retention(NOW_MS, log.log_end_offset),
        lambda: truncate(log, chance.randrange(log.log_end_offset + 1)),
        lambda: log.first_unstable_offset,
        lambda: log.locate(chance.randrange(log.log_start_offset, log.log_end_offset + 1)),
        lambda: close(log),
    ]
    for step in (*chance.choices(steps[:-1], k=8), steps[-1]):
        try:
            step()
        except (KafkaError, StorageError, OSError, CleanAbandonedError):
            OUTCOMES["refused"] += 1


OUTCOMES: Counter[str] = Counter()


def test_damaged_files_are_errors_and_never_failed_assertions() -> None:
    OUTCOMES.clear()
    for seed in range(DAMAGED):
        chance = random.Random(seed)
        world = lived(chance)
        damage(world, chance)
        try:
            use(world, chance)
            OUTCOMES["opened"] += 1
        except (KafkaError, StorageError, OSError):
            OUTCOMES["not opened"] += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert OUTCOMES["opened"] + OUTCOMES["not opened"] == DAMAGED
    assert OUTCOMES["opened"] > DAMAGED // 4
    assert OUTCOMES["refused"] > 20
