"""`durability=fsync`: what was acknowledged survives a disk that drops every unsynced write.

A real `Partition` on a real `Log`, over the simulated disk: batches are appended, some of them are
acknowledged (committed), the power goes at a random moment, and the log is opened again.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from uuid import UUID

import pytest

from tidelog.cluster.image import PartitionState
from tidelog.config import load, topic_config
from tidelog.host.clock import SystemClock
from tidelog.host.random import SystemRandom
from tidelog.model import TopicPartition
from tidelog.protocol.batches import Record, decode_records, encode_batch, iterate_batches
from tidelog.replication.disk_space import Room
from tidelog.replication.partition import Partition
from tidelog.replication.standing import Standing, Unregistered
from tidelog.replication.truncations import DiskWork
from tidelog.storage.admission import admit
from tidelog.storage.file_cache import FileCache
from tidelog.storage.log import Log
from tidelog.storage.log_context import LogContext, NewLog
from tidelog.storage.losses import Expectation
from tidelog.storage.recovery import Opening
from tidelog.testing.disk import CrashMode, SimulatedDisk

POWER_CUTS = 2_000 if os.environ.get("TIDELOG_LONG") == "1" else 80
TOPIC_ID = UUID(int=77)
DIRECTORY = "/data/t-0"


class HeldOffload:
    """Runs handed-out work when the test says so, so that a cut can fall before, in or after it."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def run(self, function: Callable[..., object], *args: object) -> asyncio.Future[object]:
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def close(self) -> None:
        self._pool.shutdown()


def open_log(disk: SimulatedDisk, settings: dict[str, str]) -> Log:
    context = LogContext(
        disk,
        SystemClock(),
        FileCache(disk),
        SystemRandom(),
        lambda delay, work: None,
        lambda path, error: None,
    )
    new = NewLog(TOPIC_ID, topic_config(load(), settings))
    expected = Expectation(DIRECTORY)
    return Log.open(Opening(TopicPartition("t", 0), new, context, expected, clean=False))


def values_of(log: Log) -> list[bytes]:
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        slices = log.read(offset, 1 << 20, log.end_position)
        data = slices.read_all()
        slices.release()
        for position, header in iterate_batches(data):
            found += [record.value or b"" for record in decode_records(data, position)]
            offset = header.last_offset + 1
    return found


async def one_life(
    disk: SimulatedDisk, settings: dict[str, str], chance: random.Random, survived: list[bytes]
) -> tuple[list[bytes], SimulatedDisk]:
    """Append until the power goes; what was acknowledged, and what is left of the disk."""
    log = open_log(disk, settings)
    assert values_of(log)[: len(survived)] == survived
    offload = HeldOffload()
    config, room = topic_config(load(), settings), Room("clients", "test")
    standing = Standing(0, SystemClock(), Unregistered())
    # A sole replica is never cut, and the start of its log does not move here.
    work = DiskWork(offload, SimpleNamespace(checkpoints=None))  # type: ignore[arg-type]
    partition = Partition(log, config, work, room, standing)
    partition.follow_image(PartitionState(0, 0, log.epochs.latest + 1, (0,), (0,)), 1)
    await partition.settle()
    sent = values_of(log)
    assert partition.high_watermark == len(sent), "the watermark never falls at a restart"
    acknowledged = len(survived)
    for _ in range(chance.randrange(1, 12)):
        values = [
            chance.randbytes(chance.choice((1, 50, 3000))) for _ in range(chance.randrange(1, 5))
        ]
        records = [Record(i, 1, None, value, []) for i, value in enumerate(values)]
        admitted = admit(memoryview(bytearray(encode_batch(records))), partition.config, 1)
        result = partition.append(admitted, -1, 1)
        sent += values
        if chance.random() < 0.6:
            deadline = asyncio.get_running_loop().time() + 20
            await partition.committed(result.last_offset, deadline)
            acknowledged = result.last_offset + 1
        assert partition.high_watermark >= acknowledged
    # What a reader may have been shown counts as much as what a producer was told.
    acknowledged = max(acknowledged, partition.high_watermark)
    left = disk.crash(chance.choice((CrashMode.LOSE_ALL, CrashMode.RANDOM)))
    offload.close()
    return sent[:acknowledged], left


@pytest.mark.parametrize("flush_messages", ["", "3"])
def test_nothing_acknowledged_or_shown_is_lost_when_every_unsynced_write_is(
    flush_messages: str,
) -> None:
    settings = {"durability": "fsync", "segment.bytes": "1048576"}
    if flush_messages:
        settings |= {"flush.messages": flush_messages, "flush.ms": "20"}
    chance = random.Random(99)
    disk = SimulatedDisk()
    disk.make_dir(DIRECTORY)
    for parent in ("/", "/data"):
        disk.sync_dir(parent)
    survived: list[bytes] = []
    cuts = 0
    for _ in range(POWER_CUTS):
        survived, disk = asyncio.run(one_life(disk, settings, chance, survived))
        cuts += 1
    log = open_log(disk, settings)
    assert values_of(log)[: len(survived)] == survived
    assert len(survived) > POWER_CUTS
    assert cuts == POWER_CUTS
    print(f"power_cuts={cuts} acknowledged={len(survived)} lost=0")
