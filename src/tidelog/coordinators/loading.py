"""Loading a shard: its partition's log, replayed from start to end.

A batch that does not match its checksum is not replayed: a committed offset could come out as any
number. The shard then is not served, unless an operator accepts the loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tidelog._kernels import records as kernel
from tidelog.audit import audit
from tidelog.errors import ProtocolError, StorageError
from tidelog.host.offload import Offload
from tidelog.model import NO_PRODUCER_ID
from tidelog.protocol.batches import (
    MAGIC,
    BatchHeader,
    check_crc,
    inflate,
    iterate_batches,
)
from tidelog.replication.partition import Partition
from tidelog.storage.producers import read_marker
from tidelog.storage.slices import Slices

# Replayed without a break: a few milliseconds of the loop's time.
_CHUNK_BYTES: Final = 64 * 1024


class Stored(NamedTuple):
    """A record, or how a transaction ends; the producer is -1 where it was in no transaction."""

    key: bytes | None
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID
    ends: bool | None = None


async def load(
    partition: Partition,
    offload: Offload,
    replay: Callable[[Stored], None],
    *,
    accept_loss: bool = False,
) -> int:
    """Replay all that the log holds now; the offset at which it ends.

    StorageError where a batch is damaged; with `accept_loss` it is left out.
    """
    log = partition.log
    end = log.end_position
    offset = log.log_start_offset
    while offset < end.offset:
        with partition.contained:
            slices = log.read(offset, _CHUNK_BYTES, end)
        try:
            following, stored, damaged = await offload.run(read_records, slices)
        finally:
            slices.release()
        if damaged:
            _judge(damaged, partition, accept_loss)
        for each in stored:
            replay(each)
        if following <= offset:
            raise StorageError(f"{partition.topic_partition} is not readable at offset {offset}")
        offset = following
        await asyncio.sleep(0)
    return end.offset


def _judge(damaged: list[BatchHeader], partition: Partition, accept_loss: bool) -> None:
    name = partition.topic_partition
    first, last = damaged[0].base_offset, damaged[-1].base_offset
    if not accept_loss:
        raise StorageError(
            f"{name} is damaged at offset {first}: what it keeps is not served. Put its files back"
            " and restart, or go on without the damaged records:"
            f" tidelog broker --accept-loss {name}"
        )
    audit("coordinator records left out", partition=name, first_batch=first, last_batch=last)


def read_records(slices: Slices) -> tuple[int, list[Stored], list[BatchHeader]]:
    """Read and inflate whole batches: the offset that follows them, what they hold, and the
    headers of those that do not match their checksums. Blocks.

    The offset is -1 where there is no batch. Kafka may have compressed what it wrote here.
    """
    data = slices.read_all()
    following = -1
    stored: list[Stored] = []
    damaged: list[BatchHeader] = []
    reader = _RecordReader()
    for position, header in iterate_batches(data):
        if not check_crc(data, position, header.size_bytes):
            # Nothing that it says is believed: the next batch is the one behind its first offset.
            damaged.append(header)
            following = max(following, header.base_offset + 1)
            continue
        following = header.last_offset + 1
        if not header.is_control:
            stored += reader.read(data, position, header)
            continue
        marker = read_marker(data[position : position + header.size_bytes], header)
        if marker is not None:
            stored.append(Stored(None, None, header.producer_id, marker.committed))
    return following, stored, damaged


class _RecordReader:
    """Keys and values of one batch after the other, indexed in buffers that are used again.

    Most batches hold one record: buffers for each would cost more than reading it does.
    """

    def __init__(self) -> None:
        self._resize(1)

    def _resize(self, records_max: int) -> None:
        self._records_max = records_max
        self._rows = memoryview(kernel.reserve(records_max * kernel.ROW_FIELDS * 4)).cast("i")
        self._timestamps = memoryview(kernel.reserve(records_max * 8)).cast("q")

    def read(self, data: bytes, position: int, header: BatchHeader) -> Iterator[Stored]:
        if header.magic != MAGIC:
            raise ProtocolError(f"A record batch has magic {header.magic}")
        payload, count = bytes(inflate(data, position, header)), header.record_count
        if not 0 <= count <= len(payload) // kernel.RECORD_BYTES_MIN:
            raise ProtocolError(f"A batch of {len(payload)} bytes claims {count} records")
        if count > self._records_max:
            self._resize(count)
        fault, record = kernel.index(
            payload, count, header.first_timestamp, self._rows, self._timestamps
        )
        if fault:
            raise ProtocolError(f"Record {record} of a batch: {kernel.FAULT_MESSAGES[fault]}")
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        numbers = self._rows[: count * kernel.ROW_FIELDS].tolist()
        for row in range(0, len(numbers), kernel.ROW_FIELDS):
            key_at, key_length, value_at, value_length = numbers[row + 2 : row + 6]
            yield Stored(
                None if key_length < 0 else payload[key_at : key_at + key_length],
                None if value_length < 0 else payload[value_at : value_at + value_length],
                producer_id,
            )
