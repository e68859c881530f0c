"""A service that starts with nothing and has all accounts after reading one compacted topic.

    python -m examples.pipelines.event_sourcing.rebuild accounts

It reads the broker of TIDELOG_BOOTSTRAP_SERVERS, 127.0.0.1:9092 by default.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tidelog
from examples.pipelines.targets import COMPACTED, Held, Kind, Place, as_texts
from tidelog.arrow.read import Options


def rebuild(topic: str, **options: Any) -> dict[bytes, dict[str, Any]]:
    """The state that a compacted topic holds: the last value of each key, unless it is deleted.

    A topic that is not yet compacted, or has an update twice, gives the same.
    """
    state: dict[bytes, dict[str, Any]] = {}
    for batch in tidelog.scan(topic, columns=["key", "value"], **options):
        for row in batch.to_pylist():
            if row["value"] is None:
                state.pop(row["key"], None)
            else:
                state[row["key"]] = json.loads(row["value"])
    return state


@dataclass(frozen=True)
class Rebuilt(Kind):
    """A compacted topic, rebuilt before and after its compaction: both must give the same."""

    topic: str
    configs = COMPACTED

    def held(self, place: Place, truth: Sequence[str]) -> Held:
        options = Options(bootstrap_servers=place.servers)
        before = rebuild(self.topic + place.suffix, **options)
        note = place.compacted(self.topic)
        after = rebuild(self.topic + place.suffix, **options)
        if before != after:
            return Held(Counter(), note=f"{note}, which changed it")
        return Held(Counter(as_texts(list(after.values()))), note=note)


if __name__ == "__main__":
    accounts = rebuild(sys.argv[1])
    total = sum(each["cents"] for each in accounts.values())
    print(f"{len(accounts):,} accounts with {total / 100:,.2f}")
