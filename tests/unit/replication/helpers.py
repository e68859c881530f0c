"""Partitions in virtual time, on a disk that a test can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

from tests.unit.storage.helpers import create_log
from tidelog.cluster.image import PartitionState
from tidelog.config import load, topic_config
from tidelog.model import Isolation, TopicPartition
from tidelog.protocol.batches import Record, decode_records, encode_batch, iterate_batches
from tidelog.replication.checkpoints import Checkpoints
from tidelog.replication.disk_space import DiskSpace
from tidelog.replication.partition import Partition
from tidelog.replication.standing import Standing, Unregistered
from tidelog.replication.truncations import DiskWork, Truncations
from tidelog.storage.admission import admit
from tidelog.storage.data_dir import DataDir
from tidelog.storage.file_cache import FileCache
from tidelog.storage.log import AppendResult
from tidelog.storage.log_context import LogContext, NewLog
from tidelog.testing.disk import SimulatedDisk
from tidelog.testing.virtual_loop import VirtualClock, virtual_host

TOPIC_ID = UUID(int=5)


class Place:
    """A data directory, and the partitions that are led in it."""

    def __init__(
        self, seed: int = 0, disk: SimulatedDisk | None = None, broker_id: int = 0
    ) -> None:
        self.host = virtual_host(seed, disk)
        assert isinstance(self.host.disk, SimulatedDisk)
        assert isinstance(self.host.clock, VirtualClock)
        self.disk, self.clock, self.offload = self.host.disk, self.host.clock, self.host.offload
        context = LogContext(
            self.disk,
            self.clock,
            FileCache(self.disk, 64),
            self.host.random,
            self._run_later,
            lambda path, error: self.data_dir.failed(error),
        )
        self.data_dir = DataDir.open("/data", context)
        self.space = DiskSpace(self.data_dir, self.host)
        checkpoints = Checkpoints(self.data_dir, self.host, dict)
        self.disk_work = DiskWork(self.offload, Truncations(checkpoints, self.host))
        self.standing = Standing(broker_id, self.clock, Unregistered())

    def _run_later(self, delay_seconds: float, work: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(delay_seconds, self.offload.run, work)

    def build(self, name: str = "orders", **settings: str) -> Partition:
        """A partition that does not lead yet."""
        config = topic_config(load(), {each.replace("_", "."): settings[each] for each in settings})
        log = create_log(self.data_dir, TopicPartition(name, 0), NewLog(TOPIC_ID, config))
        return Partition(log, config, self.disk_work, self.space.room_for(name), self.standing)

    def lead(self, name: str = "orders", epoch: int = 0, **settings: str) -> Partition:
        partition = self.build(name, **settings)
        partition.follow_image(state(epoch), 1)
        return partition

    def put(
        self, partition: Partition, *values: bytes, key: bytes | None = None, acks: int = -1
    ) -> AppendResult:
        """Append the values as one batch."""
        now_ms = self.clock.wall_ms()
        records = [Record(number, now_ms, key, value, []) for number, value in enumerate(values)]
        batch = memoryview(bytearray(encode_batch(records)))
        return partition.append(admit(batch, partition.config, now_ms), acks, now_ms)

    def put_numbered(self, partition: Partition, sequence: int) -> AppendResult:
        """Append one record of an idempotent producer."""
        now_ms = self.clock.wall_ms()
        data = encode_batch(
            [Record(0, now_ms, None, b"x", [])], producer_id=7, producer_epoch=0,
            base_sequence=sequence,
        )  # fmt: skip
        batch = memoryview(bytearray(data))
        return partition.append(admit(batch, partition.config, now_ms), -1, now_ms)


def state(epoch: int = 0, isr: tuple[int, ...] = (0,)) -> PartitionState:
    return PartitionState(0, 0, epoch, (0,), isr)


def read(partition: Partition, offset: int = 0) -> list[bytes | None]:
    """The values that a consumer sees from there on, or from the log's start."""
    offset = max(offset, partition.log.log_start_offset)
    found = partition.read(offset, 1 << 20, Isolation.READ_UNCOMMITTED, at_least_one=True)
    if found.slices is None:
        return []
    data = found.slices.read_all()
    found.slices.release()
    return [record.value for at, _ in iterate_batches(data) for record in decode_records(data, at)]


def in_seconds(seconds: float) -> float:
    """A deadline."""
    return asyncio.get_running_loop().time() + seconds
