"""Loading a shard: its partition's log, replayed from start to end."""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.coordinators.group_records import decode_record
from tidelog.coordinators.shard import GroupShard
from tidelog.host.offload import Offload
from tidelog.protocol.batches import Record, decode_records, iterate_batches
from tidelog.replication.partition import Partition
from tidelog.storage.slices import Slices

# Replayed without a break: a few milliseconds of the loop's time.
_CHUNK_BYTES: Final = 64 * 1024


async def load(shard: GroupShard, partition: Partition, offload: Offload) -> int:
    """Replay all that the log holds now; the offset of its last record, -1 for none."""
    log = partition.log
    end = log.end_position
    offset = log.log_start_offset
    while offset < end.offset:
        slices = log.read(offset, _CHUNK_BYTES, end)
        try:
            following, records = await offload.run(read_records, slices)
        finally:
            slices.release()
        replay(shard, records)
        if following <= offset:
            break
        offset = following
        await asyncio.sleep(0)
    return end.offset - 1


def read_records(slices: Slices) -> tuple[int, list[Record]]:
    """Read and inflate whole batches: the offset that follows them, and their records. Blocks.

    The offset is -1 where there is no batch. Kafka may have compressed what it wrote here.
    """
    data = slices.read_all()
    following = -1
    records: list[Record] = []
    for position, header in iterate_batches(data):
        following = header.last_offset + 1
        if not header.is_control:
            records += decode_records(data, position)
    return following, records


def replay(shard: GroupShard, records: list[Record]) -> None:
    for record in records:
        decoded = decode_record(record.key, record.value)
        if decoded is not None:
            shard.replay(decoded)
