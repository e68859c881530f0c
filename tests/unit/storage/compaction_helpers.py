"""Cleans run from beginning to end, and what readers of a cleaned log see."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tests.unit.storage.helpers import NOW_MS, admitted, stored_batches
from tidelog.config import TopicConfig
from tidelog.model import Codec
from tidelog.protocol.batches import (
    BatchHeader,
    Record,
    control_record_type,
    decode_records,
    encode_batch,
    read_header,
)
from tidelog.storage.admission import Admitted
from tidelog.storage.compaction import Clean, CleanResult
from tidelog.storage.dirt import measure
from tidelog.storage.log import Log

COMPACT = TopicConfig(
    segment_bytes=700,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    cleanup_compact=True,
    cleanup_delete=False,
    delete_retention_ms=1000,
    min_cleanable_dirty_ratio=0.0,
)


def keyed(
    pairs: Sequence[tuple[str, str | None]],
    *,
    timestamp: int = NOW_MS,
    codec: Codec = Codec.NONE,
    **fields: int,
) -> Admitted:
    """A batch of keys and values; None is a tombstone."""
    records = [
        Record(
            timestamp=timestamp + number,
            key=key.encode(),
            value=None if value is None else value.encode(),
            headers=[("h", b"1")] if number % 2 else [],
        )
        for number, (key, value) in enumerate(pairs)
    ]
    return admitted(encode_batch(records, codec=codec, **fields))


def put(log: Log, *pairs: tuple[str, str | None], codec: Codec = Codec.NONE) -> int:
    """Append a batch as a leader does; its first offset."""
    return log.append(keyed(pairs, codec=codec), 0, NOW_MS).base_offset


def seal(log: Log) -> None:
    """Roll, flush and commit, so that everything so far can be cleaned."""
    log.roll_if_due(NOW_MS + 10**15)
    plan = log.flush_plan()
    plan.run()
    log.flushed(plan)
    log.producers.high_watermark_moved(log.log_end_offset)


def clean(
    log: Log, *, buffer_bytes: int = 1 << 20, stable_offset: int | None = None
) -> CleanResult:
    """One clean, with nothing else going on."""
    if stable_offset is None:
        unstable = log.producers.first_unstable_offset
        stable_offset = log.log_end_offset if unstable < 0 else unstable
    now_ms = log.context.clock.wall_ms()
    dirt = measure(log, min(stable_offset, log.flushed_offset), now_ms)
    work = Clean(log, dirt, buffer_bytes, threading.Event())
    try:
        work.read_keys()
        for group in work.groups():
            work.swap(group, work.rewrite(group))
        work.finish()
    finally:
        work.release()
    return work.result


def headers(log: Log) -> list[BatchHeader]:
    return [read_header(data) for data in stored_batches(log)]


def stored(log: Log) -> list[Record]:
    """Every record that is not a marker, committed or not."""
    return [
        record
        for data in stored_batches(log)
        if not read_header(data).is_control
        for record in decode_records(data)
    ]


def visible(log: Log) -> list[Record]:
    """What a consumer of committed data sees, by the rules that clients go by."""
    waiting = sorted(
        log.segments.aborted_transactions(log.log_start_offset, log.log_end_offset),
        key=lambda each: each[1],
    )
    aborted: set[int] = set()
    seen: list[Record] = []
    for data in stored_batches(log):
        header = read_header(data)
        while waiting and waiting[0][1] <= header.last_offset:
            aborted.add(waiting.pop(0)[0])
        if header.is_control:
            for record in decode_records(data):
                if control_record_type(record) == 0:
                    aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            seen += decode_records(data)
    return [record for record in seen if record.offset >= log.log_start_offset]


def pairs(records: Sequence[Record]) -> list[tuple[int, str, str | None]]:
    return [
        (
            record.offset,
            (record.key or b"").decode(),
            None if record.value is None else record.value.decode(),
        )
        for record in records
    ]
