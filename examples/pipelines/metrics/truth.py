"""What the windows must hold, from what was sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from examples.pipelines.events import iso, ms
from examples.pipelines.truths import sort_out
from tidelog.client.batching import ProducerRecord

MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
Sample = tuple[int, str, str, int, int]


def truth(records: Sequence[ProducerRecord]) -> dict[str, list[Mapping[str, Any]]]:
    found, bad = sort_out(records, read_sample)
    samples = {each for each in found if each[2] != "heartbeat"}
    by_minute: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    by_hour: dict[tuple[int, str], list[int]] = defaultdict(list)
    for _, host, metric, value, at in samples:
        by_minute[at - at % MINUTE_MS, host, metric].append(value)
        by_hour[at - at % HOUR_MS, metric].append(value)
    return {
        "minutes": [
            {
                "key": host,
                "value": {"minute": iso(start), "host": host, "metric": metric, **summary(values)},
                "headers": {"metric": metric},
            }
            for (start, host, metric), values in by_minute.items()
        ],
        "hours": [
            {"hour": iso(start), "metric": metric, **summary(values)}
            for (start, metric), values in by_hour.items()
        ],
        "samples.bad": bad,
    }


def summary(values: list[int]) -> dict[str, int]:
    return {
        "samples": len(values),
        "smallest": min(values),
        "largest": max(values),
        "total": sum(values),
    }


def read_sample(text: str) -> Sample:
    number, host, metric, value, at = text.split(",")
    return int(number), host, metric, int(value), ms(at)
