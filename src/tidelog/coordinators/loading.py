"""Loading a shard: its partition's log, replayed from start to end."""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.coordinators.group_records import decode_record
from tidelog.coordinators.shard import GroupShard
from tidelog.host.offload import Offload
from tidelog.protocol.batches import decode_records, iterate_batches
from tidelog.replication.partition import Partition

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
            data = await offload.run(slices.read_all)
        finally:
            slices.release()
        following = replay(shard, data)
        if following <= offset:
            break
        offset = following
        await asyncio.sleep(0)
    return end.offset - 1


def replay(shard: GroupShard, data: bytes) -> int:
    """Replay whole batches; the offset that follows them, -1 where there is none."""
    following = -1
    for position, header in iterate_batches(data):
        following = header.last_offset + 1
        if header.is_control:
            continue
        for record in decode_records(data, position):
            decoded = decode_record(record.key, record.value)
            if decoded is not None:
                shard.replay(decoded)
    return following
