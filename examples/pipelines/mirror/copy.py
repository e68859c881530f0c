"""The copy of a topic, beside the original.

After a kill the records of the micro-batch that was cut off stand in the copy a second time, from
its beginning on. Whether that is all, only the original can tell: it has equal records, too. So the
copy is read with a finger on the original, which goes on, or back to a place where it was before.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from examples.pipelines.mirror.generate import PARTITIONS
from examples.pipelines.targets import Held, Kind, Place, as_texts

COLUMNS = ("partition", "timestamp", "key", "value", "headers")
# So many records say where in the original the finger is, where it could be in several places.
RUN_MAX = 100


@dataclass(frozen=True)
class Copy(Kind):
    """A mirrored topic: all of a record counts, and where it stands in its partition."""

    topic: str
    partitions = PARTITIONS

    def held(self, place: Place, truth: Sequence[str]) -> Held:
        originals: dict[int, list[str]] = defaultdict(list)
        for text in truth:
            row = json.loads(text)
            del row["position"]
            originals[row["partition"]] += as_texts([row])
        copies: dict[int, list[str]] = defaultdict(list)
        for record in place.read(self.topic, *COLUMNS):
            copies[record["partition"]] += as_texts([content(**record)])
        rows: Counter[str] = Counter()
        repeats = 0
        for partition, copy in copies.items():
            reached = 0
            for text, at in zip(copy, follow(originals[partition], copy), strict=True):
                if at is not None and at < reached:
                    repeats += 1
                else:
                    rows.update(as_texts([{**json.loads(text), "position": at}]))
                    reached += at is not None
        return Held(rows, repeats)


def content(
    partition: int, timestamp: Any, key: bytes | None, value: bytes | None, headers: Any
) -> dict[str, Any]:
    """All that a mirror keeps, as JSON can hold it; `timestamp` is a time or milliseconds."""
    at_ms = timestamp if isinstance(timestamp, int) else round(timestamp.timestamp() * 1000)
    pairs = [each.values() if isinstance(each, dict) else each for each in headers or ()]
    return {
        "partition": partition,
        "timestamp": at_ms,
        "key": as_hex(key),
        "value": as_hex(value),
        "headers": [[name, as_hex(data)] for name, data in pairs],
    }


def as_hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def follow(original: Sequence[str], copy: Sequence[str]) -> Iterator[int | None]:
    """Where in the original each record of the copy is: at the next place, or, where it begins
    again, at one before; None where it is at neither."""
    places: dict[str, list[int]] = defaultdict(list)
    for at, text in enumerate(original):
        places[text].append(at)

    def run(at: int, number: int) -> int:
        """How many records go on from there as the copy does."""
        length = 0
        pairs = zip(original[at : at + RUN_MAX], copy[number : number + RUN_MAX], strict=False)
        for one, other in pairs:
            if one != other:
                break
            length += 1
        return length

    finger = reached = 0
    for number, text in enumerate(copy):
        if finger == len(original) or original[finger] != text:
            before = [at for at in places[text] if at < reached]
            if not before:
                yield None
                continue
            finger = max(before, key=lambda at: run(at, number))
        yield finger
        finger += 1
        reached = max(reached, finger)
