"""How far the next micro-batch goes: rows, bytes and a minimum, all in one place.

Rows are offsets. Bytes are those of the log: a Tidelog says how far they go, of other brokers it is
reckoned from what a record of each partition takes. Something of each partition that has news is
always let through, so that no limit stops a query for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.model import TopicPartition
from tidelog.spark.source.offsets import Offsets

DEFAULT_BYTES_PER_BATCH = 256 << 20


@dataclass(slots=True, frozen=True)
class BatchLimits:
    """What one micro-batch may hold, and for how many rows it waits how long."""

    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay_ms: int = 15 * 60 * 1000


def share_out(start: Offsets, available: Offsets, max_rows: int | None) -> Offsets:
    """The offsets to stop at, each partition with its share of `max_rows`, large or small alike."""
    sizes = {tp: end - start[tp] for tp, end in available.items() if end > start[tp]}
    total = sum(sizes.values())
    if max_rows is None or total <= max_rows:
        return {tp: max(end, start[tp]) for tp, end in available.items()}
    ends = {}
    for tp in available:
        size = sizes.get(tp, 0)
        share = max(1, size * max_rows // total) if size else 0
        ends[tp] = start[tp] + share
    return ends


def share_bytes(
    start: Offsets,
    available: Offsets,
    row_bytes: Mapping[TopicPartition, float],
    max_bytes: int | None,
) -> Offsets:
    """As `share_out`, with a limit in bytes and what a row of each partition takes."""
    if max_bytes is None:
        return available
    sizes = {tp: (end - start[tp]) * row_bytes.get(tp, 0.0) for tp, end in available.items()}
    total = sum(sizes.values())
    if total <= max_bytes:
        return available
    part = max_bytes / total
    return {
        tp: start[tp] + max(1, int((end - start[tp]) * part)) if end > start[tp] else end
        for tp, end in available.items()
    }
