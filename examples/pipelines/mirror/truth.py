"""What the copy must hold: every record as it was sent, those of a partition in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from examples.pipelines.mirror.copy import content
from tidelog.client.batching import ProducerRecord


def truth(records: Sequence[ProducerRecord]) -> dict[str, list[Mapping[str, Any]]]:
    counts: Counter[int] = Counter()
    rows: list[Mapping[str, Any]] = []
    for record in records:
        assert record.partition is not None and record.timestamp_ms is not None
        row = content(
            record.partition, record.timestamp_ms, record.key, record.value, record.headers
        )
        rows.append({**row, "position": counts[record.partition]})
        counts[record.partition] += 1
    return {"copy": rows}
