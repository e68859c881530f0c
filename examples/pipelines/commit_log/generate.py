"""The changes of the shop's table as they are shipped: some late, some twice, some damaged.

What was damaged is shipped again at once, so nothing is missing, and the table can be restored row
for row. A change that is late comes after later changes of the same row.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import replace

from examples.pipelines.commit_log.shop import COLUMNS, run_shop
from examples.pipelines.events import (
    AGAIN_EVENTS_MAX,
    DAMAGED_SHARE,
    LATE_SHARE,
    START_MS,
    STEP_MS,
    as_json,
    damage_json,
    in_parts,
    iso,
    sent_again,
)
from tidelog.client.batching import ProducerRecord

TOPIC = "products.changes"


def generate(count: int, seed: int) -> list[list[ProducerRecord]]:
    chance = random.Random(seed)
    changes = list(read_changes(run_shop(count, chance)))
    shipped = shipped_twice_where_damaged(some_late(changes, chance), chance)
    return in_parts(list(sent_again(shipped, chance)), [])


def read_changes(shop: sqlite3.Connection) -> Iterator[ProducerRecord]:
    names = ("number", "operation", *COLUMNS)
    for row in shop.execute(f"SELECT {', '.join(names)} FROM changes ORDER BY number"):
        change = dict(zip(names, row, strict=True))
        at_ms = START_MS + change["number"] * STEP_MS
        value = as_json({**change, "at": iso(at_ms)})
        yield ProducerRecord(TOPIC, value, str(change["id"]).encode(), timestamp_ms=at_ms)


def some_late(changes: list[ProducerRecord], chance: random.Random) -> list[ProducerRecord]:
    def place(number: int) -> int:
        late = chance.random() < LATE_SHARE
        return number + (chance.randrange(AGAIN_EVENTS_MAX) if late else 0)

    order = sorted(range(len(changes)), key=place)
    return [changes[number] for number in order]


def shipped_twice_where_damaged(
    changes: Iterable[ProducerRecord], chance: random.Random
) -> Iterator[ProducerRecord]:
    for change in changes:
        if chance.random() < DAMAGED_SHARE:
            yield replace(change, value=damage_json(chance, change.value or b""))
        yield change
