"""What the generators share: a clock, lateness, and events that are sent twice or damaged.

All of it comes from one `random.Random`, so a seed and a count say every byte that is sent.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from heapq import heappop, heappush
from typing import Any

from tidelog.client.batching import ProducerRecord

START_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
STEP_MS = 100
# The watermarks of the pipelines are an hour, so that no row is so late that a stream drops it: the
# lateness of an event and the time until it is sent again stay well below, together.
LATE_MS_MAX = 25 * 60 * 1000
AGAIN_EVENTS_MAX = 2_000
LATE_SHARE, AGAIN_SHARE, DAMAGED_SHARE = 0.1, 0.02, 0.01
# After the last event the clock goes on in quiet: windows close when the watermark passes them, and
# only later events move it. In small steps, so that it never jumps over what a micro-batch left.
QUIET_EVENTS, QUIET_STEP_MS = 600, 20_000

Damage = Callable[[random.Random, bytes], bytes | None]


def iso(at_ms: int) -> str:
    """A time as Spark writes it in JSON, too."""
    seconds = datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{seconds}.{at_ms % 1000:03d}Z"


def ms(text: str) -> int:
    """The time that `iso` wrote; ValueError where it is none."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def as_json(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def event_time(chance: random.Random, number: int) -> int:
    """When the event of this number happened: it is sent with the clock, and some are late."""
    sent = START_MS + number * STEP_MS
    late = chance.random() < LATE_SHARE
    return sent - chance.randrange(LATE_MS_MAX if late else 2_000)


def quiet_times(count: int) -> Iterator[int]:
    """The times of the events after `count` others."""
    last = START_MS + count * STEP_MS
    return iter(range(last, last + QUIET_EVENTS * QUIET_STEP_MS, QUIET_STEP_MS))


def damage_json(chance: random.Random, value: bytes) -> bytes | None:
    """Cut off, not JSON, a time that is none, not UTF-8, or nothing at all."""
    return chance.choice(
        (
            value[: len(value) // 2],
            b"GET /index.html 200",
            as_json({**json.loads(value), "at": "yesterday"}),
            b"\xff\xfe" + value,
            None,
        )
    )


def with_faults(
    events: Iterable[ProducerRecord], chance: random.Random, damage: Damage = damage_json
) -> Iterator[ProducerRecord]:
    """Some events come damaged, and some a second time, a while after the first."""
    return sent_again(damaged(events, chance, damage), chance)


def damaged(
    events: Iterable[ProducerRecord], chance: random.Random, damage: Damage
) -> Iterator[ProducerRecord]:
    for event in events:
        if chance.random() < DAMAGED_SHARE:
            event = replace(event, value=damage(chance, event.value or b""))
        yield event


def sent_again(events: Iterable[ProducerRecord], chance: random.Random) -> Iterator[ProducerRecord]:
    again: list[tuple[int, int, ProducerRecord]] = []
    for number, event in enumerate(events):
        yield event
        if chance.random() < AGAIN_SHARE:
            due = number + chance.randint(1, AGAIN_EVENTS_MAX)
            heappush(again, (due, number, event))
        while again and again[0][0] <= number:
            yield heappop(again)[2]
    while again:
        yield heappop(again)[2]


def in_parts(
    events: list[ProducerRecord], quiet: list[ProducerRecord]
) -> list[list[ProducerRecord]]:
    """Two halves and the quiet; each is acknowledged before the next is sent."""
    middle = len(events) // 2
    return [events[:middle], events[middle:], quiet]
