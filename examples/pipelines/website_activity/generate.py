"""Clicks of a site: some late, some sent twice, some malformed; health checks all the time."""

from __future__ import annotations

import random

from examples.pipelines.events import (
    as_json,
    event_time,
    in_parts,
    iso,
    quiet_times,
    with_faults,
)
from tidelog.client.batching import ProducerRecord

TOPIC = "clicks"
HEALTH = "/health"
PAGES = ("/", "/books", "/maps", "/lamps", "/cart", "/help", HEALTH)
WEIGHTS = (30, 20, 15, 10, 8, 2, 1)
CLICKS_PER_USER = 10


def generate(count: int, seed: int) -> list[list[ProducerRecord]]:
    """So many clicks and their faults; then the visitors sleep and only the health check calls."""
    chance = random.Random(seed)
    users = max(1, count // CLICKS_PER_USER)
    clicks = (
        click(
            f"c{number}",
            f"u{chance.randrange(users)}",
            chance.choices(PAGES, WEIGHTS)[0],
            event_time(chance, number),
        )
        for number in range(count)
    )
    night = [
        click(f"n{number}", "probe", HEALTH, at) for number, at in enumerate(quiet_times(count))
    ]
    return in_parts(list(with_faults(clicks, chance)), night)


def click(name: str, user: str, page: str, at_ms: int) -> ProducerRecord:
    value = as_json({"id": name, "user": user, "page": page, "at": iso(at_ms)})
    # By the click and not by the user, so that the night reaches every partition.
    return ProducerRecord(TOPIC, value, name.encode(), timestamp_ms=at_ms)
