"""Requests to services, and the services' replies: some late, some sent twice, some malformed.

One request in twenty is never answered, and one in twenty too late. A probe asks and answers itself
all the time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from examples.pipelines.events import (
    as_json,
    event_time,
    in_parts,
    iso,
    quiet_times,
    with_faults,
)
from tidelog.client.batching import ProducerRecord

REQUESTS, REPLIES = "requests", "replies"
SERVICES, WEIGHTS = ("mail", "print", "fax"), (70, 25, 5)
PROBE = "probe"
SENDERS = 500
ANSWER_MS_MAX = 10 * 60 * 1000
NEVER_SHARE, TOO_LATE_SHARE = 0.05, 0.05


def generate(count: int, seed: int) -> list[list[ProducerRecord]]:
    """About so many requests and replies, and then the probe alone, which moves the clock on."""
    chance = random.Random(seed)
    night = [
        each
        for number, at in enumerate(quiet_times(count))
        for each in (
            request(f"n{number}", PROBE, PROBE, at),
            reply(f"n{number}", PROBE, at),
        )
    ]
    return in_parts(list(with_faults(messages(count, chance), chance)), night)


def messages(count: int, chance: random.Random) -> Iterator[ProducerRecord]:
    number = 0
    while number < count:
        name, sender = f"m{number}", f"sender-{chance.randrange(SENDERS)}"
        service = chance.choices(SERVICES, WEIGHTS)[0]
        at_ms = event_time(chance, number)
        yield request(name, sender, service, at_ms)
        number += 1
        if chance.random() >= NEVER_SHARE:
            too_late = chance.random() < TOO_LATE_SHARE
            took_ms = chance.randrange(ANSWER_MS_MAX // 2) + (ANSWER_MS_MAX if too_late else 0)
            yield reply(name, service, at_ms + took_ms)
            number += 1


def request(name: str, sender: str, service: str, at_ms: int) -> ProducerRecord:
    value = {
        "id": name,
        "sender": sender,
        "service": service,
        "text": f"please do {name}",
        "reply_to": REPLIES,
        "at": iso(at_ms),
    }
    return ProducerRecord(REQUESTS, as_json(value), sender.encode(), timestamp_ms=at_ms)


def reply(name: str, service: str, at_ms: int) -> ProducerRecord:
    value = {"to": name, "service": service, "at": iso(at_ms)}
    return ProducerRecord(REPLIES, as_json(value), name.encode(), timestamp_ms=at_ms)
