"""What the tables must hold, from what was sent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from examples.pipelines.events import iso
from examples.pipelines.truths import sort_out
from tidelog.client.batching import ProducerRecord

LINE = re.compile(r"(\S+) (\S+) #([0-9]+) (DEBUG|INFO|WARN|ERROR) (.*)")


def truth(records: Sequence[ProducerRecord]) -> dict[str, list[Mapping[str, Any]]]:
    lines: dict[tuple[str, int], Mapping[str, Any]] = {}
    unparsed: list[Mapping[str, Any]] = []
    dead: list[Mapping[str, Any]] = []
    for record in records:
        texts, bad = sort_out([record], str)
        dead += bad
        for text in texts:
            found = LINE.fullmatch(text)
            if found is None:
                unparsed.append({"topic": record.topic, "line": text})
                continue
            _, host, number, level, message = found.groups()
            at = iso(record.timestamp_ms or 0)
            lines[host, int(number)] = {
                "service": record.topic.removeprefix("logs."),
                "host": host,
                "number": int(number),
                "level": level,
                "message": message,
                "at": at,
                "day": at[:10],
            }
    return {"lines": list(lines.values()), "unparsed": unparsed, "logs.bad": dead}
